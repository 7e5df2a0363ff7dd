"""Load the compiled kernel with ``ctypes``, which releases the GIL during a call."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_size = ctypes.c_size_t
_DEFECT = _size(-1).value


def load(path: str) -> NativeLibrary:
    """Load a library; raise ImportError if the system rejects it."""
    try:
        return NativeLibrary(ctypes.CDLL(path))
    except OSError as error:
        raise ImportError(f"it cannot be loaded: {error}") from None


class NativeLibrary:
    """A :class:`tfod.kernel.library.Library` for this machine."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._functions = dict[str, Any]()

    def __call__(
        self, name: str, *arguments: np.ndarray | int, outputs: tuple[np.ndarray, ...] = ()
    ) -> int | None:
        words = []
        for argument in (*arguments, *outputs):
            if isinstance(argument, int):
                words.append(_size(argument))
            else:
                # ``array.ctypes`` takes three times as long.
                words.append(_size(argument.__array_interface__["data"][0]))
                words.append(_size(len(argument)))
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._library[name]
            function.restype = _size
        result: int = function(*words)
        return None if result == _DEFECT else result
