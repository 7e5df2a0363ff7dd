"""Landlock of Linux: the process of a check can access neither other uploads nor TCP.

Python has no function for these system calls. See landlock(7), and docs/security.md for the limits.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfod.detection.labels.label_map import packaged_folder

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on all architectures of Linux
_GET_ABI, _PATH_BENEATH, _SET_NO_NEW_PRIVS = 1, 1, 38
_EXECUTE, _READ = 1, 1 << 2 | 1 << 3  # files, and to list folders
_BIND_AND_CONNECT_TCP = _SOCKETS_AND_SIGNALS = 3
_FILES_ABI, _TCP_ABI, _SCOPE_ABI = 2, 4, 6  # 1 cannot move files to another folder
_PROTECTIONS = {
    _FILES_ABI: "read other uploads",
    _TCP_ABI: "open TCP connections",
    _SCOPE_ABI: "reach sockets and processes of the service",
}
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/sys/devices/system/cpu")


def get_abi() -> int:
    """Return the version of Landlock in this kernel; 0 if it has none."""
    with suppress(OSError):
        if sys.platform == "linux":
            return _call(_CREATE_RULESET, None, 0, _GET_ABI)
    return 0


def describe_missing(abi: int) -> str:
    """Return what checks can do with this version of Landlock but should not, or ""."""
    missing = [action for min_abi, action in _PROTECTIONS.items() if abi < min_abi]
    actions = f"files that exploit a check can {', '.join(missing)}"
    return f"{actions}; Linux 6.12 or later with Landlock prevents this" if missing else ""


def restrict(folder: Path, data: Path) -> None:
    """Restrict this thread, and those that it starts, to a folder and the libraries of Python.

    They can also start no programs. Folders of libraries that contain ``data``, the data folder of
    the service, are left out. Does nothing if the kernel has no Landlock.
    """
    abi = get_abi()
    if abi < _FILES_ABI:
        return
    every = (1 << 12 + min(abi, 3) + (abi >= 5)) - 1  # rights that this version knows
    tcp = _BIND_AND_CONNECT_TCP if abi >= _TCP_ABI else 0
    scope = _SOCKETS_AND_SIGNALS if abi >= _SCOPE_ABI else 0
    attributes = struct.pack("=3Q", every, tcp, scope)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    _allow(ruleset, every & ~_EXECUTE, [folder])
    _allow(ruleset, _READ, _find_libraries(data))
    ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _find_libraries(data: Path) -> list[Path]:
    """Return the folders of Python, of loaded packages and of system libraries."""
    packages = [module for name, module in list(sys.modules.items()) if "." not in name]
    # Some modules make up attributes, also __path__.
    paths = {
        path
        for module in packages
        for path in getattr(module, "__dict__", {}).get("__path__") or ()
        if isinstance(path, str)
    }
    paths |= {sys.prefix, sys.base_prefix, str(packaged_folder()), *_SYSTEM}
    folders = [Path(path).resolve() for path in paths]
    return [folder for folder in folders if not data.resolve().is_relative_to(folder)]


def _allow(ruleset: int, access: int, folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not all exist, and an upload may have been deleted
            handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, handle), 0)
            os.close(handle)


def _call(number: int, *arguments: Any) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    longs = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *longs)
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock cannot restrict the process")
    return result
