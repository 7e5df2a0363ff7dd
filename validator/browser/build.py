"""Build the page that checks in the browser: ``make browser``, or ``--help``.

The folder has everything that the page needs, so any static host can serve it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from tfod.checker.reporters.html import report_css
from tfod.cli.arguments import not_empty
from tfod_validator.templating import BROWSER_POLICY, list_choices, prepare

from .distribution import (
    BrowserBuildError,
    copy_pyodide,
    download_wheels,
    read_pins,
    run_pip,
    write_pins,
)
from .kernel_wasm import KernelBuildError, compile_kernel

_ROOT = Path(__file__).parents[2]
_SERVICE = _ROOT / "validator" / "tfod_validator"
_SOURCES = (Path(__file__).parent, _SERVICE / "static", _ROOT / "plugin/tfod/viewer/page")
"""The folders with scripts and style sheets."""
_REFERENCES = re.compile(r"""(?:src=|href=|from |import )["'](?:\./)?([\w.-]+\.\w+)["']""")
"""Files of a page or script, whose addresses are relative."""
_LIST = "packages.json"
_ENDPOINTS = {"pages.report_style": "report.css", "pages.index": "./"}


def build(output: Path, source: str, pins: dict[str, Any]) -> None:
    """Build the page in a new folder, which then replaces ``output``.

    Raises:
        BrowserBuildError, KernelBuildError: the text says what to do.
    """
    if output.exists() and any(output.iterdir()) and not (output / _LIST).exists():
        raise BrowserBuildError(f"{output} has other files; name a new folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as name:
        folder = Path(name, "page")
        wheels = folder / "wheels"
        wheels.mkdir(parents=True)
        kernel = Path(name, "tfod_kernel.wasm")
        compile_kernel(_ROOT / "plugin/tfod/kernel", kernel)
        packages = copy_pyodide(source, folder / "pyodide", pins, output / "pyodide")
        download_wheels(wheels, without=packages)
        run_pip(
            ["wheel", "--no-deps", "--wheel-dir", str(wheels), str(_ROOT)],
            {**os.environ, "TFOD_KERNEL_WASM": str(kernel)},
        )
        listed = {
            "pyodide": pins["version"],
            "packages": packages,
            "wheels": sorted(f"wheels/{path.name}" for path in wheels.iterdir()),
        }
        (folder / _LIST).write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
        (folder / "report.css").write_text(report_css(), "utf-8")
        (folder / "index.html").write_text(_render(), "utf-8")
        for start in ("index.html", "worker.js"):
            _copy_references(start, folder)
        if output.exists():
            output.rename(Path(name, "old"))
        folder.rename(output)


def _render() -> str:
    """Render the page with relative addresses."""
    environment = Environment(loader=FileSystemLoader(_SERVICE / "templates"), autoescape=True)
    prepare(environment)

    def url_for(endpoint: str, filename: str = "") -> str:
        return filename or _ENDPOINTS[endpoint]

    values = {"url_for": url_for, "policy": BROWSER_POLICY, **list_choices()}
    return str(environment.get_template("browser.html").render(values))


def _copy_references(name: str, folder: Path) -> None:
    """Copy a file unless it exists, and all files that it names."""
    target = folder / name
    if not target.exists():
        sources = [source / name for source in _SOURCES]
        shutil.copyfile(next(filter(Path.exists, sources), sources[0]), target)
    if target.suffix in (".html", ".js"):
        for reference in _REFERENCES.findall(target.read_text("utf-8")):
            if not (folder / reference).exists():
                _copy_references(reference, folder)


def main() -> int:
    """Build the page, or pin another version of Pyodide."""
    parser = argparse.ArgumentParser(description="Build the page that checks in the browser.")
    parser.add_argument("--pyodide", default="", help="folder, URL of a folder, or .tar.bz2")
    parser.add_argument("--output", type=Path, default=_ROOT / "build/browser", help="folder")
    pin_help = "pin this version of Pyodide instead"
    parser.add_argument("--pin", type=not_empty, metavar="VERSION", help=pin_help)
    arguments = parser.parse_args()
    try:
        if arguments.pin:
            write_pins(arguments.pin, arguments.pyodide)
        else:
            build(arguments.output.absolute(), arguments.pyodide, read_pins())
            print(f"To open the page: python3 -m http.server -b 127.0.0.1 -d {arguments.output}")
    except (BrowserBuildError, KernelBuildError, OSError) as error:
        print(f"make browser: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
