"""The check of scraping and printing: whether the endpoint can listen, who can reach it, and how safely."""

from collections.abc import Iterator, Mapping
from contextlib import closing

from otel_logger.findings import Finding, fine, problem, skipped, warning
from otel_logger.ranks import Ranks
from otel_logger.scraping import scrape_security
from otel_logger.settings import Settings, variable
from otel_logger_exporters.endpoint_urls import host_and_port
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.routes import Routes
from otel_logger_exporters.scrape_address import HOST_VARIABLE, ScrapeAddress, bind
from otel_logger_exporters.signals import Signal

__all__ = ["check_console", "check_scrape"]

CHECK = "scrape"


def check_scrape(
    address: ScrapeAddress, settings: Settings | None, ranks: Ranks | None, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield what is to be said of the endpoint of this process; it listens for a moment, and answers nothing."""
    if settings is None or ranks is None:
        yield skipped(CHECK, "not tried: the variables that say how have to be understood first")
        return
    try:
        security = scrape_security(settings)
        address = address.of_rank(ranks.local_rank)
        with closing(bind(address)) as listener:
            port: int = listener.getsockname()[1]
    except ConfigurationError as error:
        found, _, remedy = str(error).partition(": ")
        yield problem(CHECK, found, f"{remedy[:1].upper()}{remedy[1:]}.")
        return
    host = "localhost" if address.is_everywhere else address.host
    where = f"{security.scheme}://{host_and_port(host, port)}/metrics"
    if address.is_local and "KUBERNETES_SERVICE_HOST" in environ:
        yield warning(
            CHECK,
            f"in Kubernetes, and {address.describe()} can be reached from within the pod alone",
            f"Set {HOST_VARIABLE}=0.0.0.0, so that Prometheus can scrape it from outside.",
        )
    elif not address.base:
        yield warning(
            CHECK,
            "the port is any that is free, another one in each run, which Prometheus cannot know",
            "Set OTEL_EXPORTER_PROMETHEUS_PORT, or leave it out for 9464.",
        )
    else:
        yield fine(CHECK, f"{where} can be served{_of_ranks(address, ranks)}")
    if settings.scrape_auth is not None and security.scheme == "http" and not address.is_local:
        certificate, key = variable("scrape_certificate"), variable("scrape_key")
        found = f"user and password travel unencrypted to {host_and_port(address.host, port)}"
        yield warning(CHECK, found, f"Set {certificate} and {key} to PEM files, for TLS.")


def check_console(routes: Routes) -> Iterator[Finding]:
    """Yield what is printed, where something is."""
    if printed := [signal.value for signal in Signal if routes.of(signal).is_printed]:
        yield fine("console", f"{', '.join(printed)} are printed to standard output, one line each")


def _of_ranks(address: ScrapeAddress, ranks: Ranks) -> str:
    if ranks.local_world_size == 1:
        return ""
    return f"; the {ranks.local_world_size} ranks of a node have the ports from {address.base} on"
