"""A real Prometheus on a free loopback port, which scrapes what it is told to, and what its HTTP API says."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector import HOST, free_ports

__all__ = ["JOB", "Prometheus", "PrometheusError", "Sample"]

JOB = "training"
"""The job of all targets: the `job` label of everything that is scraped."""

# It is up in a second; the rest is for a machine that is busy with other tests.
START_SECONDS = 30.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.02
PORT_ATTEMPTS = 3

# What a scrape can go wrong by, and Prometheus only counts: each is a counter without which nothing was left out.
FAULTS = re.compile(
    r"^(prometheus_target_scrapes_\w+_total|prometheus_target_scrape_pool_exceeded\w+_total) ([^ ]+)$", re.MULTILINE
)


class PrometheusError(Exception):
    """Prometheus did not start, or did not understand a question; the message says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A series and its value; `labels` without the name."""

    name: str
    labels: dict[str, str]
    value: float

    @property
    def instance(self) -> str:
        """The target it was scraped from, `host:port`."""
        return self.labels["instance"]


class Prometheus:
    """A Prometheus that scrapes `ports` of the loopback address each second while it is entered.

    `access` is what the configuration of its job says besides: TLS, user and password.
    """

    def __init__(
        self, binary: Path, folder: Path, ports: Sequence[int], access: Mapping[str, Any] | None = None
    ) -> None:
        self._binary = binary
        self._folder = folder
        self._log = folder / "prometheus.log"
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        targets = [f"{HOST}:{port}" for port in ports]
        folder.mkdir(parents=True)
        # JSON is YAML.
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": targets}], **(access or {})}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), "utf-8")

    def __enter__(self) -> Prometheus:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            (self._port,) = free_ports(1)
            try:
                self._start()
            except PrometheusError as error:
                if attempt == PORT_ATTEMPTS or "address already in use" not in str(error):
                    raise
            else:
                break
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def query(self, expression: str) -> list[Sample]:
        """The series that an instant query at now returns."""
        answer = self._ask("query", query=expression)
        assert "vector" == answer["resultType"], answer
        return [
            Sample(
                name=entry["metric"].get("__name__", ""),
                labels={key: value for key, value in entry["metric"].items() if key != "__name__"},
                value=float(entry["value"][1]),
            )
            for entry in answer["result"]
        ]

    def targets(self) -> dict[str, tuple[str, str]]:
        """For each target, `host:port`, its health (`up`, `down`, `unknown`) and the error of its last scrape."""
        found = self._ask("targets")["activeTargets"]
        return {each["labels"]["instance"]: (each["health"], each["lastError"]) for each in found}

    def faults(self) -> dict[str, float]:
        """What Prometheus itself counts as wrong with what it scraped, as far as it is more than nothing."""
        counted = {name: float(value) for name, value in FAULTS.findall(self._get("/metrics"))}
        assert "prometheus_target_scrapes_sample_duplicate_timestamp_total" in counted, counted
        return {name: value for name, value in counted.items() if value}

    def complaints(self) -> list[str]:
        """The lines of its log that are warnings or errors."""
        lines = self._log.read_text("utf-8", errors="replace").splitlines()
        return [line for line in lines if re.search(r"level=(WARN|ERROR)", line, re.IGNORECASE)]

    def _start(self) -> None:
        command = [
            str(self._binary),
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={HOST}:{self._port}",
            # Otherwise it waits for five seconds before it looks at its targets.
            "--scrape.discovery-reload-interval=100ms",
        ]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                command, env={"PATH": os.defpath}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
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
            msg = "\n".join(["Prometheus did not start; the end of its log:", *last])
            raise PrometheusError(msg)
        self._process = process

    def _is_ready(self) -> bool:
        try:
            return bool(self._get("/-/ready"))
        except (OSError, http.client.HTTPException):
            return False

    def _ask(self, what: str, **parameters: str) -> Any:
        try:
            answer = json.loads(self._get(f"/api/v1/{what}?{urllib.parse.urlencode(parameters)}"))
        except urllib.error.HTTPError as error:
            msg = f"{parameters}: {error.read().decode('utf-8', 'replace')}"
            raise PrometheusError(msg) from error
        return answer["data"]

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{HOST}:{self._port}{path}", timeout=10) as response:
            text: str = response.read().decode()
        return text
