"""Build hooks: one compiles the kernel with cargo, one writes the readme of the index page.

With cargo, the wheel is for one platform and any Python 3. Without it, the build prints a warning,
and the wheel is for any platform and uses the kernel in Python.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_PAGES = {"Documentation": "docs", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}
_IMAGE_OR_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)")
_NAMES = {"win32": "tfod_kernel.dll", "darwin": "libtfod_kernel.dylib"}


class KernelHook(BuildHookInterface[Any]):
    """A hook that adds the compiled kernel to the wheel, or to the sources if editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernel before the files of the wheel are collected."""
        if module := os.environ.get("TFOD_KERNEL_WASM"):  # `make browser` has compiled it
            build_data["force_include"][module] = "tfod/kernel/tfod_kernel.wasm"
            return
        source = Path(self.root, "plugin", "tfod", "kernel")
        target = Path(self.root, "build", "kernel")
        library = target / "release" / _NAMES.get(sys.platform, "libtfod_kernel.so")
        installed = source / library.name  # for editable installations
        failure = _compile(source, target)
        if failure:
            line = f"tfod: the kernel is not compiled ({failure}): slower, same results"
            self.app.display_warning(line)
            if version == "editable":
                installed.unlink(missing_ok=True)
        elif version == "editable":
            new = f"{installed}.{os.getpid()}"  # a running process may use the old library
            shutil.copyfile(library, new)
            os.replace(new, installed)
        else:
            build_data |= {"pure_python": False, "tag": f"py3-none-{_platform()}"}
            build_data["force_include"][str(library)] = f"tfod/kernel/{library.name}"


def _platform() -> str:
    """Return the platform tag. On macOS, Python may be universal, but the kernel is not."""
    name = sysconfig.get_platform()
    if sys.platform == "darwin":
        machine = platform.machine()
        version = "11.0" if machine == "arm64" else "10.12"  # the oldest that Rust supports
        name = f"macosx-{version}-{machine}"
    return name.replace("-", "_").replace(".", "_")


def _compile(source: Path, target: Path) -> str:
    """Compile the kernel, and return the reason if that failed, or ''."""
    if os.environ.get("TFOD_KERNEL") == "0":
        return "TFOD_KERNEL=0"
    cargo = shutil.which("cargo")
    if cargo is None:
        return "no cargo"
    result = subprocess.run(
        [cargo, "build", "--release", "--offline", "--target-dir", str(target)],
        cwd=source,
        capture_output=True,
        text=True,
    )
    if not result.returncode:
        return ""
    return (result.stderr.strip().splitlines() or ["cargo failed"])[-1]


class ReadmeHook(MetadataHookInterface):
    """A hook that adds the README with absolute links, and the addresses of the project.

    The address of the repository is in pyproject.toml only, as an option of this hook.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Add ``readme`` and ``urls`` for the tag of this version."""
        repository, tag = self.config["repository"], f"v{metadata['version']}"
        text = Path(self.root, "README.md").read_text("utf-8")

        def make_absolute(match: re.Match[str]) -> str:
            mark, label, target = match.groups()
            return f"{mark}{label}({repository}/{'raw' if mark else 'blob'}/{tag}/{target})"

        text = _IMAGE_OR_LINK.sub(make_absolute, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        pages = {name: f"{repository}/blob/{tag}/{path}" for name, path in _PAGES.items()}
        metadata["urls"] = {"Source": repository, "Issues": f"{repository}/issues", **pages}
