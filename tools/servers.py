#!/usr/bin/env python3
"""Builds, from source, the servers that tests and examples talk to, and says where they are.

    python tools/servers.py                    build every server that is missing, print one path a line
    python tools/servers.py collector          the same for one
    python tools/servers.py --path collector   print the path, build nothing; exit 1 with the reason when it is absent

Servers are `collector`, the OpenTelemetry Collector, `prometheus`, with `promtool` beside it, and `versitygw`, which
speaks the protocol of S3 over a folder.

A server lies in `<cache>/servers/<name>-<hash>/`, outside the source tree, so that every checkout shares it. The hash
covers all that decides what is built: a changed manifest is another folder, never a stale binary. `<cache>` is
`$TEST_SERVERS_CACHE`, else `$XDG_CACHE_HOME/otel-logger`, else `~/.cache/otel-logger`.

Needs Python and Go, and a Go module proxy for the first build; uses the standard library alone, as it runs before
anything is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SERVERS", "Server", "ServerError", "build", "folder", "locate", "main"]

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "tools/servers.py"

# Where Go's own archive and Debian's versioned packages put it, neither of them on PATH by itself.
GO_BESIDE_PATH = ("/usr/local/go/bin/go", "/usr/lib/go-1.26/bin/go")

# What is shown of a failed command: enough for the cause, which Go and its tools print last.
SHOWN_LINES = 30


class ServerError(Exception):
    """A server is absent or cannot be built; the message says why and what to do."""


@dataclass(frozen=True)
class Server:
    """One server: what it is built from and how."""

    name: str
    binary: str
    tool: str
    """The Go package that it is, or that builds it."""
    go: tuple[int, int]
    """The oldest Go that can."""
    manifest: str
    """The file, relative to the root of the tree, that says what goes in."""
    steps: Callable[[Server, Path, Path, Mapping[str, str]], Path]
    """Builds in a folder with a Go and an environment; returns the finished binary inside that folder."""
    companion: str | None = None
    """A Go package whose program `steps` builds beside the binary, and which is kept beside it."""
    flags: tuple[str, ...] = ()
    """Options of `go build`."""


def main(argv: list[str], environ: Mapping[str, str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog=SOURCE, description="Builds the servers that tests and examples talk to.")
    parser.add_argument("name", nargs="*", help=f"servers to build: {', '.join(SERVERS)} (default: all)")
    parser.add_argument("--path", metavar="NAME", help="print where a server is, build nothing")
    arguments = parser.parse_args(argv)
    try:
        if arguments.path is not None:
            print_line(locate(named(arguments.path), environ))
            return 0
        for name in arguments.name or SERVERS:
            print_line(build(named(name), environ))
    except ServerError as error:
        sys.stderr.write(f"{SOURCE}: {error}\n")
        return 1
    return 0


def named(name: str) -> Server:
    """The server of this name; raises `ServerError` when the table has none."""
    if name not in SERVERS:
        msg = f"no server is named {name!r}; known: {', '.join(SERVERS)}"
        raise ServerError(msg)
    return SERVERS[name]


def print_line(path: Path) -> None:
    """Prints a path: the only thing that goes to standard output, so that `$(...)` can take it."""
    sys.stdout.write(f"{path}\n")


def folder(server: Server, environ: Mapping[str, str]) -> Path:
    """The folder a server is kept in, whether it is there or not."""
    manifest = (ROOT / server.manifest).read_bytes()
    options = [*server.flags, *([server.companion] if server.companion is not None else [])]
    words = [server.tool, sys.platform, platform.machine(), *options]
    made_of = b"\0".join([manifest, *(word.encode() for word in words)])
    return cache(environ) / "servers" / f"{server.name}-{hashlib.sha256(made_of).hexdigest()[:12]}"


def cache(environ: Mapping[str, str]) -> Path:
    """The cache folder that the environment names."""
    if environ.get("TEST_SERVERS_CACHE"):
        return Path(environ["TEST_SERVERS_CACHE"]).expanduser().absolute()
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]).expanduser().absolute() / "otel-logger"
    return Path.home() / ".cache" / "otel-logger"


def locate(server: Server, environ: Mapping[str, str]) -> Path:
    """The path of a server that is built; raises `ServerError` when it is not."""
    path = folder(server, environ) / server.binary
    if not path.is_file():
        msg = f"{server.name} is not built: {path} is absent; build it with `make servers`"
        raise ServerError(msg)
    return path


def build(server: Server, environ: Mapping[str, str]) -> Path:
    """The path of a server, built first when it is absent."""
    final = folder(server, environ)
    binary = final / server.binary
    if binary.is_file():
        return binary
    go = find_go(server, environ)
    final.parent.mkdir(parents=True, exist_ok=True)
    with only_builder(final.parent):
        if binary.is_file():
            return binary
        began = time.monotonic()
        tell(f"building {server.name} with {server.tool} (minutes the first time, once per machine)")
        # Beside the final place, so that the rename is on one file system and therefore atomic.
        with tempfile.TemporaryDirectory(prefix=".building-", dir=final.parent) as temporary:
            work = Path(temporary)
            built = server.steps(server, work, go, go_environment(environ, work))
            finished = work / "finished"
            finished.mkdir()
            built.rename(finished / server.binary)
            if server.companion is not None:
                program = server.companion.rpartition("/")[2]
                (built.parent / program).rename(finished / program)
            shutil.copyfile(ROOT / server.manifest, finished / Path(server.manifest).name)
            if final.exists():  # its binary was removed by hand
                shutil.rmtree(final)
            finished.rename(final)
        tell(f"built {server.name} in {time.monotonic() - began:.0f} s")
    return binary


@contextmanager
def only_builder(servers: Path) -> Iterator[None]:
    """Holds the lock of a folder of servers; the system frees it however the process ends."""
    with (servers / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"waiting for another build in {servers}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in servers.glob(".building-*"):  # a build that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def find_go(server: Server, environ: Mapping[str, str]) -> Path:
    """A Go that is new enough for a server; raises `ServerError` with the remedy when there is none."""
    wanted = ".".join(map(str, server.go))
    remedy = f"{server.name} needs Go {wanted} or newer: install it from https://go.dev/dl/ and put it on PATH"
    on_path = shutil.which("go", path=environ.get("PATH"))
    candidates = [Path(go) for go in (on_path, *GO_BESIDE_PATH) if go is not None and Path(go).is_file()]
    found = []
    for go in candidates:
        version = go_version(go, server.go, environ)
        if version is not None and version >= server.go:
            return go
        found.append(f"{go} is {'.'.join(map(str, version)) if version else 'not working'}")
    msg = f"{remedy} ({'; '.join(found) if found else 'no go on PATH'})"
    raise ServerError(msg)


def go_version(go: Path, wanted: tuple[int, int], environ: Mapping[str, str]) -> tuple[int, int] | None:
    """The version that a Go would build with.

    Asked inside a module that wants the new version: a Go that fetches newer toolchains (GOTOOLCHAIN=auto) then
    answers with the one it would fetch.
    """
    with tempfile.TemporaryDirectory() as temporary:
        module = f"module probe\n\ngo {'.'.join(map(str, wanted))}.0\n"
        (Path(temporary) / "go.mod").write_text(module, encoding="utf-8")
        try:
            answer = run([str(go), "version"], Path(temporary), environ)
        except ServerError:
            return None
    match = re.search(r"go version go(\d+)\.(\d+)", answer)
    return (int(match[1]), int(match[2])) if match else None


def go_environment(environ: Mapping[str, str], work: Path) -> dict[str, str]:
    """The environment of a build: the caller's, with what would make its result another one put right."""
    return {
        **environ,
        "CGO_ENABLED": "0",  # no C compiler needed, and the binary runs on any libc
        "GO111MODULE": "on",
        "GOWORK": "off",
        "GOBIN": str(work / "tools"),
        "GOFLAGS": f"{environ.get('GOFLAGS', '')} -buildvcs=false".strip(),
    }


def build_collector(server: Server, work: Path, go: Path, environ: Mapping[str, str]) -> Path:
    """Builds the Collector's builder, then the Collector."""
    environ = {**environ, "PATH": f"{go.parent}{os.pathsep}{environ.get('PATH', os.defpath)}"}  # the builder runs `go`
    run([str(go), "install", server.tool], work, environ)
    manifest = str(ROOT / server.manifest)
    # Strict: a part of another release than the manifest says is an error here, not a puzzle later.
    run([str(work / "tools" / "builder"), f"--config={manifest}", "--skip-strict-versioning=false"], work, environ)
    return work / "_build" / server.binary


def build_by_module(server: Server, work: Path, go: Path, environ: Mapping[str, str]) -> Path:
    """Builds Go packages by the module file that is the manifest; the checksums of all that goes in lie beside it."""
    manifest = ROOT / server.manifest
    for path in (manifest, manifest.with_name("go.sum")):
        shutil.copyfile(path, work / path.name)
    output = work / "bin"
    output.mkdir()
    packages = [server.tool, *([server.companion] if server.companion is not None else [])]
    # Readonly: a manifest that is not complete is an error here, and never another set of modules on another day.
    run([str(go), "build", "-mod=readonly", *server.flags, "-o", f"{output}{os.sep}", *packages], work, environ)
    return output / server.binary


def run(command: list[str], cwd: Path, environ: Mapping[str, str]) -> str:
    """Runs a command to its end and returns what it printed; raises `ServerError` with the last lines if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        msg = f"{command[0]} does not start: {error}"
        raise ServerError(msg) from error
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-SHOWN_LINES:])
        msg = f"`{' '.join(command)}` failed with status {done.returncode}:\n{last}"
        raise ServerError(msg)
    return done.stdout


def tell(text: str) -> None:
    """Writes a line of progress to standard error."""
    sys.stderr.write(f"{SOURCE}: {text}\n")
    sys.stderr.flush()


SERVERS: dict[str, Server] = {
    server.name: server
    for server in (
        Server(
            name="collector",
            binary="otelcol",
            tool="go.opentelemetry.io/collector/cmd/builder@v0.159.0",
            go=(1, 26),
            manifest="collector-config/builder-config.yaml",
            steps=build_collector,
        ),
        Server(
            name="prometheus",
            binary="prometheus",
            tool="github.com/prometheus/prometheus/cmd/prometheus",
            companion="github.com/prometheus/prometheus/cmd/promtool",
            go=(1, 26),
            manifest="tools/prometheus/go.mod",
            steps=build_by_module,
            # Targets are named in its configuration or in files: without the clouds' service discovery it is half as
            # large, and built in half the time.
            flags=(
                "-tags=remove_all_sd",
                "-trimpath",
                "-ldflags=-s -w -X github.com/prometheus/common/version.Version=3.14.0",
            ),
        ),
        Server(
            name="versitygw",
            binary="versitygw",
            tool="github.com/versity/versitygw/cmd/versitygw",
            go=(1, 26),
            manifest="tools/versitygw/go.mod",
            steps=build_by_module,
            flags=("-trimpath", "-ldflags=-s -w -X main.Version=v1.7.0"),
        ),
    )
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
