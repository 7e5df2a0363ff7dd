"""The library of the compiled kernel; importing it raises ImportError if it cannot be used."""

from __future__ import annotations

import ctypes
import os

_ABI = 3
_NAMES = ("libtfod_kernel.so", "libtfod_kernel.dylib", "tfod_kernel.dll")
_size, _void = ctypes.c_size_t, ctypes.c_void_p
_SPANS = (_void, _size, _void, _size)  # address and length of the buffer and of the spans
_ARGUMENTS = {
    "tfod_find_records": (
        *(_void, _size, ctypes.c_uint64, ctypes.c_uint32),
        *(_void, _void, _size, _void, _void),
    ),
    "tfod_parse": (_void, _size, _void, _void, _size, _void),
    "tfod_write": (_void, _void, _size, _void, _size),
    "tfod_free": (_void,),
    "tfod_hash_spans": (*_SPANS, _void),
    "tfod_code_spans": (*_SPANS, _void, _void),
    "tfod_gather_spans": (*_SPANS, ctypes.c_int32, _void, _size),
}


def _load() -> ctypes.CDLL:
    if os.environ.get("TFOD_KERNEL") == "0":
        raise ImportError("TFOD_KERNEL=0")
    paths = [os.path.join(os.path.dirname(__file__), name) for name in _NAMES]
    existing = [path for path in paths if os.path.isfile(path)]
    if not existing:
        raise ImportError("not compiled when tfod was installed")
    try:
        library = ctypes.CDLL(existing[0])
    except OSError as error:
        raise ImportError(f"it cannot be loaded: {error}") from None
    library.tfod_abi.restype = ctypes.c_uint32
    if library.tfod_abi() != _ABI:
        raise ImportError("it belongs to another version of tfod")
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, _size
    library.tfod_parse.restype = _void
    library.tfod_free.restype = None
    return library


LIBRARY = _load()
