"""Sets of shards and their label map, written together or not at all."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec, TypeAlias

from tfod.detection.detection import Detection
from tfod.detection.encoder import encode_detection
from tfod.detection.images.source_ids import SourceIdNumbers, last_before_free
from tfod.detection.labels.label_map import read_label_map
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.errors import TfodError
from tfod.shards.create.label_maps import ChosenLabelMap
from tfod.shards.create.problems import STRICT, Policy, Problems
from tfod.tfrecord.output_folder import OutputFolder
from tfod.tfrecord.shard_sets.names import numbered_file_names
from tfod.tfrecord.writer import ShardLayout

_P = ParamSpec("_P")
_MOST_ERRORS = 10  # that are said of shards which would be INVALID
_AROUND = 12  # characters before and behind the bytes that are not text


class CompleteShard(NamedTuple):
    """A complete shard: the path that it will have, where it is, what it is made from."""

    path: str
    aside: str
    source: str


Verify: TypeAlias = "Callable[[Sequence[CompleteShard], str], None]"
"""Is given all shards and the text of their label map; if it raises, nothing gets its name."""
Make: TypeAlias = "Callable[[Any, Problems], Detection | None]"


@dataclass(frozen=True)
class PlannedSet:
    """One set of shards to be written.

    Attributes:
        path: of its only file; of several the numbered names start with it.
        num_shards: how many files; never more than it has images.
        source: the annotations that its records are made from, for messages.
        items: what its records are made from, one for each.
        make: makes a record, or None where an item is left out; adds to the problems.
        source_ids: those that the items have of their own.
    """

    path: str
    num_shards: int
    source: str
    items: Iterable[Any]
    make: Make
    source_ids: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Of its only file, without the extension."""
        return os.path.basename(self.path)

    def file_names(self, count: int) -> list[str]:
        """Names for so many files."""
        return numbered_file_names(self.name, count)

    def is_there(self, folder: str) -> list[str]:
        """Those of its files, of any number, that a folder has."""
        ours = re.compile(re.escape(self.name) + r"(-\d{5}-of-\d{5})?")
        try:
            entries = sorted(os.listdir(folder))
        except OSError:
            return []  # there is no such folder yet
        return [os.path.join(folder, entry) for entry in entries if ours.fullmatch(entry)]


@dataclass(frozen=True)
class CreatedSet:
    """One set that was written: paths of its shards, and how many images and objects it has."""

    shards: tuple[str, ...]
    images: int
    objects: int


@dataclass(frozen=True)
class Created:
    """What was written.

    Attributes:
        sets: the sets of shards.
        label_map: path of the label map beside them.
        label_map_written: whether it was written; else the same one was there.
        notes: what was odd or left out, as sentences.
    """

    sets: tuple[CreatedSet, ...]
    label_map: str
    label_map_written: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Options:
    """What may be asked of every format.

    Attributes:
        label_map: a file, or a name that tfod ships, that has the ids; None is the format's way.
        num_shards: how many files; None is what the format's script writes. Never more than images.
        overwrite: replace sets of the same names.
        policy: what to do with boxes and images that do not fit.
        verify: is given the complete files before they have their names.
        largest_source_id: source ids that are no number up to this one are replaced by numbers;
            None to number only images that have none.
    """

    label_map: str | None = None
    num_shards: int | None = None
    overwrite: bool = False
    policy: Policy = STRICT
    verify: Verify | None = None
    largest_source_id: int | None = None


class Plan(NamedTuple):
    """Sets that are to be written, their label map, what did not fit until now, and options."""

    sets: Sequence[PlannedSet]
    chosen: ChosenLabelMap
    problems: Problems
    options: Options = Options()


def creates(plan: Callable[_P, Plan]) -> Callable[_P, Created]:
    """What writes the sets that a function plans, with the same arguments."""

    @functools.wraps(plan)
    def create(*args: _P.args, **kwargs: _P.kwargs) -> Created:
        return write_sets(plan(*args, **kwargs))

    # What help() shows: the name that it has, and what it returns.
    create.__name__ = create.__qualname__ = plan.__name__.replace("plan_", "create_")
    create.__doc__ = f"Write the sets, complete or none.\n\n    {plan.__doc__}"
    signature = inspect.signature(plan).replace(return_annotation="Created")
    vars(create)["__signature__"] = signature
    return create


def write_sets(plan: Plan, *, sources: Sequence[str] = ()) -> Created:
    """Write sets into one folder, and the label map beside them.

    All files appear complete or none does, and what was there before is unchanged; also when it
    is interrupted. Files of ``sources`` are never replaced.

    Raises:
        TfodError: something is there already, the problems have refused something, no image or none
            of the annotated objects is left, or whatever the records and ``verify`` raise.
        WriteError: a file cannot be written.
    """
    planned, chosen, problems, options = plan
    for one in planned:
        _require_shard_path(one)
    folder = os.path.dirname(planned[0].path) or "."
    beside = os.path.join(folder, LABEL_MAP_FILE)
    replaces_map = os.path.exists(beside)
    new_map = _must_write_label_map(chosen, beside, options.overwrite)
    if new_map and replaces_map:
        problems.add(
            "label maps replaced; other shards there have the ids of the former one", beside
        )
    by_name = {one.name: one for one in planned}

    def shards_there(name: str) -> list[str]:
        return by_name[name].is_there(folder)

    with OutputFolder(folder, sources, options.overwrite, shards_there=shards_there) as output:
        text = chosen.label_map.to_text()
        if new_map:
            with _sound_texts(chosen.name):
                output.add_text(LABEL_MAP_FILE, text.encode())
        written = _write(planned, output, problems, options.largest_source_id)
        problems.raise_refusals()
        problems.require_records(
            sum(one.images for one in written), sum(one.objects for one in written)
        )
        if options.verify is not None:
            aside = output.complete()
            complete = [
                CompleteShard(path, aside[path], plan.source)
                for plan, one in zip(planned, written, strict=True)
                for path in (one.shards if one.images else ())
            ]
            options.verify(complete, text)
    empty = [plan.path for plan, one in zip(planned, written, strict=True) if not one.images]
    notes = (*chosen.notes, *problems.sentences(), *(f"{path} holds no image" for path in empty))
    return Created(tuple(written), beside, new_map, notes)


def _must_write_label_map(chosen: ChosenLabelMap, beside: str, overwrite: bool) -> bool:
    """Whether the map has to be written; not where the same one is there."""
    if not os.path.exists(beside):
        return True
    if read_label_map(beside)[0] == chosen.label_map:
        return False
    if overwrite:
        return True
    raise TfodError(
        f"{beside} is there already and is not {chosen.name}; write elsewhere, or over it with "
        "--overwrite"
    )


def _require_shard_path(planned: PlannedSet) -> None:
    path, name = planned.path, planned.name
    if not name or os.path.isdir(path):
        raise TfodError(f"{path} is a folder; name a file in it")
    if name == LABEL_MAP_FILE:
        raise TfodError(f"{path} is the name of the label map; name the shard otherwise")
    if os.path.exists(path) and not os.path.isfile(path):
        raise TfodError(f"{path} is not a regular file; name another one")


def _write(
    planned: Sequence[PlannedSet], output: OutputFolder, problems: Problems, largest: int | None
) -> list[CreatedSet]:
    written = []
    own = [source_id for one in planned for source_id in one.source_ids]
    numbers = itertools.count(1 + last_before_free(own, largest, len(own)))
    writers = [
        output.add_subset(one.name, ShardLayout(num_shards=one.num_shards), one.file_names)
        for one in planned
    ]
    for one, writer in zip(planned, writers, strict=True):
        objects = 0
        for item, number in zip(one.items, numbers, strict=False):
            detection = one.make(item, problems)
            if detection is not None:
                writer.write(_encoded(detection, number, largest))
                objects += len(detection.boxes)
        writer.complete()
        written.append(CreatedSet(tuple(writer.paths()), writer.count, objects))
    return written


def _encoded(detection: Detection, number: int, largest: int | None) -> bytes:
    """A record; ``number`` is the source id of an image whose own does not stay."""
    detection = SourceIdNumbers(largest, lambda: number - 1).number(detection)
    with _sound_texts(detection.filename or ""):
        return encode_detection(detection)


@contextlib.contextmanager
def _sound_texts(where: str) -> Iterator[None]:
    """A text that UTF-8 cannot hold becomes an error that reads as one line."""
    try:
        yield
    except UnicodeEncodeError as error:
        # Half a surrogate pair, or a file name of bytes that are no text.
        part = ascii(error.object[max(0, error.start - _AROUND) : error.end + _AROUND])
        raise TfodError(f"{ascii(where)[1:-1]}: {part} is not Unicode text; rename it") from None


# The check of what was made, before it gets its names


class InvalidError(TfodError):
    """What was made would be INVALID; the text has an error a line, each with its source."""


def verify(shards: Sequence[CompleteShard], label_map: str, receiver: str | None = None) -> None:
    """Check shards as ``tfod check --for`` their receiver would, by default ``od-api``.

    ``label_map`` is the text of their label map.

    Raises:
        InvalidError: they are INVALID.
    """
    # Here, since nothing else of this module needs the check, which takes its time to load.
    from tfod.check.check import Options as CheckOptions
    from tfod.check.check import check
    from tfod.check.dataset import File
    from tfod.check.find import find_uploads
    from tfod.check.findings.finding import Severity, plural
    from tfod.check.profiles.profile import READY
    from tfod.check.receivers import OD_API, RECEIVERS

    if not shards:
        return
    with tempfile.TemporaryDirectory(prefix="tfod-create-") as folder:
        path = os.path.join(folder, "label_map.pbtxt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(label_map)
        options = CheckOptions(
            profile=READY["tf_detection_api"],
            receiver=RECEIVERS[receiver] if receiver else OD_API,
            label_map=path,
            max_findings=_MOST_ERRORS,
            jobs=os.cpu_count() or 1,
            hash_sources=False,
        )
        report = check(find_uploads([File.at(one.aside, one.path) for one in shards]), options)
    if report.valid:
        return
    sources = {one.path: one.source for one in shards}
    errors = [one for one in report.findings if one.severity is Severity.ERROR]
    count = report.counts.by_severity[Severity.ERROR]
    lines = [f"nothing is written: it would be INVALID, {plural(count, 'error')}"]
    for one in errors:
        where = ", ".join(part for part in (sources.get(one.shard), one.item) if part)
        lines.append(f"  {where or 'the label map'}: {one.message} ({one.code}). {one.fix}")
    if count > len(errors):
        lines.append(f"  and {count - len(errors):,} more")
    raise InvalidError("\n".join(lines))
