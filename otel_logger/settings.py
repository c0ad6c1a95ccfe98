"""Settings of our own, the `OTEL_LOGGER_*` variables; those of OpenTelemetry are read by `otel_logger_exporters`."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from otel_logger.table_formats import PARQUET, TABLE_FORMATS, require_parquet
from otel_logger_exporters.blob_url import parse_blob_store
from otel_logger_exporters.envvars import read_choice, read_int, read_list, read_path, read_text
from otel_logger_exporters.errors import ConfigurationError

__all__ = ["VARIABLES", "Settings", "own_parent", "unknown_variables", "variable"]

PREFIX = "OTEL_LOGGER_"

CHOICES = {
    "ranks": ("zero", "node", "all"),
    "durability": ("call", "interval"),
    "trace_events": ("span", "log", "both"),
    "step_series": ("metric", "off"),
    "time_resolution": ("ms", "ns"),
    "signals": ("on", "off"),
    "program_logs": ("off", "debug", "info", "warning", "error"),
    "image_format": ("png", "webp"),
    "table_format": TABLE_FORMATS,
}

NUMBERS = {
    "flush_interval": ("ms", 10, 3_600_000),
    "shutdown_timeout": ("ms", 0, 3_600_000),
    "batch_spans": ("spans per second", 0, 1_000_000),
    "journal_max_bytes": ("bytes", 2**20, 2**62),
    "min_free_bytes": ("bytes", 0, 2**62),
    "stage_max_bytes": ("bytes", 2**20, 2**62),
    "heartbeat_interval": ("ms", 100, 3_600_000),
    "scrape_linger": ("ms", 0, 3_600_000),
}
"""For each number its unit, its least and its greatest value."""

FILES = ("scrape_certificate", "scrape_key", "scrape_client_ca")

TEXTS = ("run_id", "run_name", "parent_run_id", "blob_store", "blob_url", *FILES, "scrape_auth")

SECRETS = ("scrape_auth",)
"""Settings whose value is never shown."""

PATTERNS = ("metrics_exclude", "redact", "redact_allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How otel_logger behaves; each field is also the environment variable `OTEL_LOGGER_<FIELD>` (`dir` for directory).

    directory: folder of runs, created for its owner alone.
    run_id, run_name: identity, where the arguments of `OTelLogger` do not give it.
    parent_run_id: id of the run that this one, a new one, is a fork of.
    ranks: who sends metrics, hyperparameters, traces, images and tables: rank `zero`, one per `node`, `all`. Files,
        start and end, liveness and program logs are sent by every rank.
    durability: `call` gives what is recorded to the operating system in the call, so that a killed process does not
        lose it, where the folder is on a file system that allows it without a wait or a risk (ext4, XFS, tmpfs);
        elsewhere, and with `interval`, it is written every 200 ms.
    flush_interval: milliseconds after which recorded data is sent.
    heartbeat_interval: milliseconds between records of the run's liveness: state, position, time by phase.
    shutdown_timeout: milliseconds that `close` takes at most.
    journal_max_bytes: bytes of telemetry that wait for an endpoint at most, for each process; near it less and less is
        taken: batch spans and program logs are given up first, then other spans, metrics of ranks but zero, metrics,
        and events last.
        What is kept without an endpoint has no bound.
    min_free_bytes: bytes of the file system that are left free; None is the smaller of 1 GiB and 5 % of it.
    stage_max_bytes: bytes of images, tables and files that wait on disk for the blob store at most, for each process;
        what comes beyond is lost, counted, and told by a record.
    blob_store: URL of the store of images, tables and files, such as `s3://bucket/prefix`; None is `blobs` in the run's
        folder.
    blob_url: template of a browsable URL, in which `{name}` is the object's path in the store.
    image_format: how images are stored, without loss: `png`, or `webp`, which is smaller for pictures in colour.
    table_format: how tables are stored: `jsonl`, JSON lines compressed with gzip, or `parquet`, which needs pyarrow.
    trace_events: what `log_traces` makes: events of the current `span`, `log` records, or `both`.
    batch_spans: batches per second that have spans, with the loading of their data and their passes; what is traced
        in one that has none becomes a log record.
    step_series: `metric` sends the step of each point as a companion point, `off` does not.
    time_resolution: `ms` gives each call a millisecond of its own, as Prometheus needs; `ns` for backends that keep ns.
    metrics_exclude: glob patterns of keys that are not recorded, but counted.
    redact, redact_allow: glob patterns of keys whose strings are redacted besides the rules, and of those never so.
    program_logs: the least level of what the program says by `logging` and `warnings` that becomes a log record, on
        every rank: `debug`, `info`, `warning`, `error`, or `off`; see `otel_logger.log_hooks`.
    signals: whether SIGTERM is noted for the end of the run, `on` or `off`; see `otel_logger.termination`.
    scrape_certificate, scrape_key: PEM files by which the scrape endpoint speaks TLS; without them it speaks none.
    scrape_client_ca: PEM file of the authorities whose clients may scrape; without it any client may.
    scrape_auth: `user:password` that scraping takes, by HTTP's basic authentication; never shown.
    scrape_linger: milliseconds for which `close` waits, when all else is done, for a scrape of the last values.
    """

    directory: Path = Path("otel_logs")
    run_id: str | None = None
    run_name: str | None = None
    parent_run_id: str | None = None
    ranks: str = "zero"
    durability: str = "call"
    flush_interval: int = 1000
    heartbeat_interval: int = 15_000
    shutdown_timeout: int = 10_000
    journal_max_bytes: int = 2**30
    min_free_bytes: int | None = None
    stage_max_bytes: int = 64 * 2**30
    blob_store: str | None = None
    blob_url: str | None = None
    image_format: str = "png"
    table_format: str = "jsonl"
    trace_events: str = "span"
    batch_spans: int = 1
    step_series: str = "metric"
    time_resolution: str = "ms"
    metrics_exclude: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    redact_allow: tuple[str, ...] = ()
    program_logs: str = "off"
    signals: str = "on"
    scrape_certificate: str | None = None
    scrape_key: str | None = None
    scrape_client_ca: str | None = None
    scrape_auth: str | None = dataclasses.field(default=None, repr=False)
    scrape_linger: int = 0

    def __post_init__(self) -> None:
        """Refuse values that no variable could have given."""
        for field, choices in CHOICES.items():
            if getattr(self, field) not in choices:
                msg = f"Settings({field}={getattr(self, field)!r}): give {' or '.join(choices)}"
                raise ConfigurationError(msg)
        if not isinstance(self.directory, Path):
            msg = f"Settings(directory={self.directory!r}): give a pathlib.Path"
            raise ConfigurationError(msg)
        for field in TEXTS:
            value = getattr(self, field)
            if value is not None and not isinstance(value, str):
                shown = type(value).__name__ if field in SECRETS else repr(value)
                msg = f"Settings({field}={shown}): give a str or None"
                raise ConfigurationError(msg)
        if self.parent_run_id and self.parent_run_id == self.run_id:
            raise ConfigurationError(own_parent(self.run_id))
        for field in PATTERNS:
            value = getattr(self, field)
            # A str is a sequence too: of its characters, and "*" among them matches everything.
            if not isinstance(value, tuple) or not all(isinstance(pattern, str) for pattern in value):
                msg = f"Settings({field}={value!r}): give a tuple of patterns, each a str"
                raise ConfigurationError(msg)
        defaults = {field.name: field.default for field in fields(self)}
        for field, (unit, least, greatest) in NUMBERS.items():
            value = getattr(self, field)
            if value is None and defaults[field] is None:
                continue
            if type(value) is not int or not least <= value <= greatest:
                msg = f"Settings({field}={value!r}): give a whole number of {unit} from {least} to {greatest}"
                raise ConfigurationError(msg)
        if self.table_format == PARQUET:
            require_parquet(f"{variable('table_format')}={PARQUET!r}")
        if self.blob_store is not None:
            parse_blob_store(self.blob_store)
        if self.blob_url is not None and not ("://" in self.blob_url and "{name}" in self.blob_url):
            msg = (
                f"{variable('blob_url')}={self.blob_url!r} is no template of a URL: write all of it, with {{name}} for "
                "the path in the store, such as https://files.example.com/{name}"
            )
            raise ConfigurationError(msg)
        if self.scrape_auth is not None and not all(self.scrape_auth.partition(":")):
            msg = f"{variable('scrape_auth')} is not understood, its value is not shown: give user:password"
            raise ConfigurationError(msg)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Return the settings that `OTEL_LOGGER_*` variables give; ConfigurationError names the one that is wrong."""
        values: dict[str, object] = {}
        defaults = {field.name: field.default for field in fields(cls)}
        for field, choices in CHOICES.items():
            values[field] = read_choice(environ, variable(field), defaults[field], choices)
        for field, (unit, least, greatest) in NUMBERS.items():
            values[field] = read_int(
                environ, variable(field), defaults[field], unit=unit, minimum=least, maximum=greatest
            )
        for field in PATTERNS:
            values[field] = read_list(environ, variable(field), ())
        for field in TEXTS:
            values[field] = read_text(environ, variable(field), None)
        for field in FILES:
            path: Path | None = read_path(environ, variable(field), None)
            values[field] = str(path) if path is not None else None
        values["directory"] = read_path(environ, variable("directory"), defaults["directory"])
        return cls(**values)  # type: ignore[arg-type]


def own_parent(run_id: str) -> str:
    """Return what to tell who has given one id to a run and its parent."""
    return (
        f"OTEL_LOGGER_PARENT_RUN_ID={run_id!r} is the run's own id: a fork is a new run. Give it another id (run_id, "
        "OTEL_LOGGER_RUN_ID) or none, or unset OTEL_LOGGER_PARENT_RUN_ID to go on with that run."
    )


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + ("DIR" if field == "directory" else field.upper())


VARIABLES: tuple[str, ...] = tuple(variable(field.name) for field in fields(Settings))
"""The names of all variables of our own."""


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each `OTEL_LOGGER_*` variable that is none of ours, with the nearest that is.

    They are no errors: other programs use the prefix too.
    """
    sentences = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in VARIABLES:
            near = difflib.get_close_matches(name, VARIABLES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(VARIABLES)}."
            sentences.append(f"{name} is not a setting of otel_logger and has no effect; {hint}")
    return sentences
