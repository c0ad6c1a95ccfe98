"""OpenTelemetry's environment variables as a table: what is done with each, and for those without effect what is said.

The table is the section of docs/settings.md that tools/settings_page.py writes. Modules that read a variable of several
values take them from here, so that what is documented is what is accepted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from otel_logger_exporters.envvars import read_text
from otel_logger_exporters.errors import ConfigurationError

__all__ = [
    "EXPORTERS",
    "FOREIGN_PROPAGATORS",
    "METRICS_EXPORTERS",
    "PROPAGATORS",
    "SAMPLERS",
    "VARIABLES",
    "Treatment",
    "Variable",
    "check_variables",
]

EXPORTERS = ("otlp", "console", "none")
"""What OTEL_LOGS_EXPORTER and OTEL_TRACES_EXPORTER may name."""

METRICS_EXPORTERS = (*EXPORTERS, "prometheus")
"""What OTEL_METRICS_EXPORTER may name."""

SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
"""What OTEL_TRACES_SAMPLER may be."""

PROPAGATORS = ("tracecontext", "baggage", "none")
"""What of OTEL_PROPAGATORS is understood."""

FOREIGN_PROPAGATORS = ("b3", "b3multi", "jaeger", "xray", "ottrace")
"""What OTEL_PROPAGATORS may name, and is told to have no effect: it is set for a whole cluster, and nothing is lost."""


class Treatment(Enum):
    """What is done with a variable that is set."""

    HONOURED = "honoured"
    NOT_APPLICABLE = "not applicable"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Variable:
    """One or several variables of one kind: what is done with them, and how or why, as a clause of markdown.

    `notice` is what a user is told who sets one: of an error the whole message but the name and value, of one that is
    not applicable the rest of a sentence that begins with its name. Where a variable is commonly set for other
    programs, and leaving it out costs nothing, there is none.
    """

    names: tuple[str, ...]
    treatment: Treatment
    words: str
    notice: str | None = None


def check_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what to tell of the variables that have no effect; ConfigurationError for one that must not be set."""
    notes = []
    for variable in VARIABLES:
        for name in variable.names:
            text = read_text(environ, name, None)
            if text is None or variable.notice is None:
                continue
            if variable.treatment is Treatment.ERROR:
                msg = f"{name}={text!r} is not supported: {variable.notice}"
                raise ConfigurationError(msg)
            notes.append(f"{name} has no effect on otel_logger: {variable.notice}")
    return tuple(notes)


def _each_signal(prefix: str, suffix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_{part}{suffix}" for part in ("", "METRICS_", "LOGS_", "TRACES_"))


def _otlp(suffix: str) -> tuple[str, ...]:
    return _each_signal("OTEL_EXPORTER_OTLP", suffix)


def _quoted(values: tuple[str, ...]) -> str:
    return ", ".join(f"`{value}`" for value in values)


_CONFIG_FILE_NOTICE = (
    "otel_logger reads no configuration file, and with one every other variable would have to be ignored, which may "
    "send data elsewhere; unset it for the training, and give its settings as variables"
)
_CREDENTIALS_NOTICE = "it loads no credential provider; give credentials in OTEL_EXPORTER_OTLP_HEADERS"

_H, _N, _E = Treatment.HONOURED, Treatment.NOT_APPLICABLE, Treatment.ERROR

VARIABLES: tuple[Variable, ...] = (
    Variable(
        ("OTEL_SDK_DISABLED",),
        _H,
        "`true`: nothing is recorded, which is said in one line, and no other variable of this table is looked at; any "
        "other value does not disable, and is no error",
    ),
    Variable(
        ("OTEL_CONFIG_FILE", "OTEL_EXPERIMENTAL_CONFIG_FILE"),
        _E,
        "no configuration file is read; with one the specification has all other variables ignored, so that going on "
        "without it might send data elsewhere",
        _CONFIG_FILE_NOTICE,
    ),
    Variable(
        ("OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER", "OTEL_TRACES_EXPORTER"),
        _H,
        "a list of `otlp` (sent, to localhost where no endpoint is set), `console` (printed to standard output), for "
        "metrics `prometheus` (scraped); or `none` (not recorded), which stands alone. Unset: sent if there is an "
        "endpoint, else kept in the run's folder, where metrics are that are scraped and nothing else. Other exporters "
        "are an error",
    ),
    Variable(
        _otlp("ENDPOINT"),
        _H,
        "where data is sent; over HTTP `/v1/metrics`, `/v1/logs`, `/v1/traces` are appended to the general one, that "
        "of one signal is used as it is",
    ),
    Variable(
        _otlp("PROTOCOL"),
        _H,
        "`grpc` or `http/protobuf`; `http/json` is an error; unset it is guessed by port (4317 gRPC, 4318 HTTP), else "
        "HTTP",
    ),
    Variable(_otlp("HEADERS"), _H, "`name=value,name=value`, values percent-encoded; sent, never shown"),
    Variable(
        _otlp("TIMEOUT"),
        _H,
        "of one request, in ms (default 10000); below 500 it is read as seconds, as the Python SDK does, and said",
    ),
    Variable(
        _otlp("COMPRESSION"),
        _H,
        "`none` or `gzip`; unset it is `gzip`, but `none` to this machine itself and to a server that cannot read it",
    ),
    Variable(_otlp("INSECURE"), _H, "`true`: no TLS, for a gRPC endpoint without a scheme"),
    Variable(_otlp("CERTIFICATE"), _H, "PEM file of the authorities to trust; one that holds none is an error"),
    Variable(
        (*_otlp("CLIENT_KEY"), *_otlp("CLIENT_CERTIFICATE")),
        _H,
        "PEM files of our own key, without a password, and certificate, for mTLS; one without the other is an error",
    ),
    Variable(
        ("OTEL_EXPORTER_OTLP_SPAN_INSECURE", "OTEL_EXPORTER_OTLP_METRIC_INSECURE"),
        _N,
        "obsolete names of `OTEL_EXPORTER_OTLP_TRACES_INSECURE` and `OTEL_EXPORTER_OTLP_METRICS_INSECURE`; told",
        "it is the obsolete name of OTEL_EXPORTER_OTLP_TRACES_INSECURE or OTEL_EXPORTER_OTLP_METRICS_INSECURE",
    ),
    Variable(
        ("OTEL_METRIC_EXPORT_INTERVAL", "OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BSP_SCHEDULE_DELAY"),
        _H,
        "time between sends of metrics, log records and spans, in ms, at least 10; unset `OTEL_LOGGER_FLUSH_INTERVAL`",
    ),
    Variable(
        ("OTEL_METRIC_EXPORT_TIMEOUT", "OTEL_BLRP_EXPORT_TIMEOUT", "OTEL_BSP_EXPORT_TIMEOUT"),
        _H,
        "bound of one request beside `OTEL_EXPORTER_OTLP_TIMEOUT`, in ms, `0` for none; what it cuts off is sent again",
    ),
    Variable(
        ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"),
        _H,
        "most log records or spans of one request, 8192 where nothing or more is given; a request ends at 4 MiB anyway",
    ),
    Variable(
        ("OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_QUEUE_SIZE"),
        _N,
        "what waits is on disk, in no queue that a number of records bounds, but `OTEL_LOGGER_JOURNAL_MAX_BYTES`",
    ),
    Variable(
        ("OTEL_SERVICE_NAME",),
        _H,
        "`service.name`, also over one in `OTEL_RESOURCE_ATTRIBUTES`; default `training`",
    ),
    Variable(
        ("OTEL_RESOURCE_ATTRIBUTES",),
        _H,
        "attributes of the resource, `key=value,key=value` percent-encoded; those of the run's identity are ours; an "
        "entry that cannot be read is an error",
    ),
    Variable(
        ("OTEL_ENTITIES",),
        _N,
        "in development, and not read; told",
        "entities are not read; give their attributes in OTEL_RESOURCE_ATTRIBUTES",
    ),
    Variable(
        ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS",),
        _H,
        "detectors of the resource by the names they are installed under (`process`, `os`, `host` come with the SDK), "
        "`*` for all; once in a process, 5 s for all of them together; one that is not installed, fails or takes "
        "longer is left out, which is told; `OTEL_RESOURCE_ATTRIBUTES` wins; `service.instance.id`, `telemetry.*` and "
        "`training.*` are not theirs, and `process.pid` is on log records and spans alone",
    ),
    Variable(
        ("TRACEPARENT", "TRACESTATE"),
        _H,
        "the trace that the run's span joins; one that cannot be read starts a new trace, as W3C Trace Context has it",
    ),
    Variable(("BAGGAGE",), _N, "nothing of it is recorded: baggage becomes attributes only where a program says so"),
    Variable(
        ("OTEL_PROPAGATORS",),
        _H,
        f"without `tracecontext` in it, or with `none`, `TRACEPARENT` is not read; `baggage` has no effect; "
        f"{_quoted(FOREIGN_PROPAGATORS)} have none either, which is told; another name is an error",
    ),
    Variable(
        ("OTEL_TRACES_SAMPLER",),
        _H,
        f"{_quoted(SAMPLERS)} (default `parentbased_always_on`); another one is an error; each trace is "
        "decided by itself, with `TRACEPARENT` and a sampler that goes by parents all of them as that trace; what "
        "`log_traces` is given where the span is not sampled becomes log records, which have the ids of that span",
    ),
    Variable(
        ("OTEL_TRACES_SAMPLER_ARG",),
        _H,
        "of the samplers by ratio: a number from 0 to 1, default 1; not looked at for the others",
    ),
    Variable(
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
        _H,
        "the limits below where those are not set, and by default there is none; resources and metrics are exempt, as "
        "specified",
    ),
    Variable(
        (
            "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT",
        ),
        _H,
        "attributes kept of a span, of an event or link of one, of a log record; the first ones stay, and how many are "
        "left out is in `dropped_attributes_count`; what is no number in the first the SDK itself refuses, when it is "
        "imported",
    ),
    Variable(
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
        _H,
        "characters kept of each string, and bytes of each byte string, in attributes of a span with its events and "
        "links, and of a log record; its body is exempt",
    ),
    Variable(
        ("OTEL_SPAN_EVENT_COUNT_LIMIT",),
        _H,
        "events kept of a span; what `log_traces` is given beyond it is on further spans of the name, each linked to "
        "the one before, or below 2 in log records, so that none of it is lost",
    ),
    Variable(
        ("OTEL_SPAN_LINK_COUNT_LIMIT",),
        _H,
        "links kept of a span; an epoch has two: to the fit, and to the epoch before",
    ),
    Variable(
        ("OTEL_LOG_LEVEL",),
        _N,
        "messages go to Python's logger `otel_logger`, whose level the program sets",
    ),
    Variable(
        (
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        ),
        _N,
        "what is logged becomes gauges, which have no temporality; sums, all of our own, are cumulative; none is a "
        "histogram",
    ),
    Variable(("OTEL_METRICS_EXEMPLAR_FILTER",), _N, "every value is a point of its own; there are no exemplars"),
    Variable(
        ("OTEL_EXPORTER_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_PORT"),
        _H,
        "where a process is scraped: host `localhost`, port 9464 plus the local rank; the port `0` is a free one that "
        "the start line tells, for a process alone; one that is taken is an error at construction",
    ),
    Variable(
        ("OTEL_EXPORTER_ZIPKIN_ENDPOINT", "OTEL_EXPORTER_ZIPKIN_TIMEOUT", "OTEL_EXPORTER_ZIPKIN_PROTOCOL"),
        _N,
        "nothing is sent to Zipkin, and `OTEL_TRACES_EXPORTER=zipkin` is an error",
    ),
    Variable(
        (
            "OTEL_EXPORTER_JAEGER_PROTOCOL",
            "OTEL_EXPORTER_JAEGER_ENDPOINT",
            "OTEL_EXPORTER_JAEGER_AGENT_HOST",
            "OTEL_EXPORTER_JAEGER_AGENT_PORT",
            "OTEL_EXPORTER_JAEGER_TIMEOUT",
            "OTEL_EXPORTER_JAEGER_USER",
            "OTEL_EXPORTER_JAEGER_PASSWORD",
        ),
        _N,
        "of an exporter that OpenTelemetry has removed (Jaeger takes OTLP), and `OTEL_TRACES_EXPORTER=jaeger` is an "
        "error",
    ),
    Variable(("OTEL_SEMCONV_STABILITY_OPT_IN",), _N, "of instrumentation libraries; nothing here depends on it"),
    Variable(
        ("OTEL_PYTHON_CONTEXT",),
        _N,
        "read by the OpenTelemetry API itself, for the whole program",
    ),
    Variable(
        ("OTEL_PYTHON_ID_GENERATOR",),
        _N,
        "ids of traces and spans come from the operating system: the training's seed must not repeat them",
    ),
    Variable(
        ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER", "OTEL_PYTHON_LOGGER_PROVIDER"),
        _N,
        "of the program's global providers, which are neither set nor used",
    ),
    Variable(
        ("OTEL_PYTHON_TRACER_CONFIGURATOR", "OTEL_PYTHON_METER_CONFIGURATOR", "OTEL_PYTHON_LOGGER_CONFIGURATOR"),
        _N,
        "of the SDK's automatic configuration, which is not used",
    ),
    Variable(
        ("OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED",),
        _N,
        "of the SDK's own handler, which is not used, and sends to the program's logger provider; here what the "
        "program logs is recorded where `OTEL_LOGGER_PROGRAM_LOGS` asks for it, and twice where both are set to one "
        "endpoint",
    ),
    Variable(
        ("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED",),
        _N,
        "the SDK's metrics of itself go to the program's own meter provider; what becomes of data here is in `stats()`",
    ),
    Variable(
        ("OTEL_PYTHON_EXPORTER_OTLP_GRPC_RETRYABLE_ERROR_CODES",),
        _N,
        "which answers are tried again is fixed",
    ),
    Variable(
        (
            *_each_signal("OTEL_PYTHON_EXPORTER_OTLP_GRPC", "CREDENTIAL_PROVIDER"),
            *_each_signal("OTEL_PYTHON_EXPORTER_OTLP_HTTP", "CREDENTIAL_PROVIDER"),
        ),
        _N,
        "no plug-in for credentials is loaded, which is told; they go in `OTEL_EXPORTER_OTLP_HEADERS`",
        _CREDENTIALS_NOTICE,
    ),
)
"""Every variable of the specification and of the Python SDK; tests/data/opentelemetry_variables.txt is their list."""
