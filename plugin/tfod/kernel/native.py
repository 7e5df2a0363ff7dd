"""Load the compiled kernel with ``ctypes``, which releases the GIL during a call."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from tfod.kernel.library import Library

_size = ctypes.c_size_t
_DEFECT = _size(-1).value


def load(path: str) -> Library:
    """Load a library; raise ImportError if the system rejects it."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"it cannot be loaded: {error}") from None

    @functools.cache
    def find(name: str) -> Any:
        function = library[name]
        function.restype = _size
        return function

    def call(
        name: str, *arguments: np.ndarray | int, outputs: tuple[np.ndarray, ...] = ()
    ) -> int | None:
        words = []
        for argument in (*arguments, *outputs):
            if isinstance(argument, int):
                words.append(_size(argument))
            else:
                # ``array.ctypes`` takes three times as long.
                words.append(_size(argument.__array_interface__["data"][0]))
                words.append(_size(len(argument)))
        result = find(name)(*words)
        return None if result == _DEFECT else result

    return call
