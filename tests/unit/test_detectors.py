"""Resource detectors are run as the SDK's variable names them, and cost a run a few seconds at most."""

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_logger.launch import read_launch, with_detectors
from otel_logger_exporters.detectors import detect

VARIABLE = "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"

DETECTORS = """
import threading
from opentelemetry.sdk.resources import Resource, ResourceDetector

class Cloud(ResourceDetector):
    def detect(self):
        return Resource({"cloud.region": "eu", "host.name": "vm-1", "service.instance.id": "i", "service.name": "found",
                         "telemetry.sdk.name": "theirs", "training.rank": 9, "tags": ["a", "b"]}, "https://x/1")

class Later(ResourceDetector):
    def detect(self):
        return Resource({"cloud.region": "us"}, "https://x/2")

class Hanging(ResourceDetector):
    def detect(self):
        threading.Event().wait()

class Failing(ResourceDetector):
    def detect(self):
        raise SystemExit("no metadata")

class Wrong(ResourceDetector):
    def detect(self):
        return {"a": 1}
"""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Return what sets the variable to detectors of a distribution that is installed for the test."""
    # Detectors are run once in a process, by their names.
    package = f"detectors_{uuid.uuid4().hex}"
    (tmp_path / f"{package}.py").write_text(DETECTORS)
    info = tmp_path / f"{package}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    kinds = ("Cloud", "Later", "Hanging", "Failing", "Wrong")
    points = "".join(f"{kind.lower()}-{package} = {package}:{kind}\n" for kind in kinds)
    (info / "entry_points.txt").write_text(
        f"[opentelemetry_resource_detector]\n{points}broken-{package} = {package}:Absent\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda *kinds: {
        VARIABLE: ",".join(kind if kind in ("process", "*", "otel") else f"{kind}-{package}" for kind in kinds)
    }


def test_nothing_is_detected_that_is_not_asked_for():
    """Without the variable no detector is looked for."""
    assert ({}, ()) == (detect({}).attributes, detect({}).notes)


def test_what_detectors_find_is_on_the_resource(names):
    """Host and cloud are told; of two the last one named counts; who writes, and what made the data, is not theirs."""
    found = detect(names("cloud", "later"))
    assert {
        "cloud.region": "us",
        "host.name": "vm-1",
        "service.name": "found",
        "tags": ("a", "b"),
    } == found.attributes
    assert () == found.notes


def test_the_users_own_attributes_win(names):
    """A service's name is the detector's where the user gave none."""
    environ = names("cloud")
    assert "found" == with_detectors(read_launch(environ, None), environ).user_resource["service.name"]
    environ |= {"OTEL_SERVICE_NAME": "mine"}
    assert "mine" == with_detectors(read_launch(environ, None), environ).user_resource["service.name"]


def test_one_that_hangs_is_left_out(names):
    """A metadata server that does not answer costs the time given once, and is told."""
    environ = names("hanging", "cloud")
    found = detect(environ, timeout=0.05)
    assert "eu" == found.attributes["cloud.region"]
    (note,) = found.notes
    assert note.endswith(" took too long, and is left out")
    assert note.startswith(f"{VARIABLE}: hanging-")
    assert found is detect(environ, timeout=1e9)


def test_what_fails_is_told_and_costs_nothing_else(names):
    """A detector that raises, exits, returns nonsense or cannot be loaded; and one that is not installed."""
    found = detect(names("failing", "wrong", "broken", "absent", "later"), timeout=10)
    assert {"cloud.region": "us"} == found.attributes
    absent, failing, wrong, broken = found.notes
    assert " fails: SystemExit('no metadata'), and is left out" in failing
    assert " returns no Resource, but dict, and is left out" in wrong
    assert " fails: AttributeError(" in broken
    assert "there is no detector 'absent-" in absent
    assert "host, os, process" in absent or "process" in absent


def test_the_sdks_detector_of_processes(names):
    """It comes with the SDK; `otel` stands for variables that are read anyway."""
    found = detect(names("otel", "process"))
    assert {"process.pid", "process.runtime.name"} <= set(found.attributes)
    assert "service.name" not in found.attributes


def test_a_star_is_all_that_are_installed(names):
    """Each is tried, whatever becomes of the others."""
    found = detect(names("*"), timeout=0.2)
    assert "eu" in found.attributes["cloud.region"] or "us" in found.attributes["cloud.region"]
    assert "os.type" in found.attributes


def test_no_import_of_ours_runs_a_detector(names, tmp_path: Path):
    """One that hangs would hang `import`: the SDK makes a resource when its logs are imported."""
    program = "import sys; from otel_logger import OTelLogger; print('opentelemetry.sdk._logs' in sys.modules)"
    environ = {**names("hanging"), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=30)
    assert "False" == done.stdout.strip(), done.stderr
