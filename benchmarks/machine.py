"""The first lines of every report: when, on what machine, and with which versions it was measured."""

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

__all__ = ["measured_on"]


def measured_on(*packages: str) -> str:
    """Return the date, the class of machine and the versions of Python and `packages` in one line."""
    processor = f"{os.cpu_count()} x {_processor()}"
    versions = ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)])
    return f"{time.strftime('%Y-%m-%d')}, {processor}, {platform.system()} {_kernel()}; {versions}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _kernel() -> str:
    return ".".join(platform.release().split(".")[:2])
