"""The check in a browser: a worker of the static page calls it, in Pyodide."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup
from tfod.checker.finding import plural, size
from tfod.checker.reporters.html import AFTER_HEAD, find_body
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.sources.format_recognition import recognize_annotations
from tfod.sources.label_map_search import may_be_label_map
from tfod.viewer.session import Session

from tfod_validator.offers import LABELS
from tfod_validator.templating import prepare
from tfod_validator.validation import (
    EXAMPLES,
    Choices,
    CopyError,
    Limits,
    check_examples,
    convert_copy,
    pack,
    prepare_check,
    render_outcome,
    repair_copy,
)

Progress = Callable[[int, int], object]
"""A function that is called with the numbers of bytes and records that were read."""
_SECONDS_BETWEEN_PAUSES = 0.05
_MAX_COPIED_BYTES = 2_000_000_000
"""WebAssembly has 32 bits, and the copy is in memory."""
_LIMITS = Limits()


class Checker:
    """The checks of a page, one after the other.

    ``check`` and ``change`` return JSON: ``main`` has the report for the page, ``title`` its title,
    ``texts`` the report in each format, ``zip`` the path and name of the copy. If there is no
    report, it has only ``problem``, a sentence; after ``stop``, it is empty.
    """

    def __init__(self) -> None:
        self._session: Session | None = None
        self._running: Session | None = None
        self._choices = Choices()
        self._copy: TemporaryDirectory[str] | None = None

    def prepare(self) -> None:
        """Make the first check faster while the user chooses files."""
        check_examples()

    def find_example(self, name: str) -> str:
        """Return the path of an example, ``good`` or ``broken``."""
        return str(EXAMPLES[name])

    async def check(self, folder: str, choices: str, progress: Progress) -> str:
        """Check the files and folders in a folder; ``choices`` has members of Choices, as JSON."""
        self._choices = Choices(**json.loads(choices))
        self._use(folder)
        try:
            return json.dumps(await self._check({}, progress))
        except TfodError as error:
            text = str(error)
            if self._choices.cvat_labels:  # without the path, which the user does not know
                path = Path(self._choices.cvat_labels)
                text = text.replace(str(path), path.name)
            if isinstance(error, ShardsNotFoundError):
                text = _suggest_zip() or text
            return json.dumps({"problem": f"The check could not run: {text}"})

    async def change(self, action: str, odd_boxes: str, progress: Progress) -> str:
        """Repair or convert a copy of the files that were checked last, and check the copy."""
        verb = "converted" if action == "convert" else "repaired"
        files = _list_files()
        total = sum(path.stat().st_size for path in Path().rglob("*") if path.is_file())
        if total > _MAX_COPIED_BYTES:
            limit = f"{size(total)}, and a browser can copy at most {size(_MAX_COPIED_BYTES)}"
            problem = f"The files have {limit}. Run tfod {action} on your computer instead."
            return json.dumps({"problem": problem})
        name = f"{Path(files[0]).stem.removesuffix(f'_{verb}')}_{verb}.zip"
        choices = replace(self._choices, odd_boxes=odd_boxes or None)
        copy = TemporaryDirectory()
        try:
            with TemporaryDirectory() as scratch:
                folder = Path(scratch, verb)
                if action == "convert":
                    copied = {"conversion": convert_copy(files, folder, choices, _LIMITS)}
                else:
                    copied = {"repair": repair_copy(files, folder, choices, _LIMITS, os.curdir)}
                pack(folder, Path(copy.name, name))
            self._use(copy.name, copy)
            return json.dumps(await self._check(copied, progress))
        except TfodError as error:
            is_sentence = isinstance(error, CopyError)
            text = str(error).replace("--odd-boxes ", "")
            problem = text if is_sentence else f"The files cannot be {verb}: {text}"
            return json.dumps({"problem": problem})

    def ask(self, method: str, arguments: str) -> str:
        """Answer a request of the viewer, as JSON; ``problem`` is set if it is invalid."""
        assert self._session is not None
        try:
            return json.dumps(self._session.answer(method, json.loads(arguments)))
        except TfodError as error:
            return json.dumps({"problem": str(error)})

    def stop(self) -> None:
        """Stop the check at its next pause."""
        self._running = None

    def _use(self, folder: str, copy: TemporaryDirectory[str] | None = None) -> None:
        """Work in another folder, and delete the copy that was in use."""
        os.chdir(folder)  # reports contain file names without a path
        if self._copy is not None:
            self._copy.cleanup()
        self._copy = copy

    async def _check(self, copied: dict[str, Any], progress: Progress) -> dict[str, Any]:
        names = _list_files()
        if self._session is not None:
            self._session.close()
        sources, options = prepare_check(names, self._choices, _LIMITS)
        session = self._session = self._running = Session(sources, options)
        progress(0, 0)
        paused = 0.0
        for done, records in session.steps():
            if time.monotonic() - paused > _SECONDS_BETWEEN_PAUSES:
                progress(done, records)
                await asyncio.sleep(0)  # for requests of the viewer
                paused = time.monotonic()
                if self._running is not session:
                    return {}
        report = session.report
        assert report is not None
        is_repaired = "repair" in copied
        outcome = render_outcome(report, sources, options, _LIMITS, is_repaired=is_repaired)
        page = outcome.texts["html"].encode("utf-8", "replace")
        start, middle, stop = find_body(page)
        offered = {"offers": outcome.offers, "convertible": outcome.convertible}
        main = _load_template().render(
            head=Markup(page[start:middle].decode()),
            sections=Markup(page[middle + len(AFTER_HEAD) : stop].decode()),
            labels=LABELS,
            validation={"result": {"valid": report.valid, **offered, **copied}},
            has_records=bool(report.counts.records),
            zip_name=names[0],
        )
        others = sum(not may_be_label_map(name) for name in names[1:])
        more = f" and {plural(others, 'more file')}" if others else ""
        return {
            "main": main,
            "title": f"{'Valid' if report.valid else 'Invalid'}: {names[0]}{more} · tfod",
            "texts": outcome.texts,
            "zip": str(Path(names[0]).absolute()) if copied else "",
        }


def _list_files() -> list[str]:
    """Return the files of the working folder, the label maps last."""
    return sorted(os.listdir(), key=lambda name: (may_be_label_map(name), name))


def _suggest_zip() -> str:
    """Say how to convert a folder of annotations on the page, if there is one."""
    for name in filter(os.path.isdir, os.listdir()):
        if titles := recognize_annotations(name).titles:
            zipped = "pack the folder into a zip and check that; the page can convert it"
            return f"{name} contains {titles} annotations, no shards; {zipped}"
    return ""


@cache
def _load_template() -> Template:
    environment = Environment(loader=PackageLoader("tfod_validator"), autoescape=True)
    prepare(environment)
    return environment.get_template("checked.html")
