"""Compile the kernel to WebAssembly."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_TARGET = "wasm32-unknown-unknown"
_OPTIONS = ("opt-level=3", "lto", "codegen-units=1", "strip=symbols")


class KernelBuildError(RuntimeError):
    """The kernel cannot be compiled to WebAssembly; the text says what to do."""


def compile_kernel(source: Path, output: Path) -> None:
    """Compile the kernel in the folder ``source`` (``plugin/tfod/kernel``) to ``output``.

    Raises:
        KernelBuildError: no rustc with the target exists, or it failed.
    """
    command = [_find_rustc(), "--target", _TARGET, "--crate-type", "cdylib", "--edition", "2021"]
    command += [argument for option in _OPTIONS for argument in ("-C", option)]
    command += ["--crate-name", "tfod_kernel", "-o", str(output), str(source / "src" / "lib.rs")]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise KernelBuildError(f"rustc cannot compile the kernel:\n{result.stderr.strip()}")


def _find_rustc() -> str:
    """Return ``RUSTC``, or the first rustc with the target, which rustup's rarely has."""
    named = os.environ.get("RUSTC")
    for rustc in [named] if named else filter(None, (shutil.which("rustc"), "/usr/bin/rustc")):
        command = [rustc, "--print", "target-libdir", "--target", _TARGET]
        try:
            folder = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        except FileNotFoundError:
            continue
        if folder and Path(folder).is_dir():
            return rustc
    raise KernelBuildError(
        f"no rustc with the target {_TARGET}: install Debian's packages rustc and "
        f"libstd-rust-dev-wasm32, or run: rustup target add {_TARGET}"
    )
