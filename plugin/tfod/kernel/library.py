"""The library of the compiled kernel; importing it raises ImportError if it cannot be used."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

_ABI = 4


class Library(Protocol):
    """A call of a function in src/lib.rs, which returns a number, or None if it has a bug.

    Args:
        name: name of the function.
        arguments: contiguous arrays that the function reads, and numbers.
        outputs: contiguous arrays that the function writes.
    """

    def __call__(
        self, name: str, *arguments: np.ndarray | int, outputs: tuple[np.ndarray, ...] = ()
    ) -> int | None: ...


if sys.platform == "emscripten":
    from tfod.kernel.webassembly import load as _load

    _NAMES: tuple[str, ...] = ("tfod_kernel.wasm",)
else:
    from tfod.kernel.native import load as _load

    _NAMES = ("libtfod_kernel.so", "libtfod_kernel.dylib", "tfod_kernel.dll")


def _find() -> Library:
    if os.environ.get("TFOD_KERNEL") == "0":
        raise ImportError("TFOD_KERNEL=0")
    paths = [os.path.join(os.path.dirname(__file__), name) for name in _NAMES]
    existing = [path for path in paths if os.path.isfile(path)]
    if not existing:
        raise ImportError("not compiled when tfod was installed")
    library = _load(existing[0])
    if library("tfod_abi") != _ABI:
        raise ImportError("it belongs to another version of tfod")
    return library


LIBRARY = _find()
