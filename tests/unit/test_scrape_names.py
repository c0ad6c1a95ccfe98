"""Names are those that Prometheus gives what comes by OTLP, so that one dashboard serves push and scrape."""

import math

import pytest

from otel_logger_exporters.measurements import Instrument
from otel_logger_exporters.scrape_names import label_name, label_value, prometheus_name


@pytest.mark.parametrize(
    ("instrument", "name"),
    [
        (Instrument("loss/train/total"), "loss_train_total"),
        (Instrument("a//b..c__d-"), "a_b_c_d"),
        (Instrument("Loss"), "Loss"),
        (Instrument("training.step", "{step}"), "training_step"),
        (Instrument("age", "s"), "age_seconds"),
        (Instrument("age.seconds.x", "s"), "age_seconds_x"),
        (Instrument("size", "By"), "size_bytes"),
        (Instrument("training.progress", "1"), "training_progress_ratio"),
        (Instrument("ratio.of.x", "1"), "of_x_ratio"),
        (Instrument("rate", "By/s"), "rate_bytes_per_second"),
        (Instrument("rate", "{request}/s"), "rate_per_second"),
        (Instrument("power", "mW"), "power_mW"),
        (Instrument("used", "%"), "used_percent"),
        (Instrument("items", "{item}", is_sum=True), "items_total"),
        (Instrument("total.items", "1", is_sum=True), "items_total"),
        (Instrument("training.phase.time", "s", is_sum=True), "training_phase_time_seconds_total"),
        (Instrument("1st"), "_1st"),
        (Instrument("///"), "unnamed"),
    ],
)
def test_a_metric_has_the_name_that_prometheus_gives_it(instrument, name):
    """Other characters become `_`, runs of them one; units and kinds are suffixes, unless they are there already."""
    assert name == prometheus_name(instrument)


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("training.metric.key", "training_metric_key"),
        ("a..b", "a__b"),
        ("0", "key_0"),
        ("_x", "key_x"),
        ("__name__", "key__name__"),
        ("é", "key_"),
        ("", "key_"),
    ],
)
def test_a_label_has_the_name_that_prometheus_gives_it(attribute, name):
    """But for those with two underscores in front, which in a scrape mean something else."""
    assert name == label_name(attribute)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a\n"b\\é\U0001f600', 'a\n"b\\é\U0001f600'),
        ("\ud800", "\\ud800"),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (1.0, "1"),
        (0.5, "0.5"),
        (1e-5, "0.00001"),
        (1e-7, "1e-7"),
        (1.5e-12, "1.5e-12"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (["a", 1], '["a",1]'),
        (("é",), '["é"]'),
    ],
)
def test_a_value_is_written_as_prometheus_writes_it(value, text):
    """A number on the resource is the same label by push and by scrape."""
    assert text == label_value(value)
