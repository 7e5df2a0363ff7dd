"""Load the compiled kernel in Pyodide, where JavaScript runs it as a WebAssembly module.

The module has its own memory. Arrays are copied to an area of it before a call, and outputs back.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from js import Uint8Array, WebAssembly
from pyodide.ffi import JsException, to_js

if TYPE_CHECKING:
    import numpy as np

_PAGE_BYTES = 1 << 16
_FULL_BYTES = 1 << 28
_ERRORS = (JsException, SystemError)  # Pyodide 0.27 rarely loses an error of JavaScript


def load(path: str) -> WebAssemblyLibrary:
    """Load a module; raise ImportError if JavaScript rejects it."""
    try:
        return WebAssemblyLibrary(WebAssembly.Module.new(to_js(Path(path).read_bytes())))
    except _ERRORS as error:
        raise ImportError(f"it cannot be loaded: {error}") from None


class WebAssemblyLibrary:
    """A :class:`tfod.kernel.library.Library` in WebAssembly."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._start()

    def _start(self) -> None:
        self._exports = WebAssembly.Instance.new(self._module).exports
        self._area, self._area_bytes = 0, 0

    def __call__(
        self, name: str, *arguments: np.ndarray | int, outputs: tuple[np.ndarray, ...] = ()
    ) -> int | None:
        values = (*arguments, *outputs)
        sizes = [0 if isinstance(value, int) else -(-value.nbytes // 8) * 8 for value in values]
        addresses = list(itertools.accumulate(sizes, initial=self._reserve(sum(sizes))))
        words = list[int]()
        for value, address in zip(values, addresses, strict=False):
            words += [value] if isinstance(value, int) else [address, len(value)]
        for argument, address in zip(arguments, addresses, strict=False):
            if not isinstance(argument, int) and argument.nbytes:
                self._view(argument, address).assign(_as_bytes(argument))
        try:
            result: int = getattr(self._exports, name)(*words)
        except _ERRORS:
            is_full = self._exports.memory.buffer.byteLength > _FULL_BYTES
            self._start()  # a trap may leave its memory in disorder
            if is_full:  # a trap is also the end of an allocation that fails
                raise MemoryError("a batch of records is too large") from None
            return None
        for output, address in zip(outputs, addresses[len(arguments) :], strict=False):
            if output.nbytes:
                self._view(output, address).assign_to(_as_bytes(output))
        return result & 0xFFFFFFFF

    def _reserve(self, size: int) -> int:
        """Return the address of an area that the allocator of the module does not use."""
        if size > self._area_bytes:
            # The last area stays unused, so doubling keeps the sum of all areas small.
            pages = -(-max(size, 2 * self._area_bytes) // _PAGE_BYTES)
            try:
                self._area = self._exports.memory.grow(pages) * _PAGE_BYTES
            except _ERRORS:
                raise MemoryError(f"a batch of records needs {size} bytes more") from None
            self._area_bytes = pages * _PAGE_BYTES
        return self._area

    def _view(self, array: np.ndarray, address: int) -> Any:
        # The buffer is another one after the memory has grown.
        return Uint8Array.new(self._exports.memory.buffer, address, array.nbytes)


def _as_bytes(array: np.ndarray) -> memoryview:
    return array.data.cast("B")
