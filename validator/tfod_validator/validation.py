"""Check files, and repair or convert a copy of them: the same for the service and in a browser.

The files are in the working folder, so that reports contain their names without a path.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfod.checker.analysis.decoding import parse_max_decoded
from tfod.checker.check import Options, check
from tfod.checker.configuration import Configuration, make_options
from tfod.checker.finding import Severity, plural
from tfod.checker.references.cvat_task import load_task
from tfod.checker.report import Report
from tfod.checker.reporters.html import render_html
from tfod.checker.reporters.json import render_json
from tfod.checker.reporters.junit import render_junit
from tfod.checker.reporters.samples import choose_samples
from tfod.checker.reporters.text import render_text
from tfod.checker.rules.registry import all_rules
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.errors import TfodError
from tfod.formats.options import OddBoxes
from tfod.formats.options import Options as ConvertOptions
from tfod.formats.table import SHARDS, convert, recognize
from tfod.shards.repair import Options as RepairOptions
from tfod.shards.repair import repair
from tfod.sources.format_recognition import FORMATS
from tfod.sources.resolved import File, LabelMapFile, ResolvedSources
from tfod.sources.resolver import resolve, resolve_uploads
from tfod.tfrecord.storage.archive import ZipLimits, read_zip

from tfod_validator.offers import find_convertible, list_buttons, list_offers

_HERE = Path(__file__).parent
_FOLDERS = (_HERE / "examples", _HERE.parents[1] / "examples")  # in the wheel, and in a clone
EXAMPLES = {
    name: next(folder for folder in _FOLDERS if folder.is_dir()) / f"shapes_{name}.zip"
    for name in ("good", "broken")
}
"""The example zips that the page offers."""


class CopyError(TfodError):
    """A copy that cannot be repaired or converted; the text is for the user of the page."""


@dataclass(frozen=True)
class Choices:
    """The choices of the form.

    Attributes:
        receiver: name of the program that will read the shards; None for any.
        profile: name or file of the layout; None for the best match.
        label_map: name of a label map of tfod.
        label_map_file, cvat_labels: paths of the label map and of the labels of a CVAT task.
        decode: ``all``, ``auto`` or a number of images of each shard.
        odd_boxes: ``clip`` or ``drop`` boxes that need a decision; None to leave them.
    """

    receiver: str | None = None
    profile: str | None = None
    label_map: str | None = None
    label_map_file: str | None = None
    cvat_labels: str | None = None
    decode: str = "auto"
    odd_boxes: str | None = None


@dataclass(frozen=True)
class Limits:
    """The limits of a check; see :class:`tfod_validator.settings.Settings`."""

    max_findings: int = 1000
    max_images: int = 12
    max_record_bytes: int = 256 << 20
    archive: ZipLimits = field(default_factory=ZipLimits)


@dataclass(frozen=True)
class Outcome:
    """A report in each format, the repairs that its page offers, and what it can convert from."""

    texts: Mapping[str, str]
    offers: Sequence[dict[str, Any]]
    convertible: str


def prepare_check(
    names: Sequence[str], choices: Choices, limits: Limits
) -> tuple[ResolvedSources, Options]:
    """Resolve files or folders for a check; raise TfodError if a choice is invalid."""
    options = make_options(
        Configuration(
            receiver=choices.receiver, profile=choices.profile, label_map=choices.label_map
        ),
        Configuration(),
        task=load_task(choices.cvat_labels, None) if choices.cvat_labels else None,
        decode=parse_max_decoded(choices.decode),
        max_findings=limits.max_findings,
        max_record_bytes=limits.max_record_bytes,
        archive_limits=limits.archive,
    )
    sources = _resolve(sorted(names), limits.archive)
    if choices.label_map_file:
        file = choices.label_map_file
        sources = sources.with_label_map(LabelMapFile.at(file, Path(file).name))
    return sources, options


def _resolve(names: Sequence[str], limits: ZipLimits) -> ResolvedSources:
    if not any(map(os.path.isdir, names)):
        return resolve_uploads([File.at(name) for name in names], limits)
    with resolve(names, limits=limits) as sources:  # of files on this machine, nothing is copied
        return sources


def render_outcome(
    report: Report,
    sources: ResolvedSources,
    options: Options,
    limits: Limits,
    *,
    is_repaired: bool = False,
) -> Outcome:
    """Render a report in all formats, and find what its page offers."""
    offers, convertible = list_offers(report, is_repaired=is_repaired), find_convertible(report)
    samples = choose_samples(report, sources.shards, options.profile, limits.max_images)
    texts = {
        "html": render_html(report, samples, list_buttons(offers, convertible)),
        "json": render_json(report),
        "junit": render_junit(report),
        "text": render_text(report, color=False),
    }
    return Outcome(texts, offers, convertible)


def check_examples() -> None:
    """Check the examples, so that the next check has all imports and caches.

    These take three quarters of the time of a small check.
    """
    for example in EXAMPLES.values():
        sources, options = prepare_check([str(example)], Choices(), Limits())
        render_outcome(check(sources, options), sources, options, Limits())


def repair_copy(
    files: Sequence[str], folder: Path, choices: Choices, limits: Limits, default: str
) -> dict[str, Any]:
    """Write a repaired copy of files to a new folder, and return the changes as JSON.

    ``default`` is the folder of the files, which is repaired if they are not a single zip. Raises
    TfodError if the files cannot be repaired, and CopyError if nothing would change.
    """
    zips = find_zips(files)
    # A single file next to a single zip is its label map.
    source = zips[0] if len(zips) == 1 and len(files) <= 2 else default
    options = RepairOptions(
        receiver=choices.receiver,
        label_map=_find_label_map(choices, files, zips if source in zips else files),
        odd_boxes=OddBoxes(choices.odd_boxes) if choices.odd_boxes else None,
        max_record_bytes=limits.max_record_bytes,
    )
    outcome = repair(source, str(folder), options)
    if outcome.is_useless:
        errors = plural(outcome.remaining.counts.by_severity[Severity.ERROR], "error")
        detail = f"Nothing in these files can be repaired without your decision ({errors}). "
        raise CopyError(f"{detail}Follow the advice in its report.")
    changes = [
        {"code": code, "title": all_rules()[code].title, "count": count}
        for code, count in sorted(outcome.by_code.items())
    ]
    counts = {"records_changed": outcome.changed, "records_dropped": outcome.dropped}
    return {**counts, "changes": changes}


def convert_copy(
    files: Sequence[str], folder: Path, choices: Choices, limits: Limits
) -> dict[str, Any]:
    """Write a zip of annotations to a new folder as shards, and return what was converted, as JSON.

    Raises TfodError if the files are not a single zip of annotations, or they are invalid.
    """
    zips = find_zips(files)
    options = ConvertOptions(
        label_map=_find_label_map(choices, files, zips),
        odd_boxes=OddBoxes(choices.odd_boxes or "refuse"),
        largest_source_id=LARGEST_FOR.get(choices.receiver or ""),
    )
    if len(zips) != 1 or len(files) > 2:
        raise TfodError("only a single zip can be converted")
    damage = read_zip(zips[0], limits.archive).damage
    if damage is not None:
        raise TfodError(damage.cause)
    names = recognize(zips[0], None).names
    if names[0] == SHARDS:
        raise TfodError("the zip already contains shards")
    result = convert(zips[0], str(folder), options, names[0], SHARDS)
    return {
        "format": FORMATS[names[0]].title,
        "images": sum(result.images.values()),
        "objects": sum(result.objects.values()),
        "notes": list(result.notes),
    }


def pack(folder: Path, archive: Path) -> None:
    """Pack the files of a folder into a zip."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as output:
        for path in sorted(folder.rglob("*")):
            output.write(path, path.relative_to(folder))


def find_zips(files: Sequence[str]) -> list[str]:
    """Return the files that are zips."""
    return [file for file in files if zipfile.is_zipfile(file)]


def _find_label_map(choices: Choices, files: Sequence[str], sources: Sequence[str]) -> str | None:
    """Return the label map for the sources: the other file, the chosen one, or the named one."""
    others = [file for file in files if file not in sources]
    return next(iter(others), choices.label_map_file or choices.label_map)
