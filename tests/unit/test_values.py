"""Numbers are recognised whatever their type, and anything else becomes plain data that OTLP can carry."""

import enum
import math
import re
import subprocess
import sys
from collections import OrderedDict, UserDict, UserString, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_logger.values import NotANumber, as_number, is_device_tensor, is_tensor, key_text, plain, text
from otel_logger_exporters.decoding import decode_events
from otel_logger_exporters.items import Event, encode_event, encode_resource

SCOPE = InstrumentationScope("test")


def named(value: object) -> str:
    """Return the repr of a test's argument without its address, which differs from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


class Device:
    """A torch device as far as it is asked for."""

    def __init__(self, kind: str) -> None:
        self.type = kind

    def __str__(self) -> str:
        return self.type


class _Tensor:
    """What this package uses of a torch tensor; one that waits for its device says so by failing."""

    def __init__(self, array: Any, *, device: str = "cpu", requires_grad: bool = False) -> None:
        self.array = np.asarray(array)
        self.device = Device(device)
        self.shape = self.array.shape
        self.dtype = f"torch.{self.array.dtype}"
        self.requires_grad = requires_grad

    def numel(self) -> int:
        return self.array.size

    def is_complex(self) -> bool:
        return self.array.dtype.kind == "c"

    def detach(self) -> "_Tensor":
        return _Tensor(self.array, device=self.device.type)

    def item(self) -> Any:
        assert self.device.type == "cpu", "the training waits for the device"
        return self.array.item()

    def tolist(self) -> Any:
        assert self.device.type == "cpu", "the training waits for the device"
        assert not self.requires_grad
        return self.array.tolist()

    def __float__(self) -> float:
        pytest.fail("__float__ waits for the device")

    __len__ = __iter__ = __index__ = __int__ = __bool__ = __array__ = __float__


_Tensor.__module__, _Tensor.__name__ = "torch", "Tensor"


class Parameter(_Tensor):
    """A subclass in a module of its own, as torch.nn.Parameter is."""


Parameter.__module__ = "torch.nn.parameter"


class Level(enum.IntEnum):
    """A number with a name."""

    HIGH = 3


class Colour(enum.Enum):
    """Names of text and of a tuple."""

    RED = "red"
    PAIR = (1, "a")


class Count(int):
    """A number of one's own."""


class Ratio(float):
    """Another."""


class Raising:
    """An object that fails at whatever it is asked."""

    def __float__(self) -> float:
        raise RuntimeError("no float")

    __str__ = __repr__ = __int__ = __index__ = __len__ = __iter__ = __float__


class RaisingNumber(float):
    """A float that cannot be read as one."""

    def __float__(self) -> float:
        raise RuntimeError("no float")


def number(value: Any) -> tuple[type, Any]:
    """The number that a value stands for, with its type."""
    found = as_number(value)
    return type(found), found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 0.5),
        (-0.0, -0.0),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
        (7, 7.0),
        (True, 1.0),
        (False, 0.0),
        (Count(7), 7.0),
        (Ratio(0.5), 0.5),
        (Level.HIGH, 3.0),
        (2**53, 2.0**53),
        (2**62, 2.0**62),
        (-(2**63), -(2.0**63)),
        (Decimal("0.5"), 0.5),
        (Decimal("Infinity"), math.inf),
        (Fraction(1, 4), 0.25),
        (np.float16(1.5), 1.5),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.longdouble("0.5"), 0.5),
        (np.int8(-1), -1.0),
        (np.int16(-1), -1.0),
        (np.int32(-1), -1.0),
        (np.int64(-1), -1.0),
        (np.uint8(255), 255.0),
        (np.uint16(9), 9.0),
        (np.uint32(9), 9.0),
        (np.uint64(9), 9.0),
        (np.bool_(True), 1.0),
        (np.array(2.5), 2.5),
        (np.array([3]), 3.0),
        (np.array([[[4.0]]]), 4.0),
        (np.array([True]), 1.0),
        (np.array([0.25], dtype=np.longdouble), 0.25),
        (np.array([0.25], dtype=object), 0.25),
        (_Tensor(2.5), 2.5),
        (_Tensor([3]), 3.0),
        (_Tensor(True), 1.0),
        (_Tensor(0.5, requires_grad=True), 0.5),
        (Parameter(0.5), 0.5),
    ],
    ids=named,
)
def test_numbers_are_floats_where_float64_holds_them(value, expected):
    """Every kind of real number, and arrays and CPU tensors of one element, are a float of the same value."""
    assert number(value) == (float, expected)
    assert math.copysign(1, expected) == math.copysign(1, as_number(value))


@pytest.mark.parametrize(
    "value", [math.nan, np.float16("nan"), np.array([math.nan]), Decimal("NaN"), _Tensor(math.nan)]
)
def test_nan_is_a_number(value):
    """NaN is recorded as what it is."""
    assert type(as_number(value)) is float
    assert math.isnan(as_number(value))


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63) + 1])
def test_integers_that_float64_cannot_hold_stay_integers(value):
    """An int of 64 bits is exact, whoever holds it."""
    for given_value in (value, Count(value), np.int64(value), np.array([value]), _Tensor([value])):
        assert number(given_value) == (int, value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**63, 2.0**63),
        (-(2**63) - 1, -(2.0**63)),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        (np.uint64(2**64 - 1), 2.0**64),
    ],
)
def test_integers_beyond_64_bits_are_the_nearest_float_and_told(value, expected):
    """An int beyond 64 bits becomes a float, infinite where float64 ends, and the caller is told once."""
    told = []
    assert (float, expected) == (type(found := as_number(value, lambda: told.append(1))), found)
    assert told == [1]


@given(st.integers())
def test_an_integer_is_exact_or_told(value):
    """No integer changes its value in silence."""
    told = []
    found = as_number(value, lambda: told.append(1))
    assert found == value or told == [1]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "1.5",
        b"1",
        object(),
        [],
        [1.0],
        (1.0,),
        {},
        {"a": 1.0},
        1j,
        np.complex64(1),
        np.array([]),
        np.array([1.0, 2.0]),
        np.array("x"),
        np.array([None]),
        np.datetime64("2020"),
        np.timedelta64(5, "s"),
        np.str_("1"),
        np.ma.masked,
        np.ma.masked_array([3], mask=[True]),
        Decimal("sNaN"),
        Fraction(10**400),
        _Tensor([]),
        _Tensor([1.0, 2.0]),
        _Tensor(1j),
        Raising(),
        float,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_real_number_is_refused(value):
    """Text, containers, arrays of none or several, complex, masked and signalling values are no numbers."""
    with pytest.raises(NotANumber):
        as_number(value)


def test_the_exception_of_a_number_of_the_callers_own_is_its_callers():
    """A `__float__` that raises is not taken for a number; its exception says why."""
    with pytest.raises(RuntimeError, match="no float"):
        as_number(RaisingNumber(1))


def test_tensors_are_known_by_the_module_of_their_class():
    """Tensors and their subclasses are recognised without importing torch, and those on a device told apart."""
    assert is_tensor(_Tensor(1))
    assert is_tensor(Parameter(1))
    assert not is_tensor(np.array(1))
    assert is_device_tensor(_Tensor(1, device="cuda"))
    assert is_device_tensor(_Tensor(1, device="meta"))
    assert not is_device_tensor(_Tensor(1))


def test_neither_numpy_nor_torch_is_imported():
    """Loading the module loads neither; what it needs of them it asks of the values."""
    code = "import otel_logger.values, sys; assert not {'numpy', 'torch'} & set(sys.modules)"
    root = Path(__file__).parents[2]
    environ = {"PYTHONPATH": f"{root}:{root / 'exporters'}"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (b"\xff", b"\xff"),
        ("a", "a"),
        (7, 7),
        (Count(7), 7),
        (2**64, str(2**64)),
        (0.5, 0.5),
        (Ratio(0.5), 0.5),
        (Level.HIGH, 3),
        (Colour.RED, "red"),
        (Colour.PAIR, [1, "a"]),
        ((1, "a", None), [1, "a", None]),
        ({1: {2: 3}}, {"1": {"2": 3}}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (UserDict(a=1), {"a": 1}),
        (frozenset({1}), [1]),
        (deque([1]), [1]),
        (range(3), [0, 1, 2]),
        (Point(1, 2), [1, 2]),
        (Decimal("0.5"), 0.5),
        (Decimal("sNaN"), "sNaN"),
        (Fraction(1, 4), 0.25),
        (1j, "1j"),
        (np.float32(0.5), 0.5),
        (np.longdouble("0.5"), 0.5),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.array([0.5], dtype=np.longdouble), [0.5]),
        (np.array("x"), "x"),
        (np.bool_(True), True),
        (np.datetime64("2020-01-01"), "2020-01-01"),
        (np.zeros((64, 64), np.int8), "array of shape (64, 64), dtype int8"),
        (_Tensor([1, 2]), [1, 2]),
        (_Tensor([0.5], requires_grad=True), [0.5]),
        (_Tensor(np.zeros(2000)), "tensor of shape (2000,), dtype torch.float64, device cpu"),
        (_Tensor([1], device="cuda"), "tensor of shape (1,), dtype torch.int64, device cuda"),
        (list(range(2000)), "list of 2000 items"),
        (Path("/a"), "/a"),
        ("\ud800", "\\ud800"),
        ({"\ud800": UserString("\ud800")}, {"\\ud800": "\\ud800"}),
        (Raising(), "<Raising: RuntimeError>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_data(value, expected):
    """Scalars stay, containers and small arrays are followed, the rest is told as text."""
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


def test_a_number_of_ones_own_is_found_at_once():
    """An int of a subclass is not looked for among all 64-bit integers."""
    assert plain({"n": Count(2**62)}) == {"n": 2**62}


def test_a_bad_item_costs_itself_alone():
    """What raises, as key or as value, is described; its neighbours stay."""
    assert plain({"a": 1, "b": Raising(), Raising(): 2}) == {
        "a": 1,
        "b": "<Raising: RuntimeError>",
        "<Raising: RuntimeError>": 2,
    }


def test_long_text_is_cut():
    """A string above 8,192 characters is cut and its length told."""
    found = plain("x" * 10_000)
    assert found == "x" * 8192 + "… (10000 characters)"


def test_what_changes_while_it_is_looked_at_is_as_it_was():
    """Another thread may add to a dict or set that is logged."""
    content = {"a": None, "b": 1}

    class Growing:
        def __str__(self):
            content["c"] = 2
            return "grown"

    content["a"] = Growing()
    assert {"a": "grown", "b": 1} == plain(content)


def test_cycles_end():
    """A container that holds itself is described where it does."""
    cycle: list[Any] = []
    cycle.append(cycle)
    assert plain(cycle) == ["list of 1 items, in itself"]


def test_nesting_ends():
    """What is nested deeper than 16 levels is described."""
    nested: list[Any] = []
    for _ in range(20):
        nested = [nested]
    found, depth = plain(nested), 0
    while isinstance(found, list):
        (found,), depth = found, depth + 1
    assert (found, depth) == ("list of 1 items", 16)


def test_what_is_cut_is_told():
    """Each value that is cut or described for its size is told once; those that are whole are not."""
    told: list[int] = []
    plain(["x" * 9000, "short", list(range(2000)), b"x" * 2**20, {"a": ("x" * 9000,)}], lambda: told.append(1))
    assert len(told) == 4


def test_containers_that_multiply_do_not():
    """Ten references to itself in a list, or forty doublings, do not become 10^16 items."""
    cycle: list[Any] = []
    cycle.extend([cycle] * 10)
    laughs: Any = "ha" * 1000
    for _ in range(40):
        laughs = [laughs, laughs]
    mapping: dict[int, Any] = {}
    mapping.update(dict.fromkeys(range(10), mapping))
    for value in (cycle, laughs, mapping):
        assert count(plain(value)) < 2**19


def count(data: Any) -> int:
    """Items and characters of plain data."""
    if isinstance(data, dict):
        return sum(len(key) + count(item) for key, item in data.items())
    if isinstance(data, list):
        return sum(map(count, data))
    return len(data) if isinstance(data, (str, bytes)) else 1


def test_a_value_is_bounded_as_a_whole():
    """Many long strings, keys or bytes do not add up beyond what a backend takes in one line."""
    assert count(plain(["x" * 8000] * 1000)) < 2**19
    assert count(plain({"x" * 8000 + str(i): 1 for i in range(1000)})) < 2**19
    assert plain(b"x" * 2**20) == f"{2**20} bytes"


def test_an_iterator_that_does_not_end_is_left():
    """As many items are read as the container says it has."""

    class Endless(list):
        def __iter__(self):
            while True:
                yield 1

    assert plain(Endless([0, 0, 0])) == [1, 1, 1]


def test_keys_are_text():
    """Any key has a text, whatever its `__str__` does."""
    assert [key_text(key) for key in ("a", "é", "\ud800", 1, None, ("a", 1), Raising())] == [
        "a",
        "é",
        "\\ud800",
        "1",
        "None",
        "('a', 1)",
        "<Raising: RuntimeError>",
    ]
    assert text("\udcff") == "\\udcff"


class Liar(list):
    """A list of a length that there is not."""

    def __len__(self) -> int:
        return -1


class Module:
    """An object of a class that is in no module."""

    __module__ = None  # type: ignore[assignment]


class Masquerade:
    """An object that does not tell its class."""

    @property
    def __class__(self):  # type: ignore[override]
        raise RuntimeError("no class")


class Hostile(enum.Enum):
    """Values that hypothesis itself cannot print or look at, by a name that it can."""

    RAISING = 0
    RAISING_NUMBER = 1
    LIAR = 2
    MODULE = 3
    MASQUERADE = 4

    def build(self) -> Any:
        """The value itself."""
        return (Raising, lambda: RaisingNumber(1), lambda: Liar([1]), Module, Masquerade)[self.value]()


def build(data: Any) -> Any:
    """The data with the hostile values in their places."""
    if isinstance(data, Hostile):
        return data.build()
    if type(data) in (list, tuple):
        return type(data)(map(build, data))
    if type(data) is dict:
        return {build(key): build(item) for key, item in data.items()}
    return data


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.decimals()
    | st.fractions()
    | st.complex_numbers()
    | st.datetimes()
    | st.sampled_from(Hostile)
    | st.sampled_from(
        [
            Count(5),
            Level.HIGH,
            Colour.PAIR,
            object,
            np.longdouble(1),
            np.clongdouble(1),
            np.uint64(2**64 - 1),
            np.ma.masked,
            np.datetime64("NaT", "s"),
            np.zeros(3, "f4,i2"),
            np.array([object(), None, "\ud800"]),
            np.zeros((0, 3)),
            _Tensor([1.0], device="cuda"),
            _Tensor(1j),
            _Tensor([[1, 2]], requires_grad=True),
            memoryview(b"ab"),
            bytearray(b"ab"),
            {}.keys(),
            UserString("\ud800"),
        ]
    )
)
keys = st.text(st.characters()) | st.integers() | st.sampled_from([Hostile.RAISING, Hostile.MASQUERADE])
garbage = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(garbage)
def test_anything_becomes_what_otlp_can_carry(drawn):
    """Whatever is nested in whatever: it becomes plain data, encodes as a body, and reads back as it was."""
    data = plain(build(drawn))
    frame = encode_event(Event("e", 1, {"a": "b"}, data), SCOPE)
    (event,) = decode_events(frame.body)
    assert repr(data) == repr(event["body"])


@settings(max_examples=40, deadline=None)
@given(garbage)
def test_anything_plain_is_plain_already(drawn):
    """Making plain data plain again changes nothing."""
    data = plain(build(drawn))
    assert repr(data) == repr(plain(data))


@settings(max_examples=40, deadline=None)
@given(scalars)
def test_any_scalar_may_stand_on_a_resource(drawn):
    """Scalars as attributes encode, None apart, which hyperparameters turn into text."""
    data = plain(build(drawn))
    if isinstance(data, (str, bool, int, float)):
        assert encode_resource({"a": data})


large = st.builds(
    lambda unit, length: (unit * (length // len(unit) + 1))[:length],
    st.sampled_from(["a", "é", "\ud800", "ab\n"]),
    st.sampled_from([40, 48, 49, 8191, 8192, 8193, 8230, 8300, 70_000]),
)
heaps = st.recursive(
    large | st.builds(bytes, st.sampled_from([10, 100_000])),
    lambda inner: st.builds(lambda item, times: [item] * times, inner, st.sampled_from([1, 2, 33, 1000, 1025])),
    max_leaves=3,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(heaps, max_size=4))
def test_what_is_cut_stays_as_it_is(drawn):
    """Also beyond every bound, making plain data plain again changes nothing."""
    data = plain(drawn)
    assert data == plain(data)


@settings(max_examples=100, deadline=None)
@given(scalars)
def test_a_number_or_an_exception(drawn):
    """Of anything, a float, an int of 64 bits, or an exception is all that comes back."""
    try:
        found = as_number(build(drawn))
    except Exception:
        return
    assert type(found) is float or (type(found) is int and -(2**63) <= found < 2**63)
