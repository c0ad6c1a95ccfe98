"""Any values: plain data as OTLP's AnyValue and KeyValue."""

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

__all__ = ["any_value", "key_values"]


def any_value(value: Any) -> AnyValue:
    """Return plain data (None, bool, int, float, str, bytes, and sequences and mappings of them) as an AnyValue.

    None is an AnyValue without a value. Raises TypeError for what is no data, ValueError for an int beyond 64 bits and
    for a str that UTF-8 cannot carry.
    """
    if isinstance(value, str):
        return AnyValue(string_value=value)
    # Before int, of which it is one.
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if value is None:
        return AnyValue()
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, Mapping):
        pairs = [KeyValue(key=str(key), value=any_value(item)) for key, item in value.items()]
        return AnyValue(kvlist_value=KeyValueList(values=pairs))
    if isinstance(value, Sequence):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    msg = f"{type(value).__name__} is no plain data"
    raise TypeError(msg)


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Return attributes in their order; one that is no plain data is left out, and the others are kept."""
    pairs = []
    for key, value in attributes.items():
        try:
            pairs.append(KeyValue(key=key, value=any_value(value)))
        except (TypeError, ValueError):
            continue
    return pairs
