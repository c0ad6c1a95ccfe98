"""A real OpenTelemetry Collector on free loopback ports, and what it received."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import received

__all__ = [
    "AT_ONCE",
    "BASE_CONFIG",
    "HOST",
    "Collector",
    "CollectorError",
    "find_binary",
    "free_ports",
    "free_row",
    "over_tls",
    "run_servers_tool",
]

ROOT = Path(__file__).resolve().parents[2]
BASE_CONFIG = ROOT / "collector-config" / "base.yaml"

HOST = "127.0.0.1"
# It is up in well under a second; the rest is for a machine that is busy with other tests.
START_SECONDS = 15.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
# Between choosing free ports and listening on them another process may take one.
PORT_ATTEMPTS = 3

# A configuration on top of `base.yaml` with which what is acknowledged is in the files. By itself the file exporter
# collects for a second what it has acknowledged, and a Collector that is killed takes that with it; with a rotation (at
# 1 TB) it hands each request to the operating system before it answers.
AT_ONCE = (
    "yaml:exporters: {"
    + ", ".join(
        f"file/{name}: {{append: false, rotation: {{max_megabytes: 1000000}}}}"
        for name in ("metrics", "traces", "logs")
    )
    + "}"
)


def over_tls(key: Path, certificate: Path) -> str:
    """A configuration on top of `base.yaml` by which both protocols are spoken over TLS."""
    tls = f"tls: {{key_file: {key}, cert_file: {certificate}}}"
    return f"yaml:receivers: {{otlp: {{protocols: {{grpc: {{{tls}}}, http: {{{tls}}}}}}}}}"


class CollectorError(Exception):
    """The Collector did not start or did not stop as it should; the message ends with its log."""


class Collector:
    """One Collector process: started on its own ports, stopped cleanly or not, its output read back.

    Stopping or killing it and starting it again keeps the ports and the output: an outage, seen from the sender.
    `more_config` is what further `--config` options say, each on top of those before it.
    """

    def __init__(
        self, binary: Path, folder: Path, config: Path = BASE_CONFIG, *, more_config: Sequence[str] = ()
    ) -> None:
        self.output = folder / "output"
        self._command = [str(binary), *(word for each in (config, *more_config) for word in ("--config", str(each)))]
        self._log = folder / "collector.log"
        self._ports: tuple[int, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def grpc_address(self) -> tuple[str, int]:
        """Host and port of OTLP over gRPC."""
        return HOST, self._ports[0]

    @property
    def http_address(self) -> tuple[str, int]:
        """Host and port of OTLP over HTTP."""
        return HOST, self._ports[1]

    @property
    def grpc_endpoint(self) -> str:
        """The URL for OTLP over gRPC."""
        return f"http://{HOST}:{self._ports[0]}"

    @property
    def http_endpoint(self) -> str:
        """The base URL for OTLP over HTTP, to which `/v1/metrics` and the like are appended."""
        return f"http://{HOST}:{self._ports[1]}"

    def reserve_ports(self) -> None:
        """Chooses the ports now, for a sender that is to try them before the first start."""
        self._ports = self._ports or free_ports(4)

    def start(self) -> None:
        """Starts the process and returns when it is ready to receive; on the ports of the last start, if any."""
        keep_ports = bool(self._ports)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            if not keep_ports:
                self._ports = free_ports(4)
            try:
                self._start()
            except CollectorError as error:
                if keep_ports or attempt == PORT_ATTEMPTS or "address already in use" not in str(error):
                    raise
            else:
                return

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            try:
                status = self._process.wait(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                self._process.kill()
                self._process.wait()
                status = None
            self._process = None
            how = f"was not ready after {START_SECONDS:.0f} s" if status is None else f"ended with status {status}"
            raise CollectorError(self._with_log(f"the Collector {how}"))

    def stop(self) -> None:
        """Stops the process, which first writes all it has accepted; does nothing when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        # One that is paused takes notice of nothing else.
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            status = process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise CollectorError(self._with_log(f"the Collector did not stop in {STOP_SECONDS:.0f} s")) from None
        if status != 0:
            raise CollectorError(self._with_log(f"the Collector ended with status {status}"))

    def kill(self) -> None:
        """Kills the process, as a node that fails does; what it did not acknowledge is not in the output.

        What it did acknowledge is, with `AT_ONCE`.
        """
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait()
        # It answers when it has written the line end: a line without one was not acknowledged, and comes again.
        for path in self.output.glob("*.jsonl"):
            with path.open("r+b") as file:
                file.truncate(file.read().rfind(b"\n") + 1)

    def pause(self) -> None:
        """Stops the process where it is: connections stay open, and the system still accepts new ones for it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on with what has come in meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop_and_read(self) -> received.Received:
        """Stops the process and returns everything it received since its first start."""
        self.stop()
        return received.read(self.output)

    def _environment(self) -> Mapping[str, str]:
        grpc, http, health, metrics = self._ports
        # Nothing else of ours: the Collector's own telemetry obeys OTEL_* too.
        return {
            "PATH": os.defpath,
            "COLLECTOR_GRPC_ENDPOINT": f"{HOST}:{grpc}",
            "COLLECTOR_HTTP_ENDPOINT": f"{HOST}:{http}",
            "COLLECTOR_HEALTH_ENDPOINT": f"{HOST}:{health}",
            "COLLECTOR_METRICS_HOST": HOST,
            "COLLECTOR_METRICS_PORT": str(metrics),
            "COLLECTOR_OUTPUT": str(self.output),
        }

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self._ports[2], timeout=1)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _with_log(self, text: str) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"{text}; the end of its log:", *lines[-20:]])


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of the loopback address that nothing listens on now; all held at once, so that no two are the same."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return tuple(each.getsockname()[1] for each in sockets)


def free_row(count: int) -> int:
    """The first of so many ports in a row that nothing listens on, and that stay free for a while.

    They are below those that the system gives to who asks for any, as each connection does.
    """
    for first in range(20_000 + os.getpid() % 10_000, 32_768 - count):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind((HOST, port))
            except OSError:
                continue
            return first
    raise AssertionError("no port is free")


def find_binary(server: str = "collector") -> tuple[Path | None, str]:
    """The server of this name that `make servers` built, or `None` and why there is none and what cures it."""
    found = run_servers_tool("--path", server)
    return (Path(found.stdout.strip()), "") if found.returncode == 0 else (None, found.stderr.strip())


def run_servers_tool(*arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `tools/servers.py` as a command, as it is no part of any package."""
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "servers.py"), *arguments],
        env=None if environ is None else dict(environ),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
