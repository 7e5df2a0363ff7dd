"""The kernel: bytes in; spans of records, Examples as columns, and spans hashed or coded, out.

It knows bytes, not meaning, and imports nothing of tfod. It is compiled where it could be built;
elsewhere Python does the same, slower. What both have to do is written in
:mod:`tfod.kernel.reference`.
"""

from __future__ import annotations

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
    from tfod.kernel.compiled import (
        code_spans,
        copy_spans,
        find_records,
        gather_spans,
        hash_spans,
        parse_examples,
    )
except ImportError as error:
    WHY_NOT_COMPILED = str(error)
    from tfod.kernel.lockstep import parse_examples
    from tfod.kernel.reference import (
        code_spans,
        copy_spans,
        find_records,
        gather_spans,
        hash_spans,
    )
