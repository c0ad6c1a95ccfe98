"""Objects of real configuration packages become the data that they stand for, without being imported by us."""

from dataclasses import dataclass
from typing import Any

import attrs
import pydantic
import pytest
from omegaconf import DictConfig, OmegaConf

from otel_logger.forms import fields_of
from otel_logger.values import plain


@dataclass
class Schema:
    """The schema of a structured configuration."""

    size: int = 3
    path: str = "${size}/x"


@attrs.define
class Optimizer:
    """A configuration by attrs."""

    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)


class Model(pydantic.BaseModel):
    """A configuration by pydantic that takes further fields."""

    model_config = pydantic.ConfigDict(extra="allow")

    layers: int = 2
    secret: pydantic.SecretStr = pydantic.SecretStr("hunter2")


CONFIGURATION = {
    "lr": 0.1,
    "again": "${lr}",
    "missing": "???",
    "nowhere": "${nothing}",
    "left": "${right}",
    "right": "${left}",
    "list": ["${lr}", "???", {"x": "${again}", "none": None}],
    "none": None,
}

RESOLVED = CONFIGURATION | {"again": 0.1, "list": [0.1, "???", {"x": 0.1, "none": None}]}


def test_what_an_omegaconf_refers_to_is_looked_up() -> None:
    """References are resolved; what is missing, refers to nothing or to itself stays as it is written."""
    assert RESOLVED == plain(OmegaConf.create(CONFIGURATION))
    assert RESOLVED["list"] == plain(OmegaConf.create(CONFIGURATION).list)
    assert {"outer": RESOLVED} == plain({"outer": OmegaConf.create(CONFIGURATION)})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (OmegaConf.structured(Schema), {"size": 3, "path": "3/x"}),
        (OmegaConf.create([1, [2]]), [1, [2]]),
        (DictConfig(None), {}),
        (DictConfig("???"), {}),
        (Optimizer(), {"lr": 0.1, "betas": [0.9, 0.95]}),
        (Model(layers=4, more=True), {"layers": 4, "secret": "**********", "more": True}),
        (Optimizer, f"{__name__}.Optimizer"),
        (Model, f"{__name__}.Model"),
    ],
    ids=repr,
)
def test_forms_of_configurations(value: Any, expected: Any) -> None:
    """An object with fields is a mapping of them, its class a name; secrets of pydantic's stay hidden."""
    assert expected == plain(value)


@pytest.mark.parametrize("value", [OmegaConf.create({"a": 1}), Optimizer(), Model()])
def test_configurations_can_be_logged_as_a_whole(value: Any) -> None:
    """Where a mapping is expected an object with fields serves as one."""
    assert plain(value).keys() == plain(fields_of(value)).keys()
