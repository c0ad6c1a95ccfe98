// What `tools/servers.py versitygw` builds: Versity's S3 gateway, by a module of our own, so that the checksums of all
// that goes in lie beside it.
//
// To change the version: set it in `require`, and in tools/servers.py; then let Go complete the rest, here and in go.sum,
// in this folder:
//   go build -mod=mod -o /dev/null github.com/versity/versitygw/cmd/versitygw
module servers/versitygw

go 1.26.0

require github.com/versity/versitygw v1.7.0
