"""A double of S3 in this process, for tests without a network: buckets that are made as they are asked for."""

import logging
import urllib.request

__all__ = ["MotoServer"]


class MotoServer:
    """A server of S3 on a free port of this machine; takes any keys."""

    def __init__(self) -> None:
        # It loads for two seconds, which only those have to pay who start one.
        from moto.server import ThreadedMotoServer

        # It tells each request at INFO, on standard error.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which a client finds it."""
        return {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }

    def make_bucket(self, name: str) -> None:
        """Make a bucket that is not there yet."""
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT")):
            pass

    def headers(self, path: str) -> dict[str, str]:
        """The headers of `<bucket>/<key>`, names in small letters."""
        # The server looks who asks, not whether it is true.
        known = {"Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/{path}", headers=known, method="HEAD")
        ) as answer:
            return {name.lower(): value for name, value in answer.headers.items()}

    def close(self) -> None:
        """Stop it; what it holds is gone."""
        self._server.stop()
