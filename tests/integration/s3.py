"""A real S3 server on a free loopback port, which keeps one bucket in a folder: to be stopped, killed, started again.

with S3Server(tmp_path / "s3") as server:
    store = open_blob_store(server.url, server.environ)
    server.kill()
    server.start()  # on the same port, with what was stored
"""

from __future__ import annotations

import http.client
import os
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from collector import HOST, find_binary, free_ports
from small_disk import SmallDisk

__all__ = ["ACCESS_KEY", "BUCKET", "REGION", "SECRET_KEY", "S3Server", "S3ServerError", "s3_environ"]

BUCKET = "blobs"
REGION = "us-east-1"
ACCESS_KEY = "testing-access"
SECRET_KEY = "testing-secret-never-shown"

# It is up in well under a second; the rest is for a machine that is busy with other tests.
START_SECONDS = 15.0
# It waits for 10 s itself for connections that nobody ends.
STOP_SECONDS = 20.0
POLL_SECONDS = 0.02
PORT_ATTEMPTS = 3

# The server's own folder in each bucket, in which parts of multipart uploads wait.
WORKSHOP = ".sgwtmp"


class S3ServerError(Exception):
    """The server is not built, did not start or did not stop as it should; the message says why."""


def s3_environ(port: int) -> dict[str, str]:
    """The environment by which AWS's own tools, and ours, reach a server on a port of the loopback address."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
    }


class S3Server:
    """One versitygw process with the bucket `BUCKET`, running while it is entered.

    Stopping or killing it and starting it again keeps the port and what is stored: an outage, seen from who stores.
    What is stored lies as it is in the folder `bucket`, objects under their keys.

    By itself this server is not exact about conditional puts: of several at one moment more than one is told that it
    was the first. Real S3 is exact, so requests are carried out one at a time unless `side_by_side` is asked for.
    It keeps metadata in attributes of files, of which ext4 has room for uploads of some 500 parts; with `sidecars` in
    files of their own, which may be lost when it is killed. With a `disk` objects lie there, and the server is full
    when that is. `options` are put into the server's command.
    """

    def __init__(
        self,
        folder: Path,
        binary: Path | None = None,
        *,
        side_by_side: bool = False,
        sidecars: bool = False,
        disk: SmallDisk | None = None,
        options: Sequence[str] = (),
    ) -> None:
        if binary is None:
            binary, reason = find_binary("versitygw")
            if binary is None:
                raise S3ServerError(reason)
        self._inside, outside = (folder, folder) if disk is None else (disk.inside, disk.outside)
        self.bucket = outside / "objects" / BUCKET
        self._wants_sidecars = sidecars
        self._sidecars = outside / "metadata"
        prefix = disk.prefix if disk is not None else []
        self._command = [*prefix, str(binary), "--quiet", "--health", "/health", *options]
        self._backend = ["posix", *([] if side_by_side else ["--concurrency", "1"])]
        self._log = folder / "s3.log"
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The bucket as a blob store's URL."""
        return f"s3://{BUCKET}"

    @property
    def environ(self) -> dict[str, str]:
        """What the environment has to say for the URL to be understood, with the right to everything."""
        return s3_environ(self._port)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: the same after each start."""
        return HOST, self._port

    @property
    def keys(self) -> set[str]:
        """The keys of all objects, as the folder tells them, also while it is down."""
        found = (path.relative_to(self.bucket) for path in self.bucket.rglob("*") if path.is_file())
        return {key.as_posix() for key in found if key.parts[0] != WORKSHOP}

    @property
    def parts(self) -> list[Path]:
        """The files of multipart uploads that are neither completed nor aborted."""
        return [path for path in (self.bucket / WORKSHOP).rglob("*") if path.is_file()]

    @property
    def pid(self) -> int:
        """The process, for a test to stop and continue; it is another after each start."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts the process and returns when it answers; on the port of the last start, if any."""
        assert self._process is None, "it runs already"
        # A folder in the server's folder is a bucket.
        self.bucket.mkdir(parents=True, exist_ok=True)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        if self._wants_sidecars or not self._keeps_attributes():
            self._sidecars.mkdir(exist_ok=True)
        keep_port = bool(self._port)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            if not keep_port:
                (self._port,) = free_ports(1)
            try:
                self._start()
            except S3ServerError as error:
                if keep_port or attempt == PORT_ATTEMPTS or "address already in use" not in str(error):
                    raise
            else:
                return

    def stop(self) -> None:
        """Stops the process, which first answers what it was asked; does nothing when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            msg = f"the S3 server did not stop within {STOP_SECONDS:.0f} s"
            raise S3ServerError(msg) from None

    def kill(self) -> None:
        """Kills the process amid whatever it does (SIGKILL)."""
        process, self._process = self._process, None
        assert process is not None, "it is not running"
        process.kill()
        process.wait()

    def _start(self) -> None:
        environ = {"PATH": os.defpath, "ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY}
        command = [
            *self._command,
            *("--region", REGION, "--port", f"{HOST}:{self._port}"),
            *self._backend,
            *(["--sidecar", str(self._inside / "metadata")] if self._sidecars.is_dir() else []),
            str(self._inside / "objects"),
        ]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            try:
                process.wait(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                process.kill()
                process.wait()
            last = self._log.read_text("utf-8", errors="replace").splitlines()[-20:]
            msg = "\n".join(["the S3 server did not start; the end of its log:", *last])
            raise S3ServerError(msg)
        self._process = process

    def _keeps_attributes(self) -> bool:
        """Whether the file system has the attributes in which the server keeps metadata; older tmpfs has none."""
        try:
            os.setxattr(self.bucket, "user.probe", b"1")
            os.removexattr(self.bucket, "user.probe")
        except OSError:
            return False
        return True

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._port}/health", timeout=10) as response:
                return bool(response.status == 200)
        except (OSError, http.client.HTTPException):
            return False
