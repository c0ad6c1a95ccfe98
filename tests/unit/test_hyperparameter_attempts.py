"""An attempt at a run tells how its hyperparameters differ from the last one's, and begins with what came too late."""

import gc
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, ScopeMetrics
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_logger import OTelLogger, read_run
from otel_logger import conventions as names
from otel_logger.folders import WriterFile
from otel_logger.hyperparameter_events import EVENT_BYTES, MOST_CHANGES, hyperparameter_events
from otel_logger.hyperparameter_memory import HyperparameterFile, recall
from otel_logger.hyperparameters import HyperparameterSet, Remembered
from otel_logger.redaction import REDACTED, Redactor
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.items import Event, encode_event
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.records import Kind
from otel_logger_exporters.signals import Signal
from tests.journals import payloads, touched

Make = Callable[..., OTelLogger]

PREFIX = "training.hyperparameters."


@pytest.fixture
def attempt(make: Make) -> Callable[..., OTelLogger]:
    """Return what makes an attempt: it logs some hyperparameters, binds its resource, and logs others late."""

    def run(early: Any, *late: Any, state: Any = None, **options: str) -> OTelLogger:
        log = make(run_id="run-1", **options)
        if state is not None:
            log.load_state_dict(state)
        log.log_hyperparameters(early)
        log.log_metrics({"loss": 1.0}, 1)
        for hyperparameters in late:
            log.log_hyperparameters(hyperparameters)
        log.close()
        return log

    return run


def told(log: OTelLogger, number: int) -> list[dict[str, Any]]:
    """Return what the events of hyperparameters of an attempt say beside their body, without the prefix of names."""
    assert log.run_dir is not None
    return [
        {key.removeprefix(PREFIX): value for key, value in event["attributes"].items() if key.startswith(PREFIX)}
        for event in read_run(log.run_dir).events
        if event["name"] == names.EVENT_HYPERPARAMETERS and event["attempt"] == number
    ]


def resource(log: OTelLogger, number: int) -> dict[str, Any]:
    """Return the hyperparameters on the resource of an attempt."""
    assert log.run_dir is not None
    attributes = read_run(log.run_dir).resources[number, 0]
    prefix = names.HPARAM_PREFIX
    return {key.removeprefix(prefix): value for key, value in attributes.items() if key.startswith(prefix)}


def files(log: OTelLogger) -> list[Path]:
    """Return the files of remembered hyperparameters, of the first attempt first."""
    assert log.run_dir is not None
    return sorted(log.run_dir.glob("*/hyperparameters.json"))


def test_an_attempt_tells_the_difference_to_the_last(attempt: Callable[..., OTelLogger]) -> None:
    """Added, removed and changed hyperparameters are named with their values, those that are secrets without."""
    attempt({"lr": 0.1, "gone": [1], "same": "a", "api_key": "one", "late_token": None})
    log = attempt({"lr": 0.2, "new": {"x": None}, "same": "a", "api_key": "two", "late_token": "hunter2"})

    assert [{"count": 5, "event_only": 0}] == told(log, 1)
    assert [
        {
            "count": 5,
            "event_only": 0,
            "previous_attempt": 1,
            "added": ["new.x: None"],
            "removed": ["gone: [1]"],
            "changed": [f"late_token: None -> {REDACTED}", "lr: 0.1 -> 0.2"],
            "redacted": ["api_key"],
        }
    ] == told(log, 2)


def test_what_came_too_late_is_on_the_next_resource(attempt: Callable[..., OTelLogger]) -> None:
    """What is logged after the first metric is on the resource of the attempts that follow, unless they log it anew."""
    attempt({"lr": 0.1, "gone": 1}, {"workers": 4, "device": "a"})
    attempt({"lr": 0.2, "device": "b"})
    log = attempt({"lr": 0.3})

    assert {"lr": 0.1, "gone": 1} == resource(log, 1)
    assert {"lr": 0.2, "device": "b", "workers": 4} == resource(log, 2)
    assert {"lr": 0.3, "workers": 4} == resource(log, 3)
    assert [0, 2] == [event["event_only"] for event in told(log, 1)]
    assert [["device: b"]] == [event["removed"] for event in told(log, 3)]


def test_a_checkpoint_knows_them_where_there_is_no_folder(attempt: Callable[..., OTelLogger], make: Make) -> None:
    """On another machine the checkpoint says in plain data what the last attempt had; nonsense in it is passed over."""
    first = attempt({"lr": 0.1, "token": "t"}, {"late": {"a": (1,)}})
    state = first.state_dict()
    for path in files(first):
        path.unlink()
    log = attempt({"lr": 0.2}, state=state)

    remembered = {"values": {"lr": 0.1, "token": REDACTED, "late": {"a": [1]}}, "late": ["late"]}
    assert remembered == state["hyperparameters"]
    assert {"lr": 0.2, "late.a": [1]} == resource(log, 2)
    assert [["lr: 0.1 -> 0.2"]] == [event["changed"] for event in told(log, 2)]

    for path in files(log):
        path.unlink()
    log = attempt({"lr": 0.3}, state={**state, "hyperparameters": {"values": 3}})
    assert [{"count": 1, "event_only": 0}] == told(log, 3)


def test_the_folder_wins_over_the_checkpoint(attempt: Callable[..., OTelLogger]) -> None:
    """What is compared with is the newest attempt, also when the run resumes from an older one's checkpoint."""
    state = attempt({"lr": 0.1}).state_dict()
    attempt({"lr": 0.2})
    log = attempt({"lr": 0.3}, state=state)

    assert [(2, ["lr: 0.2 -> 0.3"])] == [(event["previous_attempt"], event["changed"]) for event in told(log, 3)]


@pytest.mark.parametrize("content", ["{", '{"values": [1]}', "[" * 10_000])
def test_a_file_that_cannot_be_read_is_passed_over(attempt: Callable[..., OTelLogger], content: str) -> None:
    """The attempt before it is compared with instead."""
    attempt({"lr": 0.1})
    _, path = files(attempt({"lr": 0.2}))
    path.write_text(content)
    log = attempt({"lr": 0.3})

    assert [(1, ["lr: 0.1 -> 0.3"])] == [(event["previous_attempt"], event["changed"]) for event in told(log, 3)]


def test_a_later_rule_of_redaction_holds_for_what_is_remembered(attempt: Callable[..., OTelLogger]) -> None:
    """A key that is a secret from now on is not told of the earlier attempt either."""
    attempt({"path": "/secret/place", "lr": 0.1})
    log = attempt({"path": "/other/place", "lr": 0.1}, OTEL_LOGGER_REDACT="path")

    assert [{"count": 2, "event_only": 0, "previous_attempt": 1, "redacted": ["path"]}] == told(log, 2)


def test_another_run_is_not_compared_with(attempt: Callable[..., OTelLogger], make: Make) -> None:
    """The checkpoint of another run is its parent's: it says nothing of the attempts at this one."""
    state = attempt({"lr": 0.1}, {"late": 1}).state_dict()
    for _ in range(2):
        log = make(run_name="other", run_id="other-1")
        log.load_state_dict(state)
        log.log_metrics({"loss": 1.0}, 1)
        log.close()
    log = make(run_name="other", run_id="other-1")
    log.load_state_dict(state)
    log.log_hyperparameters({"lr": 0.2})
    log.log_metrics({"loss": 1.0}, 1)
    log.close()

    assert [{"count": 1, "event_only": 0}] == told(log, 3)


def test_the_file_is_small_and_has_no_secret(attempt: Callable[..., OTelLogger]) -> None:
    """What stays in the folder is the redacted set."""
    (path,) = files(attempt({"lr": 0.1, "token": "hunter2", "b": b"x"}, {"late": 1}))

    expected = {"values": {"lr": 0.1, "token": REDACTED, "b": "b'x'", "late": 1}, "late": ["late"]}
    assert expected == json.loads(path.read_text())


def test_logging_them_touches_no_disk(make: Make) -> None:
    """Neither early nor late hyperparameters wait for a disk: the file is written in the background."""
    log = make()
    log.log_hyperparameters({"warm": 1})
    # What other tests have left may close files when it is collected.
    gc.collect()
    early = touched(lambda: log.log_hyperparameters({"lr": 0.1}))
    log.log_metrics({"loss": 1.0}, 1)
    late = touched(lambda: log.log_hyperparameters({"lr": 0.2}))
    log.close()
    assert {*early, *late} <= {"time.time_ns", "time.monotonic", "posix.getpid", "posix.urandom"}
    assert {"warm": 1, "lr": 0.2} == json.loads(files(log)[0].read_text())["values"]


def test_points_follow_the_values(make: Make) -> None:
    """Each hyperparameter is a point from the binding on; that of a changed value ends when the new one is there."""
    log = make(run_id="run-1")
    log.log_hyperparameters({"lr": 0.1, "token": "hunter2"})
    log.log_metrics({"loss": 1.0}, 1)
    assert log.run_dir is not None
    (folder,) = log.run_dir.glob("0-1-*")
    deadline = time.monotonic() + 5
    while not info(folder):
        assert time.monotonic() < deadline, "no heartbeat has come"
        time.sleep(0.002)
    log.log_hyperparameters({"lr": 0.2})
    log.close()

    assert [
        ("lr", "0.1", True),
        ("token", REDACTED, True),
        ("lr", "0.1", False),
        ("lr", "0.2", True),
        ("token", REDACTED, True),
    ] == info(folder)[:5]
    assert {("lr", "0.2", False), ("token", REDACTED, False)} == set(info(folder)[-2:])


def info(folder: Path) -> list[tuple[str, str, bool]]:
    """Return key, value and whether there is one of each point of hyperparameters, in the order of recording."""
    found = []
    for payload in payloads(folder):
        for metric in ScopeMetrics.FromString(payload[4:]).metrics:
            if metric.name == names.HPARAM_INFO:
                for point in metric.gauge.data_points:
                    key, value = (attribute.value.string_value for attribute in point.attributes)
                    ends = point.flags == DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
                    found.append((key, value, not ends))
    return found


@pytest.mark.parametrize(
    ("attempt", "rank", "checkpoint", "expected"),
    [
        (4, 0, None, (3, "of rank 0")),
        (4, 1, None, (3, "of rank 1")),
        (4, 2, None, (3, "of rank 0")),
        (3, 0, None, (1, "alone")),
        (1, 0, None, None),
        (4, 0, 3, (3, "of rank 0")),
        (6, 0, 5, (5, "checkpoint")),
        (6, 0, 1, (4, "ours")),
        (4, 0, 4, (3, "of rank 0")),
        (1, 0, 1, None),
    ],
)
def test_which_attempt_is_remembered(
    tmp_path: Path, attempt: int, rank: int, checkpoint: int | None, expected: tuple[int, str] | None
) -> None:
    """The newest before this one that has left anything, of its ranks the same, else the lowest."""
    # Attempt 2 has logged nothing, and 4 is a live one of another rank.
    for number, place, said in ((1, 0, "alone"), (2, 0, ""), (3, 1, "of rank 1"), (3, 0, "of rank 0"), (4, 3, "ours")):
        folder = tmp_path / f"{place}-{number}-abcdef"
        folder.mkdir()
        WriterFile("abcdef", number, run_id="run-1", attempt=number, rank=place).write(folder)
        if said:
            file = HyperparameterFile(Ledger(SystemClock(), logging.getLogger("otel_logger")))
            file.note(Remembered(number, {"said": said}))
            file.write(folder)
    known = Remembered(checkpoint, {"said": "checkpoint"}) if checkpoint is not None else None
    found = recall(tmp_path, attempt, rank, known)

    assert expected == (None if found is None else (found.attempt, found.nested["said"]))


def test_what_the_disk_does_not_take_is_written_later(tmp_path: Path) -> None:
    """A folder on its way to another name is no loss: the file is written at the next turn."""
    file = HyperparameterFile(Ledger(SystemClock(), logging.getLogger("otel_logger")))
    file.note(Remembered(1, {"lr": 0.1}))
    file.write(tmp_path / "not-yet")
    (tmp_path / "not-yet").mkdir()
    file.write(tmp_path / "not-yet")

    (path,) = (tmp_path / "not-yet").iterdir()
    assert "hyperparameters.json" == path.name
    path.unlink()
    file.write(path.parent)
    assert not path.exists(), "what has not changed is written once"


@pytest.fixture
def hyperparameters() -> HyperparameterSet:
    """Return a set of the test's own."""
    return HyperparameterSet(Redactor(), Ledger(SystemClock(), logging.getLogger("otel_logger")))


def test_a_large_set_is_told_in_parts(hyperparameters: HyperparameterSet) -> None:
    """No record is much larger than what backends take, each says which part it is, and together they are the set."""
    hyperparameters.add({f"k{number}": {"nested": "x" * 60, "list": [1, 2]} for number in range(5000)})
    events = list(hyperparameter_events(hyperparameters, None))
    sizes = [len(encode_event(Event("e", 1, a, body), InstrumentationScope("t")).body) for a, body in events]
    joined: dict[str, Any] = {}
    for _, body in events:
        for key, value in body.items():
            joined.setdefault(key, {}).update(value)

    assert hyperparameters.nested() == joined
    assert max(sizes) < 2 * EVENT_BYTES
    assert max(len(json.dumps(body)) for _, body in events) <= EVENT_BYTES
    assert [(number, len(events)) for number in range(1, len(events) + 1)] == [
        (attributes[names.HPARAMS_PART], attributes[names.HPARAMS_PARTS]) for attributes, _ in events
    ]
    assert {10_000} == {attributes[names.HPARAMS_COUNT] for attributes, _ in events}


@pytest.mark.filterwarnings("ignore")
def test_what_is_sent_of_a_huge_set_is_small(attempt: Callable[..., OTelLogger]) -> None:
    """Ten thousand keys and values of a megabyte exceed the limits of no request, as resource or elsewhere."""
    log = attempt({"k" * 300: "v" * 2**20, **{f"key_{number}": "é" * 250 for number in range(10_000)}}, {"lr": 0.1})
    assert log.run_dir is not None
    (folder,) = log.run_dir.glob("0-1-*")

    assert max(map(len, payloads(folder, signal=Signal.LOGS))) < 2 * EVENT_BYTES
    assert max(map(len, payloads(folder))) < 2**19
    assert max(map(len, payloads(folder, Kind.RESOURCE))) < 2**16
    assert log.stats().dropped["hyperparameters"] > 0


def test_many_and_long_changes_are_cut(hyperparameters: HyperparameterSet) -> None:
    """The lists of changes stay below what a record may have, and say how many more there are."""
    hyperparameters.add({f"new_{'k' * 300}_{number}": "v" * 300 for number in range(100)})
    ((attributes, _),) = hyperparameter_events(hyperparameters, Remembered(1, {f"old_{n}": n for n in range(50)}))
    added, removed = attributes[names.HPARAMS_ADDED], attributes[names.HPARAMS_REMOVED]

    assert (MOST_CHANGES + 1, "… and 60 more") == (len(added), added[-1])
    assert (MOST_CHANGES + 1, "… and 10 more") == (len(removed), removed[-1])
    assert max(map(len, added)) < 200
    assert f"new_{'k' * 115}…: {'v' * 59}…" == added[0]


def test_values_are_compared_as_what_they_are(hyperparameters: HyperparameterSet) -> None:
    """A number is not its text, NaN is NaN, and what a file made of bytes are those bytes."""
    hyperparameters.add({"a": 1, "nan": float("nan"), "bytes": b"x", "list": ["t", REDACTED]})
    earlier = Remembered(1, {"a": "1", "nan": float("nan"), "bytes": "b'x'", "list": ["t", REDACTED]})
    ((attributes, _),) = hyperparameter_events(hyperparameters, earlier)

    assert ["a: 1 -> 1"] == attributes[names.HPARAMS_CHANGED]
    assert ["list"] == attributes[names.HPARAMS_REDACTED]
    assert names.HPARAMS_ADDED not in attributes
