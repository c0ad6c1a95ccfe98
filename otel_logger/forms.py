"""Forms: what configuration objects say of themselves, as data that is the same in every run.

None of the packages whose objects are known here is imported: a class is known by its name and module.
"""

import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["fields_of", "form_of", "qualified_name", "stable_text"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the named values that an object consists of, or None when it is no such object.

    Objects with fields are namespaces (`argparse`, `types.SimpleNamespace`), instances of dataclasses, of attrs classes
    and of pydantic models, and omegaconf's DictConfig. What of the latter cannot be resolved stays as it is written:
    `???`, `${name}`.
    """
    kind = type(value)
    if issubclass(kind, (Namespace, SimpleNamespace)):
        return dict(vars(value))
    if is_dataclass(kind):
        return _attributes(value, (field.name for field in fields(value)))
    if _is_a(kind, "omegaconf", "DictConfig"):
        return _resolved_mapping(value)
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        return _attributes(value, (field.name for field in attributes))
    if _is_a(kind, "pydantic", "BaseModel"):
        return dict(iter(value))
    return None


def form_of(value: Any) -> Any:
    """Return simpler data that stands for an object, or None for one that has its text alone.

    A partial function is its function and arguments, a function or class its qualified name, a Python module its name,
    a torch module its class and the number of its parameters, a date or time its ISO 8601 text.
    """
    kind = type(value)
    if isinstance(value, partial):
        # Not one text: redaction goes by the names of arguments.
        return {"function": value.func, "args": list(value.args), "kwargs": dict(value.keywords)}
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, (date, time)):
        return value.isoformat()
    if _is_a(kind, "omegaconf", "ListConfig"):
        return _resolved_list(value)
    if _is_a(kind, "torch", "Module"):
        return f"{qualified_name(kind)} with {_count_parameters(value)} parameters"
    # An alias (`list[int]`) has the name of its class, which is not all of it.
    if callable(value) and not hasattr(value, "__origin__") and isinstance(_name(value), str):
        return qualified_name(value)
    return None


def qualified_name(value: Any) -> str:
    """Return the module and name of a class or function; of a built-in one its name alone."""
    module = getattr(value, "__module__", None)
    name = _name(value)
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else str(name)


def stable_text(value: object) -> str:
    """Return the text of an object without addresses in memory, which differ in each run."""
    kind = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return f"<{qualified_name(kind)}>"
    text = str(value)
    return _ADDRESS.sub("", text) if " at 0x" in text else text


def _attributes(value: Any, names: Iterable[str]) -> dict[str, Any]:
    found = {}
    for name in names:
        try:
            found[name] = getattr(value, name)
        except AttributeError:
            # A field that has not been set yet.
            continue
        except Exception as error:
            found[name] = f"<{type(error).__name__}>"
    return found


def _name(value: Any) -> object:
    return getattr(value, "__qualname__", None)


def _is_a(kind: type, package: str, name: str) -> bool:
    """Tell whether a class is, or descends from, the class of this name in a package."""
    return any(
        base.__name__ == name and isinstance(base.__module__, str) and base.__module__.partition(".")[0] == package
        for base in kind.__mro__
    )


def _count_parameters(module: Any) -> int | str:
    try:
        # Shapes alone, which the host knows of tensors on any device.
        return sum(int(parameter.numel()) for parameter in module.parameters())
    except Exception:
        # A lazy module does not know its shapes before it is called.
        return "unknown"


def _resolved_mapping(config: Any) -> Mapping[Any, Any]:
    return {key: _item(config, key) for key in list(config)}


def _resolved_list(config: Any) -> list[Any]:
    return [_item(config, index) for index in range(len(config))]


def _item(config: Any, key: Any) -> Any:
    try:
        return config[key]
    except Exception:
        # What is missing or refers to nothing raises, and stands for itself.
        container: Callable[..., Any] = sys.modules["omegaconf"].OmegaConf.to_container
        return container(config, resolve=False)[key]
