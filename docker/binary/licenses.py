"""THIRD_PARTY_LICENSES: the licenses of what the single file contains, as installed."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

_NOT_MENTIONED = frozenset(("tfod",))
_LICENSE_FILE = re.compile(
    r"(?i)(.*\.dist-info/(licenses/.+|[^/]*(licen[cs]e|copying|notice)[^/]*))"
)
_LINE = "=" * 80


def collect_licenses(modules: Iterable[str]) -> str:
    """Return the licenses of Python, PyInstaller and the packages that have these modules.

    Raises:
        SystemExit: a package has no license file; add it to this module by hand.
    """
    known = metadata.packages_distributions()
    names = {name for module in modules for name in known.get(module.partition(".")[0], ())}
    parts = [_describe("Python", sys.version.split()[0], [_find_python_license()])]
    for name in sorted({"pyinstaller", *names} - _NOT_MENTIONED, key=str.lower):
        package = metadata.distribution(name)
        texts = list(_read_licenses(package))
        if not texts:
            raise SystemExit(f"docker/binary/licenses.py: {name} has no license file")
        parts.append(_describe(package.metadata["Name"], package.version, texts))
    return "\n".join(parts)


def _find_python_license() -> str:
    folder = Path(sysconfig.get_path("stdlib"))
    candidates = (folder / "LICENSE.txt", folder.parents[1] / "LICENSE.txt")
    return next(path.read_text("utf-8") for path in candidates if path.exists())


def _read_licenses(package: metadata.Distribution) -> Iterator[str]:
    for file in package.files or ():
        if _LICENSE_FILE.fullmatch(file.as_posix()):
            yield file.read_text("utf-8")


def _describe(name: str, version: str, texts: Iterable[str]) -> str:
    return "\n".join((_LINE, f"{name} {version}", _LINE, "", *texts))
