"""Any key becomes a name that OpenTelemetry allows, the same in every process, and never one that is taken."""

import os
import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from otel_logger.conventions import LONGEST_NAME, METRIC_KEY, STEP, STEP_UNIT, metric_name
from otel_logger.glossary import METRICS
from otel_logger_exporters.requests import MetricVocabulary, metric_requests
from otel_logger_exporters.rows import Row

ALLOWED = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]{0,254}", re.ASCII)

any_text = st.text(st.characters())
"""Lone surrogates too: what `os.environ` and file names give on Linux."""

sendable_text = st.text(st.characters(exclude_categories=["Cs"]))
"""What UTF-8 can carry: keys are made so before they are recorded."""

like_each_other = st.text(alphabet="aA_./- :é", max_size=4)
"""Keys that differ in nothing but what backends fold."""

VOCABULARY = MetricVocabulary(metric_name, METRIC_KEY, STEP, STEP_UNIT, InstrumentationScope(name="t"))


def in_prometheus(name):
    """Return a name as Prometheus' translation of OTLP writes it, before the suffixes of unit and kind."""
    return re.sub(r"[^a-zA-Z0-9:]+", "_", name)


OWN = {in_prometheus(entry.name) for entry in METRICS}


def sent(keys):
    """Return what the series of these keys are called in Prometheus: (name, label) of each point that is sent."""
    row = Row(tuple(keys), tuple(map(float, range(len(keys)))), 1_000_000, 7)
    found = []
    for body in metric_requests([row], b"", VOCABULARY).bodies:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.gauge.data_points:
                    (attribute,) = point.attributes
                    found.append((in_prometheus(metric.name), attribute.key, attribute.value.string_value))
    return found


@given(st.lists(sendable_text | like_each_other, unique=True, min_size=1, max_size=20))
@example(["a/b", "a.b", "a_b", "a-b", "A_b", "a__b", "user.a_b", "user/a_b"])
@example(["", "user.empty", "user/empty", "user_empty"])
@example(["training.step", "user.training.step", "training/step", "Training.Step"])
@example(["a" * 400, "a" * 401, metric_name("a" * 400)])
@example(["1", "m_1", "_1", "m__1"])
def test_no_two_keys_share_a_series(keys):
    """What Prometheus folds to one name stays apart by the key as a label, the companions of the step too."""
    series = sent(keys)

    assert 2 * len(keys) == len(series) == len(set(series))
    assert {(in_prometheus(metric_name(key)), METRIC_KEY, key) for key in keys} == {
        one for one in series if one[0] != in_prometheus(STEP)
    }


@given(st.lists(sendable_text | like_each_other, unique=True, min_size=1, max_size=8), st.randoms())
def test_the_order_of_keys_changes_no_name(keys, random):
    """Naming is stateless: what else was named before, and in which order, makes no difference."""
    shuffled = list(keys)
    random.shuffle(shuffled)

    assert sorted(sent(keys)) == sorted(sent(shuffled))
    assert sorted(sent(keys)) == sorted(pair for key in keys for pair in sent([key]))


def test_another_process_gives_the_same_names():
    """Ranks and attempts name alike: nothing depends on the process, its environment or its hash seed."""
    keys = ["a/b", "", "training.step", "é" * 300, "1 2", "loss\n", "x" * 999]
    program = f"from otel_logger.conventions import metric_name; print([metric_name(key) for key in {keys!r}])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert str([metric_name(key) for key in keys]) == done.stdout.strip()


def test_our_own_metrics_have_names_of_their_own_in_prometheus():
    """What is folded there does not make two of ours one."""
    assert len(OWN) == len(METRICS)


@given(any_text | st.sampled_from(sorted(OWN)).flatmap(lambda own: st.sampled_from([own, own.upper(), own + "_total"])))
@example("training progress")
@example("otel.logger.items/recorded")
def test_no_key_takes_a_name_of_ours(key):
    """Folded as Prometheus folds it, in any case and with any suffix of a unit, a key's name is none of our own."""
    name = in_prometheus(metric_name(key)).lower()

    assert [] == [own for own in OWN if name == own or name.startswith(f"{own}_")]


@given(any_text)
@example("")
@example("\ud800" * 300)
@example("é" * 256)
@example("_" * 255)
@example("1" * 255)
@example("up" * 200)
@example("training." * 40)
def test_any_key_has_a_name_that_opentelemetry_allows(key):
    """Whatever the key, its name follows the instrument name syntax."""
    assert ALLOWED.fullmatch(metric_name(key)) is not None


@given(any_text)
def test_one_key_has_one_name(key):
    """Naming keeps no state: the same key has the same name again."""
    assert metric_name(key) == metric_name(key)


@given(st.from_regex(ALLOWED, fullmatch=True).filter(lambda key: "_" not in re.sub(r"[^a-z]", "_", key.lower())))
def test_a_key_that_is_allowed_is_its_own_name(key):
    """A key of letters alone is the name, unless it is reserved."""
    assert metric_name(key) in {key, f"user.{key}"}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("loss/train/total", "loss/train/total"),
        ("lr-DecoupledAdamW/group0", "lr-DecoupledAdamW/group0"),
        ("l2_norm/grad/module.0.weight", "l2_norm/grad/module.0.weight"),
        ("metrics/eval set/Acc", "metrics/eval_set/Acc"),
        ("Loss", "Loss"),
        ("", "user.empty"),
        ("0/loss", "m_0/loss"),
        ("_private", "m__private"),
        ("/a", "m_/a"),
        ("é", "m__"),
        ("loss\n", "loss_"),
        ("٣", "m__"),
        ("\u212a", "m__"),  # the sign of the unit kelvin, which lower-cases to an ASCII letter
    ],
)
def test_names_are_the_keys_where_they_can_be(key, name):
    """A key is kept; characters that are not allowed become `_`, a first that is no letter gets `m_` before it."""
    assert metric_name(key) == name


@pytest.mark.parametrize(
    "key",
    [
        "training.step",
        "training/step",
        "training_step",
        "Training.Step",
        "training.loss",
        "training step",
        "training--step",
        "training.",
        "otel.scope.name",
        "otel_logger.rows",
        "target_info",
        "target.info",
        "Target/Info",
        "up",
        "UP",
        "scrape_duration_seconds",
        "scrape.samples",
    ],
)
def test_reserved_names_get_a_prefix(key):
    """What Prometheus or this package would take for a name of its own is set apart by `user.`."""
    assert metric_name(key).startswith("user.")


@pytest.mark.parametrize("key", ["training", "trainingloss", "uptime", "ups", "otel", "scrape", "my/training.step"])
def test_names_that_only_look_like_reserved_ones_stay(key):
    """Only names that would collide are touched."""
    assert metric_name(key) == key


def test_long_keys_with_one_beginning_have_names_of_their_own():
    """A name over 255 characters is cut and ends in a digest of the whole key."""
    one, other = metric_name("a" * 400), metric_name("a" * 401)
    assert len(one) == len(other) == LONGEST_NAME
    assert one != other
    assert one[:246] == "a" * 246


def test_a_name_of_exactly_the_limit_is_kept():
    """255 characters are allowed, 256 are one too many."""
    assert metric_name("a" * 255) == "a" * 255
    assert len(metric_name("a" * 256)) == 255
    assert len(metric_name("1" * 254)) == 255


def test_the_prefix_counts_for_the_limit():
    """A reserved key is not too long after its prefix."""
    name = metric_name("training." + "x" * 250)
    assert len(name) == LONGEST_NAME
    assert name.startswith("user.training.xxx")


def test_the_key_travels_whole_whatever_its_name():
    """Keys that share a name are told apart by the attribute that carries them whole."""
    keys = ("a b", "a_b", "a\nb", "é" * 400, "")
    scope = InstrumentationScope(name="t")
    vocabulary = MetricVocabulary(metric_name, METRIC_KEY, STEP, "{step}", scope)
    (body,) = metric_requests([Row(keys, (1.0, 2.0, 3.0, 4.0, 5.0), 1_000_000, 7)], b"", vocabulary).bodies
    sent = {}
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for metric in resource.scope_metrics[0].metrics:
            for point in metric.gauge.data_points:
                if metric.name != STEP:
                    sent[point.attributes[0].value.string_value] = (metric.name, point.as_double)
    assert sent == {key: (metric_name(key), value) for key, value in zip(keys, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True)}
