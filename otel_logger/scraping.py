"""Scraping as a session has it: the endpoint that the variables and settings ask for, and what becomes of it."""

from typing import TYPE_CHECKING

from otel_logger.latest import LatestValues
from otel_logger.launch import Launch
from otel_logger.settings import Settings, variable
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.scrape_address import ScrapeAddress

if TYPE_CHECKING:
    from otel_logger_exporters.scrape_endpoint import ScrapeEndpoint
    from otel_logger_exporters.scrape_security import ScrapeSecurity

__all__ = ["latest_values", "open_scrape", "scrape_security", "scraped_at"]


def open_scrape(launch: Launch, clock: Clock, ledger: Ledger, *, is_reopening: bool) -> "ScrapeEndpoint | None":
    """Return an endpoint that listens, None where none is asked for; ConfigurationError when there can be none.

    A logger that `is_reopening` does so within a call of the training's, or in a process of its own beside that which
    has the port: there it costs the endpoint alone, and is told.
    """
    if (address := launch.routes.scrape) is None:
        return None
    try:
        return _endpoint(address.of_rank(launch.ranks.local_rank), launch.settings, clock, ledger)
    except (ConfigurationError, OSError) as error:
        if not is_reopening:
            raise
        ledger.warn("scrape", f"This process is not scraped: {error}")
        return None


def latest_values(settings: Settings, ledger: Ledger) -> LatestValues:
    """Return what the endpoint shows of logged metrics."""
    return LatestValues(
        with_steps=settings.step_series == "metric",
        on_forgotten=lambda count: ledger.warn(
            "scrape",
            "There are too many keys to be scraped, those that were logged longest ago are shown no more: leave out "
            f"what is made up anew each time by {variable('metrics_exclude')}, or send them by OTLP alone",
        ),
    )


def scraped_at(endpoint: "ScrapeEndpoint | None", launch: Launch) -> str | None:
    """Return where this process is scraped, and the others of this machine; None where it is not."""
    if endpoint is None or launch.ranks.local_world_size == 1:
        return endpoint.url if endpoint is not None else None
    base = launch.routes.scrape.base if launch.routes.scrape is not None else 0
    others = "the ports after it" if base else "free ports that are not told"
    return f"{endpoint.url}, further local ranks at {others}"


def scrape_security(settings: Settings) -> "ScrapeSecurity":
    """Return who may scrape; ConfigurationError for files that cannot be used."""
    from otel_logger_exporters.scrape_security import ScrapeSecurity

    return ScrapeSecurity(
        certificate=settings.scrape_certificate,
        key=settings.scrape_key,
        client_ca=settings.scrape_client_ca,
        auth=settings.scrape_auth,
        variables=(variable("scrape_certificate"), variable("scrape_key"), variable("scrape_client_ca")),
    )


def _endpoint(address: ScrapeAddress, settings: Settings, clock: Clock, ledger: Ledger) -> "ScrapeEndpoint":
    # Most loggers are not scraped, and need neither a server nor prometheus_client.
    from otel_logger_exporters.scrape_endpoint import ScrapeEndpoint

    return ScrapeEndpoint(address, scrape_security(settings), clock=clock, ledger=ledger)
