"""The wheel that users install, built and used without the sources."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the backend that pyproject.toml names."""
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    return Path(built)


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    """Users get otel_logger and otel_logger_exporters, typed, with their licence."""
    names = zipfile.ZipFile(wheel).namelist()

    tops = {name.partition("/")[0] for name in names}
    assert {"otel_logger", "otel_logger_exporters"} == {top for top in tops if not top.endswith(".dist-info")}
    assert {"otel_logger/py.typed", "otel_logger_exporters/py.typed"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_every_module_is_in_the_wheel(wheel: Path) -> None:
    """No module is left behind by the build's selection of files."""
    expected = {f"otel_logger/{path.name}" for path in (ROOT / "otel_logger").glob("*.py")}
    expected |= {
        f"otel_logger_exporters/{path.name}" for path in (ROOT / "exporters/otel_logger_exporters").glob("*.py")
    }

    assert expected == {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}


def test_the_wheel_works_without_the_sources(wheel: Path, tmp_path: Path) -> None:
    """A run is recorded and read back by what is in the wheel alone."""
    program = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); "
        "import otel_logger; assert '.whl' in otel_logger.__file__, otel_logger.__file__; "
        f"log = otel_logger.OTelLogger(run_name='x', environ={{'OTEL_LOGGER_DIR': {str(tmp_path)!r}}}); "
        "log.log_metrics({'loss': 0.5}, step=1); log.close(); "
        "print(otel_logger.read_run(log.run_dir).metrics['value'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path, env={"PATH": ""}
    )

    assert "[0.5]" == done.stdout.strip(), done.stderr
