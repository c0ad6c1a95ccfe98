"""The doctor: tries what a run would need, from configuration to endpoint and folder, and says what is wrong with it.

It makes no run, and sends requests without data alone.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from otel_logger import readable
from otel_logger.announce import destinations, shown
from otel_logger.doctor_endpoint import EndpointCheck
from otel_logger.doctor_folder import check_folder, check_unsent
from otel_logger.doctor_network import Network
from otel_logger.doctor_scrape import check_console, check_scrape
from otel_logger.doctor_store import check_blob_store
from otel_logger.findings import Finding, fine, problem, skipped, warning
from otel_logger.launch import Launch, read_launch, with_detectors
from otel_logger.launcher import describe_process, launch_seed
from otel_logger.ranks import Ranks
from otel_logger.resource import described_by_user
from otel_logger.settings import Settings, unknown_variables
from otel_logger_exporters.blob_url import parse_blob_store
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.routes import Routes, routes_from_environ
from otel_logger_exporters.signals import Signal

__all__ = ["examine"]

T = TypeVar("T")

WRITTEN = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
"""No clock that is right is before this: otel_logger did not exist."""

SMALL_SKEW = 2.0
"""Seconds that clocks may differ by without anybody noticing: machines that are kept in time differ by less."""

LARGE_SKEW = 300.0
"""Seconds from which data is lost: Prometheus and Loki refuse what is 10 minutes in the future, and some of it comes
later than it was recorded."""


def examine(environ: Mapping[str, str], *, clock: Clock, network: Network) -> Iterator[Finding]:
    """Yield what each check finds, as it finds it."""
    configuration = _Configuration(environ)
    yield from configuration.findings()
    routes, settings, ranks = configuration.routes, configuration.settings, configuration.ranks
    if routes is not None and routes.disabled:
        yield skipped("endpoint", "nothing is sent")
        yield skipped("folder", "nothing is recorded")
        return
    if ranks is not None and settings is not None:
        yield _ranks(environ, ranks, settings)
    if routes is None:
        yield skipped("endpoint", "not tried: the variables that name it have to be understood first")
    else:
        yield from _endpoints(routes, network, clock)
        if routes.scrape is not None:
            yield from check_scrape(routes.scrape, settings, ranks, environ)
        yield from check_console(routes)
    if configuration.directory is None or settings is None:
        yield skipped("folder", "not tried: the variables that name it have to be understood first")
    else:
        yield from check_folder(configuration.directory, settings)
        if settings.blob_store is not None:
            yield check_blob_store(parse_blob_store(settings.blob_store), environ)
        yield check_unsent(configuration.directory, has_endpoint=routes is not None and bool(routes.endpoints))


class _Configuration:
    """What of the configuration can be understood, each part by itself: one error must not hide the next."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._errors: list[str] = []
        self.ranks = self._read(Ranks.from_environ)
        self.routes = self._read(routes_from_environ)
        self.settings = self._read(Settings.from_environ)
        self.directory: Path | None = None
        if self.routes is not None and not self.routes.disabled:
            self._read(described_by_user)
        # What a logger reads; it stops at the first error.
        self._launch = None if self._errors else self._read(_read_all)
        if self.settings is not None:
            try:
                self.directory = self.settings.directory.absolute()
            except OSError:
                # The working directory is gone, which the launch has told.
                pass

    def findings(self) -> Iterator[Finding]:
        """Yield what construction would raise, what it would warn of, and where data goes."""
        for message in self._errors:
            remedy = "Correct it: until then OTelLogger(...) raises this as ConfigurationError."
            yield problem("configuration", message, remedy)
        if self.routes is not None and self.routes.disabled:
            found = "OTEL_SDK_DISABLED=true: nothing is recorded, and nothing is sent"
            yield warning("configuration", found, "Unset OTEL_SDK_DISABLED to record runs.")
        if self._launch is None:
            return
        unknown = unknown_variables(self._environ)
        for note in self._launch.notes:
            remedy = "Rename it, or unset it." if note in unknown else "Unset it, or write it as it is meant."
            yield warning("configuration", note, remedy)
        if not self._launch.routes.disabled:
            yield fine("configuration", destinations(self._launch.routes, shown(self._launch.directory)))

    def _read(self, reader: Callable[[Mapping[str, str]], T]) -> T | None:
        try:
            return reader(self._environ)
        except ConfigurationError as error:
            self._errors.append(str(error))
            return None


def _read_all(environ: Mapping[str, str]) -> Launch:
    return with_detectors(read_launch(environ, None), environ)


def _ranks(environ: Mapping[str, str], ranks: Ranks, settings: Settings) -> Finding:
    if ranks.rank >= ranks.world_size:
        return warning(
            "ranks",
            f"RANK is {ranks.rank}, but WORLD_SIZE says that there {_are(ranks.world_size)}",
            "Set both as the launcher would, or neither.",
        )
    seed = launch_seed(environ, ranks, describe_process(os.getppid()))
    if ranks.world_size > 1 and seed is None and settings.run_id is None:
        return warning(
            "ranks",
            f"rank {ranks.rank} of {ranks.world_size}, but nothing tells this launch from others of the same run name",
            "Set OTEL_LOGGER_RUN_ID to one value for all ranks.",
        )
    if ranks.world_size == 1:
        return fine("ranks", "one process")
    place = f"rank {ranks.rank} of {ranks.world_size}, local rank {ranks.local_rank}, node {ranks.node_rank}"
    which = settings.ranks
    return fine("ranks", place if ranks.sends(which) else f"{place}; sends no metrics (OTEL_LOGGER_RANKS={which})")


def _are(count: int) -> str:
    return f"are {count} processes" if count > 1 else "is one process"


def _endpoints(routes: Routes, network: Network, clock: Clock) -> Iterator[Finding]:
    check = EndpointCheck(network)
    is_printed = any(routes.of(signal).is_printed for signal in Signal)
    if routes.endpoints:
        yield from check.run(routes.endpoints)
    else:
        yield skipped(
            "endpoint",
            "none to try: nothing is sent by OTLP" if is_printed else "none to try: runs stay on this machine",
            "Set OTEL_EXPORTER_OTLP_ENDPOINT to send them, such as http://localhost:4318.",
        )
    yield _clock(check, clock)


def _clock(check: EndpointCheck, clock: Clock) -> Finding:
    now = clock.time_ns() / 1e9
    remedy = "Set this machine's clock by NTP (chrony, systemd-timesyncd)."
    if now < WRITTEN:
        return problem("clock", f"it is not {readable.moment(clock.time_ns())}: backends refuse data so old", remedy)
    if check.ahead is None:
        return skipped("clock", "not compared: only an HTTP server tells its time")
    skew = abs(check.ahead)
    if skew < SMALL_SKEW:
        return fine("clock", f"agrees with that of {check.teller}")
    way = "ahead of" if check.ahead > 0 else "behind"
    found = f"{readable.duration(round(skew * 1e9))} {way} that of {check.teller}"
    if skew < LARGE_SKEW:
        return warning("clock", f"{found}: curves of several machines do not line up", remedy)
    return problem("clock", f"{found}: Prometheus and Loki refuse data from the future, and old data", remedy)
