"""The kernel: functions on bytes that find records, parse Examples to columns and hash spans.

It imports nothing else of tfod. :mod:`tfod.kernel.reference` is the specification; the compiled
library is used if it exists. The functions, and NumPy, are only loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfod.kernel.compiled import (
        code_spans,
        copy_spans,
        find_records,
        gather_spans,
        hash_spans,
        parse_examples,
    )

__all__ = [
    "WHY_NOT_COMPILED",
    "code_spans",
    "copy_spans",
    "find_records",
    "gather_spans",
    "hash_spans",
    "parse_examples",
]

WHY_NOT_COMPILED = ""
"""The reason why the Python kernel is used; empty if the compiled kernel is used."""
try:
    from tfod.kernel import library as library
except ImportError as error:
    WHY_NOT_COMPILED = str(error)


def __getattr__(name: str) -> Any:
    """Load a function of the kernel (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    slower = "lockstep" if name == "parse_examples" else "reference"
    module = importlib.import_module(f"tfod.kernel.{slower if WHY_NOT_COMPILED else 'compiled'}")
    return getattr(module, name)
