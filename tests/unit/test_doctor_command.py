"""What the doctor says of configuration, ranks and clock, and how the command prints it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_logger.cli import app
from otel_logger.doctor import examine
from otel_logger.doctor_command import folded
from otel_logger.doctor_network import Attempt, Network
from otel_logger.findings import OK, PROBLEM, SKIPPED, WARNING, Finding
from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.endpoints import Endpoint

URL = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host:4318"}


class AcceptingNetwork(Network):
    """Accepts everything; `ahead` is by how much our clock is ahead of the server's."""

    def __init__(self, ahead: float | None = 0.0) -> None:
        super().__init__(5, SystemClock())
        self._ahead = ahead

    def send(self, endpoint: Endpoint) -> Attempt:
        """Answer, and send nothing."""
        return Attempt(Answer(Verdict.ACCEPTED, "200"), 0.01, self._ahead)


class StoppedClock(SystemClock):
    """Stands at a time (s)."""

    def __init__(self, time: float) -> None:
        self.time_ns = lambda: int(time * 1e9)


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[..., list[Finding]]:
    """Return the doctor in a folder of the test's own."""

    def run(environ: dict[str, str], ahead: float | None = 0.0, clock: Any = None) -> list[Finding]:
        surroundings = {"OTEL_LOGGER_DIR": str(tmp_path / "logs"), **environ}
        return list(examine(surroundings, clock=clock or SystemClock(), network=AcceptingNetwork(ahead)))

    return run


def of(findings: list[Finding], check: str) -> list[Finding]:
    """Return the findings of a check."""
    return [finding for finding in findings if finding.check == check]


def test_everything_is_looked_at_and_nothing_is_left_behind(doctor: Any, tmp_path: Path) -> None:
    """Each check has its line, in the order of a run's way; no run is made."""
    found = doctor({**URL, "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a", "OTEL_LOGGER_BLOB_STORE": f"file://{tmp_path}"})

    assert [
        *("configuration", "ranks", "endpoint", "credentials", "clock"),
        *("folder", "durability", "space", "blob store", "unsent"),
    ] == [finding.check for finding in found]
    assert {OK, WARNING} >= {finding.verdict for finding in found if finding.check in {"durability", "space"}}
    assert {OK} == {finding.verdict for finding in found if finding.check not in {"durability", "space"}}
    assert [] == list(tmp_path.iterdir())


def test_without_an_endpoint_nothing_is_wrong(doctor: Any, tmp_path: Path) -> None:
    """Runs are kept; what would send them is told."""
    found = doctor({})

    assert (
        f"metrics, logs, traces kept in {tmp_path / 'logs'} (no OTEL_EXPORTER_OTLP_ENDPOINT is set)"
        == of(found, "configuration")[0].found
    )
    (endpoint,) = of(found, "endpoint")
    assert (SKIPPED, "none to try: runs stay on this machine") == (endpoint.verdict, endpoint.found)
    assert "Set OTEL_EXPORTER_OTLP_ENDPOINT" in (endpoint.remedy or "")


def test_every_error_of_the_configuration_is_told_not_only_the_first(doctor: Any) -> None:
    """A logger stops at the first error; who mends them wants all. What is not affected is looked at all the same."""
    found = doctor({"OTEL_METRICS_EXPORTER": "zipkin", "RANK": "x", "OTEL_RESOURCE_ATTRIBUTES": "oops"})

    errors = of(found, "configuration")
    assert [PROBLEM, PROBLEM] == [finding.verdict for finding in errors]
    assert ["RANK='x'", "OTEL_METRICS_EXPORTER='zipkin'"] == [finding.found.split()[0] for finding in errors]
    assert "OTelLogger(...) raises this as ConfigurationError" in (errors[0].remedy or "")
    assert [SKIPPED] == [finding.verdict for finding in of(found, "endpoint")]
    assert [OK] == [finding.verdict for finding in of(found, "folder")]


def test_an_error_that_only_construction_finds_is_told(doctor: Any) -> None:
    """Whatever a logger reads besides is read too."""
    (error, *_) = doctor({"OTEL_RESOURCE_ATTRIBUTES": "oops"})

    assert (PROBLEM, True) == (error.verdict, error.found.startswith("OTEL_RESOURCE_ATTRIBUTES: entry 1, 'oops'"))


def test_settings_that_cannot_be_read_leave_the_endpoint_to_be_tried(doctor: Any) -> None:
    """The folder is not known then, the endpoint is."""
    found = doctor({**URL, "OTEL_LOGGER_DURABILITY": "always"})

    assert (SKIPPED, OK) == (of(found, "folder")[0].verdict, of(found, "endpoint")[0].verdict)


def test_what_a_logger_would_warn_of_is_a_warning(doctor: Any) -> None:
    """Unknown names and values that are read otherwise than written."""
    found = doctor({**URL, "OTEL_LOGGER_DIRR": "x", "OTEL_EXPORTER_OTLP_TIMEOUT": "10"})
    notes = of(found, "configuration")

    assert [WARNING, WARNING, OK] == [finding.verdict for finding in notes]
    remedies = {finding.found.split("=")[0].split()[0]: finding.remedy for finding in notes[:2]}
    assert "Rename it, or unset it." == remedies["OTEL_LOGGER_DIRR"]
    assert "Unset it, or write it as it is meant." == remedies["OTEL_EXPORTER_OTLP_TIMEOUT"]


def test_a_switch_that_turns_everything_off_is_told_and_nothing_else_is_tried(doctor: Any) -> None:
    """OTEL_SDK_DISABLED is the answer to "where is my run"."""
    found = doctor({**URL, "OTEL_SDK_DISABLED": "true", "OTEL_RESOURCE_ATTRIBUTES": "oops"})

    assert [("configuration", WARNING), ("endpoint", SKIPPED), ("folder", SKIPPED)] == [
        (finding.check, finding.verdict) for finding in found
    ]
    assert "Unset OTEL_SDK_DISABLED to record runs." == found[0].remedy


@pytest.mark.parametrize(
    ("environ", "verdict", "found"),
    [
        ({}, OK, "one process"),
        (
            {"RANK": "3", "LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"},
            OK,
            "rank 3 of 4, local rank 1, node 1; sends no metrics (OTEL_LOGGER_RANKS=zero)",
        ),
        ({"RANK": "0", "WORLD_SIZE": "4", "OTEL_LOGGER_RUN_ID": "x"}, OK, "rank 0 of 4, local rank 0, node 0"),
        (
            {"RANK": "0", "WORLD_SIZE": "4"},
            WARNING,
            "rank 0 of 4, but nothing tells this launch from others of the same run name",
        ),
        ({"RANK": "2"}, WARNING, "RANK is 2, but WORLD_SIZE says that there is one process"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, WARNING, "RANK is 4, but WORLD_SIZE says that there are 4 processes"),
        (
            {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NTASKS": "8"},
            OK,
            "rank 3 of 8, local rank 3, node 0; sends no metrics (OTEL_LOGGER_RANKS=zero)",
        ),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8"}, OK, "one process"),
    ],
)
def test_the_place_among_the_ranks_is_one_line(doctor: Any, environ: dict[str, str], verdict: str, found: str) -> None:
    """What the launcher says, and where it says too little for ranks to know each other."""
    (finding,) = of(doctor(environ), "ranks")

    assert (verdict, found) == (finding.verdict, finding.found)


@pytest.mark.parametrize(
    ("ahead", "verdict", "found"),
    [
        (1.9, OK, "agrees with that of host:4318"),
        (42.0, WARNING, "42.0s ahead of that of host:4318: curves of several machines do not line up"),
        (-42.0, WARNING, "42.0s behind that of host:4318: curves of several machines do not line up"),
        (3600.0, PROBLEM, "1h 00m ahead of that of host:4318: Prometheus and Loki refuse data from the future"),
        (None, SKIPPED, "not compared: only an HTTP server tells its time"),
    ],
)
def test_the_clock_is_compared_with_the_servers(doctor: Any, ahead: float | None, verdict: str, found: str) -> None:
    """A small difference is a nuisance, a large one loses data."""
    (finding,) = of(doctor(URL, ahead), "clock")

    assert (verdict, True) == (finding.verdict, finding.found.startswith(found))
    assert (verdict in {WARNING, PROBLEM}) == ("NTP" in (finding.remedy or ""))


def test_a_clock_before_this_program_was_written_is_wrong(doctor: Any) -> None:
    """Machines that have lost their battery begin in 1970, and no server is needed to see it."""
    (finding,) = of(doctor({}, clock=StoppedClock(1000.0)), "clock")

    assert (PROBLEM, True) == (finding.verdict, finding.found.startswith("it is not 1970-01-01"))


def run(tmp_path: Path, *arguments: str, **environ: str) -> Any:
    """Return what the command did."""
    return CliRunner().invoke(app, ["doctor", *arguments], env={"OTEL_LOGGER_DIR": str(tmp_path / "logs"), **environ})


def test_json_is_one_object_for_each_check(tmp_path: Path) -> None:
    """A program reads verdicts and remedies by their names, and the exit code says whether all is well."""
    result = run(tmp_path, "--json")

    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert 0 == result.exit_code
    assert {("check", "verdict", "found", "remedy")} == {tuple(finding) for finding in found}
    assert "configuration" == found[0]["check"]


def test_a_problem_is_exit_code_1_and_misuse_2(tmp_path: Path) -> None:
    """A configuration that raises is what the doctor is there to tell: no misuse of the doctor."""
    codes = [run(tmp_path).exit_code, run(tmp_path, OTEL_TRACES_EXPORTER="jaeger").exit_code]

    assert [0, 1, 2] == [*codes, run(tmp_path, "--timeout", "0").exit_code]


def test_people_read_lines_with_the_remedy_below(tmp_path: Path) -> None:
    """Verdict, check and sentence stand in columns; piped, a sentence is one line, whatever its length."""
    result = run(tmp_path, OTEL_TRACES_EXPORTER="jaeger", COLUMNS="80")
    lines = result.stdout.splitlines()

    assert lines[0].startswith("problem  configuration  OTEL_TRACES_EXPORTER='jaeger' is not supported: give otlp")
    assert f"{'':24}Correct it: until then OTelLogger(...) raises this as ConfigurationError." == lines[1]
    assert "ok       ranks          one process" == lines[2]
    assert ["", "1 problem"] == lines[-2:]


def test_in_a_terminal_sentences_are_folded_between_words() -> None:
    """Paths and variables stay whole, so that they can be copied."""
    text = f"see {'/a-long-folder' * 5} and OTEL_EXPORTER_OTLP_ENDPOINT there"

    assert ["see", "/a-long-folder" * 5, "and OTEL_EXPORTER_OTLP_ENDPOINT", "there"] == [
        line.strip() for line in folded(text, 60).splitlines()
    ]
    assert text == folded(text, None)


def test_escapes_do_not_reach_the_terminal() -> None:
    """A server's words may hold anything."""
    assert "\\x1b[31mred" == folded("\x1b[31mred", None)


def test_scraping_and_printing_are_looked_at_where_they_are_asked_for(doctor: Any) -> None:
    """Otherwise there is nothing to say."""
    environ = {
        "OTEL_METRICS_EXPORTER": "prometheus",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "OTEL_LOGS_EXPORTER": "console",
    }
    found = doctor({**environ, "OTEL_EXPORTER_PROMETHEUS_PORT": "0"})

    assert [WARNING] == [finding.verdict for finding in of(found, "scrape")]
    assert ["logs are printed to standard output, one line each"] == [f.found for f in of(found, "console")]
    assert [(SKIPPED, "none to try: nothing is sent by OTLP")] == [(f.verdict, f.found) for f in of(found, "endpoint")]
    assert [] == of(doctor({}), "scrape") + of(doctor({}), "console")
