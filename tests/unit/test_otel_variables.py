"""What is said of OpenTelemetry's variables is complete, true and what the page of settings says."""

import re
import runpy
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import opentelemetry.environment_variables
import opentelemetry.sdk.environment_variables
import pytest

from otel_logger import ConfigurationError, Settings
from otel_logger.launch import read_launch
from otel_logger.settings import variable
from otel_logger_exporters.lane import MAX_RECORDS
from otel_logger_exporters.otel_variables import VARIABLES, Treatment, check_variables
from otel_logger_exporters.routes import routes_from_environ

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text("utf-8")
LIST = "tests/data/opentelemetry_variables.txt"

NAMES = [name for row in VARIABLES for name in row.names]


def of(treatment):
    """Return the names of the variables of a treatment."""
    return [name for row in VARIABLES if row.treatment is treatment for name in row.names]


def listed():
    """Return the names of the list."""
    lines = (ROOT / LIST).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_variable_of_the_list_has_its_row():
    """No variable is forgotten, invented or named twice."""
    assert sorted(listed()) == sorted(NAMES)


def test_the_list_has_every_variable_of_the_sdk_that_is_installed():
    """A release of the SDK that reads a variable more asks what we do with it."""
    modules = opentelemetry.environment_variables, opentelemetry.sdk.environment_variables
    known = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.lstrip("_").startswith("OTEL_") and isinstance(value, str)
    }
    assert len(known) > 50
    assert [] == sorted(known - set(listed())), (
        f"opentelemetry-sdk {version('opentelemetry-sdk')} reads these variables. Decide what is done with each in "
        f"exporters/otel_logger_exporters/otel_variables.py, add it to {LIST}, and run tools/settings_page.py."
    )


def test_the_page_has_the_table():
    """docs/settings.md is what tools/settings_page.py writes; run it when this fails."""
    assert runpy.run_path(str(ROOT / "tools" / "settings_page.py"))["with_table"](PAGE) == PAGE


def test_a_page_without_its_marks_is_refused():
    """The table is not written to a place that is guessed."""
    with pytest.raises(ValueError, match="has lost one of the lines"):
        runpy.run_path(str(ROOT / "tools" / "settings_page.py"))["with_table"](PAGE.replace("py: end", ""))


@pytest.mark.parametrize("row", VARIABLES, ids=lambda row: row.names[0])
def test_a_row_fits_in_a_table(row):
    """A clause, not a sentence, without what would break the table."""
    assert not set("|\n") & set(row.words)
    assert not row.words.endswith(".")


@pytest.mark.parametrize("name", of(Treatment.ERROR))
def test_a_variable_that_must_not_be_set_is_an_error(name):
    """The message names it, quotes its value and says what to do instead; empty it counts as unset."""
    with pytest.raises(ConfigurationError) as caught:
        read_launch({name: " otel.yaml "}, None)
    assert str(caught.value) == (
        f"{name}='otel.yaml' is not supported: otel_logger reads no configuration file, and with one every other "
        "variable would have to be ignored, which may send data elsewhere; unset it for the training, and give its "
        "settings as variables"
    )
    assert () == read_launch({name: " "}, None).notes


TOLD = {
    "OTEL_ENTITIES": "entities are not read; give their attributes in OTEL_RESOURCE_ATTRIBUTES",
    **dict.fromkeys(
        ("OTEL_EXPORTER_OTLP_SPAN_INSECURE", "OTEL_EXPORTER_OTLP_METRIC_INSECURE"),
        "it is the obsolete name of OTEL_EXPORTER_OTLP_TRACES_INSECURE or OTEL_EXPORTER_OTLP_METRICS_INSECURE",
    ),
    **dict.fromkeys(
        [name for name in NAMES if name.endswith("CREDENTIAL_PROVIDER")],
        "it loads no credential provider; give credentials in OTEL_EXPORTER_OTLP_HEADERS",
    ),
}


@pytest.mark.parametrize("name", of(Treatment.NOT_APPLICABLE))
def test_a_variable_that_does_not_apply_changes_nothing(name):
    """Whatever it is set to, everything is as without it; where it may be meant for us, that is told."""
    plain, launch = read_launch({}, None), read_launch({name: "nonsense"}, None)
    told = (f"{name} has no effect on otel_logger: {TOLD[name]}",) if name in TOLD else ()
    assert told == launch.notes
    assert () == read_launch({name: " "}, None).notes
    assert (routes_from_environ({}).metrics, plain.limits, plain.trace_context, plain.user_resource) == (
        launch.routes.metrics,
        launch.limits,
        launch.trace_context,
        launch.user_resource,
    )
    assert plain.sampler.get_description() == launch.sampler.get_description()


def test_several_that_do_not_apply_are_told_in_the_order_of_the_table():
    """One sentence for each, none for those that are commonly set for others."""
    notes = check_variables(
        {"OTEL_LOG_LEVEL": "debug", "OTEL_EXPORTER_OTLP_SPAN_INSECURE": "true", "OTEL_ENTITIES": "x"}
    )
    assert ["OTEL_EXPORTER_OTLP_SPAN_INSECURE", "OTEL_ENTITIES"] == [note.split()[0] for note in notes]


PROOFS = {
    "OTEL_SDK_DISABLED": ["unit/test_logger_settings.py::test_disabled_by_the_sdk_switch_nothing_is_written"],
    "OTEL_METRICS_EXPORTER": [
        "unit/test_routes.py::test_destination_is_decided_per_signal",
        "unit/test_routes.py::test_what_is_sent_goes_to_an_endpoint_or_is_printed_or_both",
    ],
    "OTEL_EXPORTER_PROMETHEUS_HOST": [
        "unit/test_scrape_address.py::test_host_and_port_are_those_of_the_variables",
        "unit/test_scrape_address.py::test_each_local_rank_has_a_port_of_its_own",
        "contracts/test_scraping.py::test_a_run_is_scraped_where_the_variables_say",
    ],
    "OTEL_EXPORTER_OTLP_ENDPOINT": [
        "unit/test_endpoints.py::test_general_endpoint_is_a_base",
        "unit/test_endpoints.py::test_own_variable_wins_everywhere",
    ],
    "OTEL_EXPORTER_OTLP_PROTOCOL": [
        "unit/test_endpoints.py::test_protocol_is_guessed_by_port",
        "unit/test_endpoints.py::test_given_protocol_beats_the_guess",
        "unit/test_endpoints.py::test_own_variable_wins_everywhere",
    ],
    "OTEL_EXPORTER_OTLP_HEADERS": ["contracts/test_sending.py::test_headers_reach_the_server_and_no_line"],
    "OTEL_EXPORTER_OTLP_TIMEOUT": [
        "unit/test_endpoints.py::test_timeout_is_in_milliseconds",
        "unit/test_endpoints.py::test_small_timeout_is_read_as_seconds_and_told",
        "contracts/test_transports.py::test_silent_server_times_out_in_time",
    ],
    "OTEL_EXPORTER_OTLP_COMPRESSION": [
        "contracts/test_transports.py::test_http_body_is_compressed_when_asked",
        "contracts/test_transports.py::test_what_is_sent_is_compressed_when_asked",
    ],
    "OTEL_EXPORTER_OTLP_INSECURE": ["unit/test_endpoints.py::test_insecure_counts_without_scheme_only"],
    "OTEL_EXPORTER_OTLP_CERTIFICATE": ["contracts/test_tls.py::test_a_server_of_an_authority_that_we_trust_is_sent_to"],
    "OTEL_EXPORTER_OTLP_CLIENT_KEY": [
        "contracts/test_tls.py::test_a_client_certificate_that_the_server_knows_is_accepted",
        "unit/test_endpoints.py::test_client_key_and_certificate_come_together",
    ],
    "OTEL_METRIC_EXPORT_INTERVAL": [
        "contracts/test_batches.py::test_a_signal_with_an_interval_of_its_own_is_sent_by_that"
    ],
    "OTEL_METRIC_EXPORT_TIMEOUT": ["unit/test_routes.py::test_a_request_takes_no_longer_than_an_export"],
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE": ["contracts/test_batches.py::test_no_request_holds_more_than_the_batch_size"],
    "OTEL_SERVICE_NAME": ["unit/test_resource.py::test_what_the_user_says"],
    "OTEL_RESOURCE_ATTRIBUTES": [
        "unit/test_resource.py::test_what_the_user_says",
        "contracts/test_sending.py::test_hyperparameters_are_on_the_resource_of_metrics_and_traces",
    ],
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": [
        "unit/test_detectors.py::test_what_detectors_find_is_on_the_resource",
        "unit/test_detectors.py::test_one_that_hangs_is_left_out",
    ],
    "TRACEPARENT": ["unit/test_spans.py::test_a_trace_that_is_given_is_joined"],
    "OTEL_PROPAGATORS": [
        "unit/test_propagators.py::test_trace_context_is_not_read_where_it_is_not_wanted",
        "unit/test_logger_otel.py::test_a_trace_that_is_handed_down_is_not_joined_without_its_propagator",
    ],
    "OTEL_TRACES_SAMPLER": [
        "unit/test_samplers.py::test_each_sampler_decides_as_specified",
        "unit/test_logger_otel.py::test_what_is_traced_where_nothing_is_sampled_becomes_log_records",
        "unit/test_logger_otel.py::test_a_sampler_decides_for_a_trace_that_is_handed_down",
    ],
    "OTEL_TRACES_SAMPLER_ARG": ["unit/test_samplers.py::test_a_ratio_is_that_of_trace_ids"],
    "OTEL_ATTRIBUTE_COUNT_LIMIT": [
        "unit/test_limits.py::test_each_limit_has_its_variable",
        "unit/test_logger_otel.py::test_limits_of_attributes_hold_for_spans_and_log_records",
    ],
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": [
        "unit/test_limits.py::test_attributes_of_a_span_are_bounded",
        "unit/test_limits.py::test_attributes_of_events_and_links_are_bounded",
        "unit/test_limits.py::test_attributes_of_log_records_are_bounded",
    ],
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": [
        "unit/test_limits.py::test_values_of_spans_are_cut",
        "unit/test_limits.py::test_values_of_log_records_are_cut_but_not_the_body",
    ],
    "OTEL_SPAN_EVENT_COUNT_LIMIT": [
        "unit/test_logger_otel.py::test_traces_beyond_the_limit_of_events_go_on_in_further_spans"
    ],
    "OTEL_SPAN_LINK_COUNT_LIMIT": ["unit/test_limits.py::test_events_and_links_are_bounded"],
}
"""For each row of what is honoured, by its first name, the tests that see it honoured."""

HONOURED = {row.names[0]: row for row in VARIABLES if row.treatment is Treatment.HONOURED}


def test_what_is_honoured_is_tested():
    """Each row of what is honoured names tests of its behaviour, and they exist."""
    assert set(HONOURED) == set(PROOFS)
    tests = [test for tests in PROOFS.values() for test in tests]
    named = [(test, *test.split("::")) for test in tests]
    assert [] == [t for t, file, name in named if f"def {name}(" not in (ROOT / "tests" / file).read_text("utf-8")]


def test_the_size_of_batches_is_the_one_that_the_table_names():
    """The table's number is the lane's."""
    assert f" {MAX_RECORDS} " in HONOURED["OTEL_BLRP_MAX_EXPORT_BATCH_SIZE"].words


OWN_ROW = re.compile(r"^\| `(OTEL_LOGGER_\w+)` \| ([^|]+) \|", re.MULTILINE)


def test_the_page_has_the_settings_of_our_own_in_their_order():
    """Each field of Settings is a row, and no row is of anything else."""
    assert [variable(field.name) for field in fields(Settings)] == [name for name, _ in OWN_ROW.findall(PAGE)]


@pytest.mark.parametrize("field", fields(Settings), ids=lambda field: field.name)
def test_the_page_has_the_defaults_of_our_own_settings(field):
    """A default in code is the field's; what is in words is found only when a run starts, or is nothing."""
    cell = dict(OWN_ROW.findall(PAGE))[variable(field.name)]
    code = re.match(r"`([^`]+)`", cell)
    if field.name == "directory":
        assert Path(code.group(1)) == field.default
    elif field.name == "blob_store":
        assert ("<run>/blobs", None) == (code.group(1), field.default)
    elif field.default in (None, ()):
        assert code is None
    else:
        assert str(field.default) == code.group(1)
