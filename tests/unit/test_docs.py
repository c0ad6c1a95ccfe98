"""The documents name what the code names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_logger import OTelLogger, conventions
from otel_logger.settings import VARIABLES

DOCS = Path(__file__).parents[2] / "docs"


def named(page: str, name: str) -> bool:
    """Tell whether a page names something, whole or as the continuation of the name before it (`.count`)."""
    text = (DOCS / page).read_text("utf-8")
    return f"`{name}`" in text or f"`.{name.rpartition('.')[2]}`" in text


@pytest.mark.parametrize("constant", sorted(set(conventions.__all__) - {"SCOPE_VERSION", "STEP_UNIT", "metric_name"}))
def test_each_name_of_the_conventions_is_documented(constant: str) -> None:
    """docs/conventions.md has every name that data is given."""
    value = getattr(conventions, constant)

    assert isinstance(value, int) or named("conventions.md", value) or value in {"training.hparam."}


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_setting_is_documented(variable: str) -> None:
    """docs/settings.md has every variable of our own."""
    assert named("settings.md", variable)


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_between_documents_lead_somewhere(page: str) -> None:
    """A relative link in a document names a file that exists."""
    import re

    targets = re.findall(r"\]\((?!https?://)([^)#]+)", (DOCS / page).read_text("utf-8"))

    assert [] == [target for target in targets if not (DOCS / target).exists()]


def test_the_tests_that_the_page_on_reliability_names_exist() -> None:
    """Whoever doubts a line of docs/reliability.md finds what tests it."""
    import re

    named_there = re.findall(
        r"`((?:unit|contracts|integration|crash)/\w+\.py)`", (DOCS / "reliability.md").read_text("utf-8")
    )

    assert named_there
    assert [] == [name for name in named_there if not (DOCS.parent / "tests" / name).exists()]


def test_images_and_tables_are_read_back_as_the_page_says(tmp_path: Path) -> None:
    """The program of docs/blobs.md runs as it stands, for one image, a gallery and a table."""
    page = (DOCS / "blobs.md").read_text("utf-8")
    (program,) = [part.partition("```")[0] for part in page.split("```python\n") if "read_table(file)" in part]
    labels = np.array([[0, 70_000], [3, 1]])
    with OTelLogger(environ={"OTEL_LOGGER_DIR": str(tmp_path / "a b")}) as log:
        log.log_table(["a", "b"], [[1, "x"]])
    read: dict[str, Any] = {"run_dir": log.run_dir}
    exec(program, read)
    assert (["a", "b"], [[1, "x"]]) == (read["columns"], read["rows"])
    for images, masks in ((np.zeros((2, 2)), labels), ([np.zeros((2, 2))] * 2, [labels + 1, labels])):
        with OTelLogger(environ={"OTEL_LOGGER_DIR": str(tmp_path / "a b")}) as log:
            log.log_images(images, masks={"m": masks})
        namespace: dict[str, Any] = {"run_dir": log.run_dir}
        exec(program, namespace)
        assert labels.tolist() == namespace["masks"]["m"].tolist()
    assert namespace["picture"].is_file()
