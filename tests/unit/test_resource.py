"""The resource says who sends: the user's words, then what is detected, and identity above all."""

import pytest

from otel_logger.conventions import SCOPE_VERSION
from otel_logger.identity import Identity
from otel_logger.ranks import Ranks
from otel_logger.resource import described_by_user, resource_attributes
from otel_logger_exporters.errors import ConfigurationError

RANKS = Ranks(3, 1, 1, 4, 2)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"service.name": "training"}),
        ({"OTEL_SERVICE_NAME": " llm "}, {"service.name": "llm"}),
        ({"OTEL_SERVICE_NAME": " "}, {"service.name": "training"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=a"}, {"service.name": "a"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=a", "OTEL_SERVICE_NAME": "b"}, {"service.name": "b"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": " team = ml ,, note=a%2Cb%3Dc%20d,empty=,e=x=y,"},
            {"team": "ml", "note": "a,b=c d", "empty": "", "e": "x=y", "service.name": "training"},
        ),
        ({"OTEL_RESOURCE_ATTRIBUTES": "team=%C3%A9quipe"}, {"team": "équipe", "service.name": "training"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=1,a=2"}, {"a": "2", "service.name": "training"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a%20b=100%"}, {"a b": "100%", "service.name": "training"}),
    ],
)
def test_what_the_user_says(environ, expected):
    """Pairs are split at commas and decoded; OTEL_SERVICE_NAME wins for the service's name."""
    assert expected == described_by_user(environ)


@pytest.mark.parametrize(
    ("value", "number", "entry"), [("team", 1, "team"), ("a=b, c ,d=e", 2, "c"), ("a=b,=c", 2, "=c"), (" = ", 1, "=")]
)
def test_a_pair_that_is_none_is_refused(value, number, entry):
    """The entry is told by its number and as it is, with the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        described_by_user({"OTEL_RESOURCE_ATTRIBUTES": value})
    assert str(caught.value) == (
        f"OTEL_RESOURCE_ATTRIBUTES: entry {number}, {entry!r}, is not key=value. Separate entries with commas and "
        "write a comma or equals sign inside a value as %2C or %3D."
    )


@pytest.mark.parametrize("entry", ["team=%E9quipe", "%ff=1"])
def test_a_pair_that_is_no_text_is_refused(entry):
    """Percent-encoded bytes of another encoding would be recorded as something else than was meant."""
    with pytest.raises(ConfigurationError) as caught:
        described_by_user({"OTEL_RESOURCE_ATTRIBUTES": f"a=%C3%A9,{entry}"})
    assert str(caught.value) == (
        f"OTEL_RESOURCE_ATTRIBUTES: entry 2, {entry!r}, is not UTF-8 when it is decoded. Write what is not ASCII in "
        "UTF-8, as it is or percent-encoded."
    )


@pytest.mark.parametrize("value", ["db.password=a%ffHunter2", "db.password=a,Hunter2", "token=a,=Hunter2"])
def test_no_secret_is_in_what_is_refused(value):
    """Also what follows a comma in a password is none of those who read a traceback."""
    with pytest.raises(ConfigurationError, match=r"entry ., '\[redacted\]', is not") as caught:
        described_by_user({"OTEL_RESOURCE_ATTRIBUTES": value})
    assert "Hunter2" not in str(caught.value)


def attributes(user=None, *, identity=None, run_name=None, restart_count=None):
    """The attributes of writer `0f0f0f` on host `h`."""
    return resource_attributes(
        user or {},
        identity=identity,
        run_name=run_name,
        writer="0f0f0f",
        ranks=RANKS,
        host="h",
        restart_count=restart_count,
    )


STARTING = {
    "host.name": "h",
    "telemetry.sdk.language": "python",
    "telemetry.sdk.name": "otel_logger",
    "telemetry.sdk.version": SCOPE_VERSION,
    "service.instance.id": "starting/0f0f0f",
    "training.writer.id": "0f0f0f",
    "training.rank": 3,
    "training.local_rank": 1,
    "training.node_rank": 1,
    "training.world_size": 4,
}


def test_before_identity_is_settled():
    """A writer that is starting is known by its own id, and by the run's name where that is known."""
    assert STARTING == attributes()
    assert STARTING | {"training.run.name": "exp"} == attributes(run_name="exp")


def test_identity():
    """A settled writer says run, name, attempt, and the parent and the launcher's count where there is one."""
    identity = Identity("exp-1", "exp", 2, "0f0f0f", RANKS)
    settled = STARTING | {
        "service.instance.id": "exp-1/3/2/0f0f0f",
        "training.run.id": "exp-1",
        "training.run.name": "exp",
        "training.run.attempt": 2,
    }
    assert settled == attributes(identity=identity, run_name="ignored")
    child = Identity("exp-1", "exp", 2, "0f0f0f", RANKS, parent_id="base-1")
    assert settled | {"training.run.parent.id": "base-1", "training.restart_count": 0} == attributes(
        identity=child, restart_count=0
    )


def test_the_user_wins_over_what_is_detected_but_not_over_identity():
    """A host of the user's words stays; an instance id of theirs would make two writers one series."""
    user = {"host.name": "mine", "team": "ml", "service.instance.id": "same", "training.rank": "9"}
    assert STARTING | {"host.name": "mine", "team": "ml"} == attributes(user)
