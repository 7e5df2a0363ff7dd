"""The kernel: bytes in; spans of records, Examples as columns, and spans hashed or coded, out.

It knows bytes, not meaning, and imports nothing of tfod. It is compiled where it could be built;
elsewhere Python does the same, slower. What both have to do is written in
:mod:`tfod.kernel.reference`. Its functions, and NumPy with them, are loaded when they are asked
for: which kernel there is can be told before.
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
"""Why Python does the kernel's work; empty where it is compiled."""
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
