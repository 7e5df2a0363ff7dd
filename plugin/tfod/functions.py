"""The commands ``check``, ``convert``, ``describe`` and ``diff`` as functions of the library.

May import ``shards`` and the packages below it. The parameters have the names of the commands'
arguments, and the same defaults. The commands call these functions, too.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tfod.errors import TfodError, excerpt, suggest

if TYPE_CHECKING:
    from tfod.checker.check import Options as CheckOptions
    from tfod.checker.configuration import Configuration
    from tfod.checker.report import Report
    from tfod.detection.features.field_mapping import FieldMapping
    from tfod.formats.dataset import ConversionResult
    from tfod.formats.options import CompleteShard
    from tfod.shards.describe import Description
    from tfod.shards.diff import Diff
    from tfod.sources.resolved import ResolvedSources
    from tfod.tfrecord.shard_sets.search import Sources

Path: TypeAlias = "str | os.PathLike[str]"


# Modules are imported when a function is called: each function needs only some of them.


def check(
    sources: Sources = (),
    *,
    receiver: str | None = None,
    profile: Path | None = None,
    label_map: Path | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    severity: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    fail_on: str | None = None,
    config: Path | None = None,
    cvat_labels: Path | None = None,
    cvat_xml: Path | None = None,
    images: Path | None = None,
    pipeline_config: Path | None = None,
    decode: str | int = "auto",
    jobs: int = 1,
    max_findings: int = 1000,
    baseline: Path | None = None,
) -> Report:
    """Check shards for errors, like ``tfod check``, which also explains the options.

    Args:
        sources: one or more files, folders, zips, globs or URLs; by default those in the
            ``pipeline_config``.
        receiver: program that will read the shards (``--for``).
        profile: name or file of the expected features.
        label_map: file or name of a label map for all shards.
        select: rules or families to check; an empty list stands for all.
        ignore: rules or families not to check.
        severity: level of rules or families, such as ``{"BOX003": "warning"}``.
        fail_on: level that makes shards invalid, ``error`` or ``warning``.
        config: a ``tfod.toml``; by default the nearest one in the working folder and its parents.
        cvat_labels: labels of the CVAT task, as JSON.
        cvat_xml: ``annotations.xml`` of the CVAT task.
        images: folder with the original images.
        pipeline_config: training configuration of the OD API.
        decode: images to decode: ``all``, ``none``, a number per shard, or ``auto``, which is all
            images of up to 200 MB and a sample of larger shards.
        jobs: number of processes. A script that uses several must be importable, with its code
            under ``if __name__ == "__main__":``.
        max_findings: maximum number of findings to list.
        baseline: JSON report of an earlier check, whose findings are not reported again.

    Raises:
        TfodError: the sources contain no shards, or an option is invalid.
    """
    with open_check(SimpleNamespace(**locals())) as opened:
        from tfod.checker.check import check

        return check(opened.sources, opened.options)


class OpenCheck(NamedTuple):
    """The options and the resolved sources of a check.

    Attributes:
        sources: the sources without the files that the configuration excludes.
        all_sources: the sources with these files.
        excluded: the names of these files.
    """

    options: CheckOptions
    configuration: Configuration
    sources: ResolvedSources
    all_sources: ResolvedSources
    excluded: Collection[str]


@contextmanager
def open_check(arguments: Any, **more: Any) -> Iterator[OpenCheck]:
    """Load the options of a check, and resolve its sources until the context ends.

    Args:
        arguments: an object with the parameters of :func:`check` as attributes.
        more: options that only the command has.
    """
    from tfod.checker.configuration import find_configuration, load_configuration

    path = _to_text(arguments.config)
    try:
        configuration = load_configuration(path) if path else find_configuration()
    except OSError as error:
        raise TfodError(f"{error.filename}: {error.strerror}") from None
    options = _make_check_options(arguments, configuration, more)
    with _resolve(_to_list(arguments.sources), options) as all_sources:
        sources, excluded = all_sources.exclude(configuration.excludes)
        if excluded and not sources.datasets:
            raise TfodError(
                f"{configuration.file} excludes all files; name others, or change its exclude"
            )
        yield OpenCheck(options, configuration, sources, all_sources, excluded)


def _make_check_options(arguments: Any, file: Configuration, more: dict[str, Any]) -> CheckOptions:
    from tfod.checker.analysis.decoding import parse_max_decoded
    from tfod.checker.configuration import LEVELS, Configuration, make_options
    from tfod.checker.receivers import RECEIVERS

    levels = dict(arguments.severity)
    for code, level in levels.items():
        _choose(f"--severity {code}", level, LEVELS)
    _require_rules("--severity", levels)
    requested = Configuration(
        receiver=_choose("--for", arguments.receiver, RECEIVERS),
        profile=_to_text(arguments.profile),
        label_map=_to_text(arguments.label_map),
        select=_require_rules("--select", arguments.select),
        ignore=_require_rules("--ignore", arguments.ignore),
        severity={code.upper(): level.lower() for code, level in levels.items()},
        fail_on=_choose("--fail-on", arguments.fail_on, LEVELS[:2]),
    )
    try:
        decode = parse_max_decoded(str(arguments.decode).lower())
    except ValueError as error:
        raise TfodError(f"--decode: {error}") from None
    names = ("cvat_labels", "cvat_xml", "images")
    references = {name: _to_text(getattr(arguments, name)) for name in names}
    if any(references.values()):
        from tfod.checker.references.cvat_task import load_task

        more["task"] = load_task(**references)
    if arguments.pipeline_config is not None:
        from tfod.checker.references.pipeline_config import TrainingConfig

        more["training_config"] = TrainingConfig(os.fspath(arguments.pipeline_config))
    if arguments.baseline:
        from tfod.checker.baseline import read_baseline

        more["baseline"] = read_baseline(os.fspath(arguments.baseline))
    _require_number("--max-findings", arguments.max_findings, 1)
    _require_number("--jobs", arguments.jobs, 1)
    more |= {"decode": decode, "jobs": arguments.jobs, "max_findings": arguments.max_findings}
    return make_options(requested, file, **more)


def _resolve(
    sources: Sequence[str], options: CheckOptions
) -> AbstractContextManager[ResolvedSources]:
    """Resolve the sources, by default those in the pipeline configuration."""
    from tfod.sources.resolved import ResolvedSources
    from tfod.sources.resolver import resolve

    if not sources and options.training_config is not None:
        sources = options.training_config.sources()
        if not sources:
            return nullcontext(ResolvedSources())  # the report says that the config names no shards
    if not sources:
        raise TfodError("nothing to check; pass shards, a folder or a zip")
    return resolve(sources, options.label_map, options.archive_limits)


def convert(
    source: Path,
    target: Path,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    images: Path | None = None,
    no_images: bool = False,
    label_map: Path | None = None,
    profile: Path | None = None,
    subset: str | None = None,
    num_shards: int = 1,
    masks: bool = False,
    keypoints: bool = False,
    ignore_difficult: bool = False,
    receiver: str | None = None,
    boxes: str | None = None,
    odd_boxes: str = "refuse",
    odd_masks: str = "refuse",
    exif: str = "upright",
    overwrite: bool = False,
    dry_run: bool = False,
) -> ConversionResult:
    """Convert a dataset to shards or to another format, like ``tfod convert``.

    Args:
        source: shards, or a dataset in another format.
        target: folder to write to, or a file such as ``train.record``, ``x.json`` or ``x.csv``.
        source_format: format of the source, if it is ambiguous (``--from``).
        target_format: format to write; by default the one that the target shows (``--to``).
        images: folder to read images from, or to write them to if the source is shards.
        no_images: write no images.
        label_map: file or name of a label map with the ids of the classes.
        profile: name or file of the keys of the source shards.
        subset: the only subset to convert; without subsets, the name of the result (``--set``).
        num_shards: number of shards per subset.
        masks: write the outline of each object as a mask; in YOLO, as a polygon.
        keypoints: write poses to YOLO, also if the objects have masks.
        ignore_difficult: leave out objects that VOC marks as difficult.
        receiver: program that will read the shards (``--for``).
        boxes: ``pixels`` if the boxes of the source shards are in pixels.
        odd_boxes: ``refuse``, ``clip`` or ``drop`` boxes that do not fit their image.
        odd_masks: ``refuse``, ``scale`` or ``drop`` masks that do not fit their image.
        exif: store rotated images ``upright``, or ``keep`` them and rotate the boxes back.
        overwrite: replace existing files.
        dry_run: return the result of the conversion, but write nothing.

    Raises:
        TfodError: the source is invalid, the output exists, or an option does not apply.
    """
    from tfod.detection.images.source_ids import LARGEST_FOR
    from tfod.formats.options import OddBoxes, OddMasks, Options
    from tfod.formats.table import FORMATS, TARGETS, convert

    receiver = _choose("--for", receiver, LARGEST_FOR)
    boxes = _choose("--boxes", boxes, ("pixels",))
    odd_boxes = _choose("--odd-boxes", odd_boxes, ("refuse", "clip", "drop")) or "refuse"
    odd_masks = _choose("--odd-masks", odd_masks, ("refuse", "scale", "drop")) or "refuse"
    _require_number("--num-shards", num_shards, 1)
    options = Options(
        field_mapping=_load_field_mapping(profile),
        label_map=_to_text(label_map),
        images=_to_text(images),
        no_images=no_images,
        subset=subset,
        masks=masks,
        keypoints=keypoints,
        ignore_difficult=ignore_difficult,
        odd_boxes=OddBoxes(odd_boxes),
        odd_masks=OddMasks(odd_masks),
        upright=_choose("--exif", exif, ("upright", "keep")) != "keep",
        num_shards=num_shards,
        largest_source_id=LARGEST_FOR.get(receiver or ""),
        verify=None if no_images else functools.partial(_verify, receiver),
        boxes_in_pixels=boxes is not None,
        overwrite=overwrite,
        dry_run=dry_run,
    )
    return convert(
        os.fspath(source),
        os.fspath(target),
        options,
        _choose("--from", source_format, FORMATS),
        _choose("--to", target_format, TARGETS),
    )


def _verify(
    receiver: str | None, shards: Sequence[CompleteShard], label_map: str, layout: str
) -> None:
    from tfod.shards.verify import verify  # the checker takes long to load

    verify(shards, label_map, layout, receiver)


def diff(
    a: Path,
    b: Path,
    *,
    from_a: str | None = None,
    from_b: str | None = None,
    label_map: Path | None = None,
    profile: Path | None = None,
    images: Path | None = None,
    tolerance: float = 1.02,
    without: Iterable[str] = (),
    subset: str | None = None,
    same_subsets: bool = False,
    max_differences: int = 100,
) -> Diff:
    """Compare two datasets, like ``tfod diff``.

    Args:
        a: a shard, folder, glob or zip, or a dataset in a format that :func:`convert` reads.
        b: the dataset to compare with ``a``.
        from_a: format of ``a``, if it is ambiguous.
        from_b: format of ``b``, if it is ambiguous.
        label_map: file or name of a label map for all records.
        profile: name or file of the keys of the records.
        images: images of the side that is not shards.
        tolerance: pixels by which box sides may differ.
        without: values that are not compared, such as ``masks`` or ``images``.
        subset: the only subset to compare (``--set``).
        same_subsets: whether a record in a different subset counts as a difference.
        max_differences: maximum number of differences to list per kind.

    Raises:
        TfodError: a dataset is invalid, or an option is.
    """
    from tfod.formats.options import OddBoxes, Options
    from tfod.formats.table import FORMATS
    from tfod.shards.diff import Diff, read_side

    names = _to_list(without)
    if not 0 <= tolerance < math.inf:
        raise TfodError(f"--tolerance {tolerance!r} is not a number of pixels")
    _require_number("--max-differences", max_differences, 0)
    options = Options(
        _to_text(label_map),
        _to_text(images),
        no_images="images" in names,
        subset=subset,
        masks="masks" not in names,
        odd_boxes=OddBoxes.KEEP,
        field_mapping=_load_field_mapping(profile),
    )
    sides = (
        read_side(os.fspath(path), options, _choose(option, name, FORMATS), option)
        for path, name, option in ((a, from_a, "--from-a"), (b, from_b, "--from-b"))
    )
    return Diff(
        *sides,
        tolerance=tolerance,
        same_subsets=same_subsets,
        without=names,
        max_differences=max_differences,
    )


def describe(sources: Sources, *, profile: Path | None = None) -> Description:
    """Read all records of some shards, and summarize them, like ``tfod describe``.

    Args:
        sources: one or more shards, folders, globs, zips or URLs.
        profile: name or file of the keys of the records; by default the layout that fits best.

    Raises:
        TfodError: there are no shards, or no record can be read.
    """
    from tfod.shards.describe import describe

    return describe(_to_list(sources), field_mapping=_load_field_mapping(profile))


def _load_field_mapping(profile: Path | None) -> FieldMapping | None:
    if profile is None:
        return None
    from tfod.checker.profiles.file import load_profile  # rarely needed

    return load_profile(os.fspath(profile)).field_mapping


# Values of the options. The command line checks most of them earlier, to show its help.


def _to_text(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _to_list(values: Sources) -> list[str]:
    """Return one or several paths or names as a list."""
    return [os.fspath(x) for x in ([values] if isinstance(values, str | os.PathLike) else values)]


def _choose(option: str, value: str | None, choices: Iterable[str]) -> str | None:
    """Return a choice in lowercase; raises TfodError if there is no such choice."""
    if value is None or str(value).lower() in choices:
        return None if value is None else value.lower()
    hint = suggest(value, choices) or f"choose from {', '.join(choices)}"
    raise TfodError(f"{option}: invalid choice: {excerpt(value)}; {hint}")


def _require_rules(option: str, names: Iterable[str]) -> list[str]:
    """Return the codes and families of rules; raises TfodError for others."""
    from tfod.checker.rules.registry import require_rule_names

    rules = [name.strip().upper() for text in _to_list(names) for name in text.split(",")]
    require_rule_names(rules, option)
    return rules


def _require_number(option: str, value: int, minimum: int) -> None:
    if not isinstance(value, int) or value < minimum:
        raise TfodError(f"{option} {excerpt(value)} is not a whole number of {minimum} or more")
