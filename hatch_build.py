"""Builds the kernel with cargo, if there is one.

The wheel is then of this platform, for any Python 3. Without cargo it is of any platform, and
Python does the kernel's work; one line says so.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NAMES = {"win32": "tfod_kernel.dll", "darwin": "libtfod_kernel.dylib"}


class KernelHook(BuildHookInterface[Any]):
    """Puts the compiled kernel beside its Python modules: into the wheel, or into the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, before the wheel's files are gathered."""
        source = Path(self.root, "plugin", "tfod", "kernel")
        built = Path(
            self.root, "build", "kernel", "release", _NAMES.get(sys.platform, "libtfod_kernel.so")
        )
        installed = source / built.name  # where an editable installation finds it
        failure = _compile(source, built.parents[1])
        if failure:
            line = f"tfod: the kernel is not compiled ({failure}): slower, same results"
            self.app.display_warning(line)
            if version == "editable":
                installed.unlink(missing_ok=True)
        elif version == "editable":
            new = f"{installed}.{os.getpid()}"  # a running process may have the old one open
            shutil.copyfile(built, new)
            os.replace(new, installed)
        else:
            build_data |= {"pure_python": False, "tag": f"py3-none-{_platform()}"}
            build_data["force_include"][str(built)] = f"tfod/kernel/{built.name}"


def _platform() -> str:
    """What the wheel is for: cargo builds for one machine, where macOS's Python may be of two."""
    name = sysconfig.get_platform()
    if sys.platform == "darwin":
        machine = platform.machine()
        name = f"macosx-{'11.0' if machine == 'arm64' else '10.12'}-{machine}"  # Rust's oldest
    return name.replace("-", "_").replace(".", "_")


def _compile(source: Path, target: Path) -> str:
    """Compile; return why that could not be done."""
    if os.environ.get("TFOD_KERNEL") == "0":
        return "TFOD_KERNEL=0"
    cargo = shutil.which("cargo")
    if cargo is None:
        return "no cargo"
    done = subprocess.run(
        [cargo, "build", "--release", "--offline", "--target-dir", str(target)],
        cwd=source,
        capture_output=True,
        text=True,
    )
    return "" if not done.returncode else (done.stderr.strip().splitlines() or ["cargo failed"])[-1]
