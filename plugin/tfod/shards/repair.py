"""Repairing shards: what ``tfod check`` finds and can be fixed without guessing.

A source goes in, and a folder of shards comes out, with a report of what was changed and of what a
check finds in the result. Records are fixed one by one (:mod:`tfod.shards.fixes`).
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tfod.checker.check import Options as CheckOptions
from tfod.checker.check import check
from tfod.checker.finding import Finding, Place, Severity
from tfod.checker.profiles.choice import profile_of
from tfod.checker.profiles.policy import levels_of
from tfod.checker.profiles.profile import OFF, Profile
from tfod.checker.receivers import ANY, RECEIVERS
from tfod.checker.report import Report
from tfod.checker.rules.registry import all_rules
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.images.source_ids import LARGEST_FOR, SourceIdNumbers, last_before_free
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.shards import fixes
from tfod.shards.rewrite import source_ids_of
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.sources.resolved import Dataset, LabelMapFile, ResolvedSources, Shard
from tfod.sources.resolver import resolve
from tfod.tfrecord.compression import PeekedStream
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.output import OutputFolder, sets_in
from tfod.tfrecord.reader import RecordBatch, walk
from tfod.tfrecord.shard_sets.search import require_content
from tfod.tfrecord.storage.publishing import PendingFile, ProtectedPaths
from tfod.tfrecord.storage.zip_entry import ZipEntryError
from tfod.tfrecord.writer import RecordWriter

_MOST_EXAMPLES = 3
_OF_NO_FOLDER = {"ZIP016": OFF}  # about the zip itself, which the result is not


@dataclass(frozen=True)
class Options:
    """What may be asked of a repair.

    Attributes:
        profile: the expected feature description; None to choose the one that fits best.
        receiver: name of the one who reads the result next; None for any.
        label_map: file or name of a label map for all shards; None for those beside them.
        only: codes or families of the rules to repair; None for all.
        skip: codes or families not to repair; stronger.
        max_record_bytes: a larger record ends the repair.
        overwrite: whether files of the result may replace others.
        report: a file that is written besides; it must be none of the source or the result.
    """

    profile: Profile | None = None
    receiver: str | None = None
    label_map: str | None = None
    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    max_record_bytes: int = 256 << 20
    overwrite: bool = False
    report: str | None = None

    def asks_for(self, code: str) -> bool:
        """Whether what a rule finds is to be repaired."""
        names = {code, code[:3]}
        return (self.only is None or bool(names & self.only)) and not names & self.skip


@dataclass
class Outcome:
    """What a repair has done.

    Attributes:
        output: the folder of the result; None when nothing was to be written.
        shards, records: how many were read.
        written: how many records the result has.
        changed, dropped: how many records are not as they were, and how many are not there.
        by_code: how many changes there are, by the rule that asks for them.
        examples: the first of them, as findings whose value is what was before and after.
        label_maps: the label maps of the result, by path.
        remaining: what a check of the result reports.
    """

    source: str
    output: str | None
    shards: int
    records: int = 0
    written: int = 0
    changed: int = 0
    dropped: int = 0
    by_code: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Finding]] = field(default_factory=dict)
    label_maps: Sequence[str] = ()
    remaining: Report = field(init=False)


def repair(
    source: str,
    output: str | None,
    options: Options | None = None,
    add: Callable[[Finding], object] = lambda _: None,
    close: Callable[[Outcome], object] = lambda _: None,
) -> Outcome:
    """Repair what can be repaired without guessing; the source is never touched.

    Args:
        source: a shard, a folder, a glob or a zip.
        output: folder of the result, whose files appear complete or not at all; None to only say
            what would be done: the result then goes into a temporary folder.
        options: what is to be repaired.
        add: takes each change as it is made, as a finding whose value says what was before and
            after, and whether a record was dropped.
        close: takes the outcome before the result is published; if it fails, nothing is.

    Raises:
        TfodError: it cannot be done: nothing was found, a file cannot be read or written, or is
            there already; or all shards of a set are files of 0 bytes.
        OSError: a shard cannot be read.
    """
    options = options or Options()
    with (
        resolve([source], options.label_map) as found,
        tempfile.TemporaryDirectory(prefix="tfod-repair-") as scratch,
    ):
        _require_repairable(source, found)
        run = _Run(source, output, scratch, options, found, add)
        with run.begin() as out:
            outcome = run.repair(out)
            close(outcome)
        return outcome


def _require_repairable(source: str, found: ResolvedSources) -> None:
    for file in found.files:
        if file.is_remote or file.name != file.path:
            raise TfodError(f"{file.name}: only files on this machine can be repaired")
    zips = sum(bool(one.zips) for one in found.datasets)
    if zips + (zips < len(found.datasets)) > 1:  # their entries may have the same names
        raise TfodError(f"{source}: there are several zips, or shards next to one; name one")
    for dataset in found.datasets:
        for subset in {} if dataset.zips else {one.subset for one in dataset.shards}:
            require_content([one.path for one in dataset.shards if one.subset == subset])


class _Run:
    """One repair. Paths of the result are as in the source, seen from the folder that was named."""

    def __init__(
        self,
        source: str,
        output: str | None,
        scratch: str,
        options: Options,
        found: ResolvedSources,
        add: Callable[[Finding], object],
    ) -> None:
        folder = source if os.path.isdir(source) else os.path.dirname(source)
        while glob.has_magic(folder) and not os.path.lexists(folder):
            folder = os.path.dirname(folder)  # what is in front of the first wildcard
        self._root = os.path.abspath(folder or ".")
        self._output = scratch if output is None else output
        self._named = folder if output is None else output  # what reports call it
        self._options, self._found, self._tell = options, found, add
        self._outcome = Outcome(source, output, len(found.shards))
        self._label_maps = {n: file for one in found.datasets for n, file in one.label_maps.items()}
        self._profile, _, _ = profile_of(options.profile, found.shards, options.max_record_bytes)
        receiver = self._receiver = RECEIVERS[options.receiver] if options.receiver else ANY
        levels = levels_of(self._profile.severities, receiver.severities(None), _OF_NO_FOLDER)
        codes = (code for code, one in all_rules().items() if one.repair)
        asked = (one for one in codes if options.asks_for(one) and levels[one])
        self._codes = fixes.INEVITABLE.union(asked)
        self._source_ids = SourceIdNumbers(LARGEST_FOR.get(receiver.name), self._last_source_id)
        self._texts: dict[str, bytes] = {}  # label maps, and candidates for them, by place
        self._new_maps: dict[str, LabelMapFile] = {}
        self._results: dict[str, Shard] = {}  # by the path of each its name, label map and subset

    # Where files go: places are relative to the folder of the result

    def _place(self, shard: Shard, path: str | None = None) -> str:
        """Where the result of a shard goes, or of a file that belongs to it.

        One that lies above the source comes beside the shard.
        """
        root = os.path.abspath(shard.entry.archive) if shard.entry else self._root
        relative = os.path.relpath(os.path.abspath(path or shard.path), root)
        if not relative.startswith(os.pardir + os.sep):
            return relative
        if path is None:
            raise TfodError(f"{shard.name}: lies outside {root}; name the folder of all shards")
        return os.path.join(os.path.dirname(self._place(shard)), os.path.basename(path))

    def _name(self, place: str) -> str:
        """What reports call a file of the result."""
        return os.path.join(self._named, place)

    def _result(self, shard: Shard) -> Shard:
        """The result of a shard, with its label map, or with all that could be: a person decides.

        One label map that was named for all shards comes beside each.
        """
        place, label_map = self._place(shard), None
        candidates = [] if shard.entry else [self._place(shard, one) for one in shard.candidates]
        for one, source in zip(candidates, shard.candidates, strict=False):
            with open(source, "rb") as stream:
                self._texts[one] = stream.read()
        if shard.label_map is not None:
            file = self._label_maps[shard.label_map]
            label_map = self._place(shard, file.path)
            if self._options.label_map is not None:
                label_map = os.path.join(os.path.dirname(place), LABEL_MAP_FILE)
            text = self._texts.setdefault(label_map, _content(file))
            path, label_map = os.path.join(self._output, label_map), self._name(label_map)
            copy = file._replace(name=label_map, path=path)  # of any kind, also a labels.txt
            self._new_maps[label_map] = copy if file.label_map else copy.of(text, label_map, path)
        return Shard(
            self._name(place),
            os.path.join(self._output, place),
            subset=shard.subset,
            label_map=label_map,
            candidates=[*map(self._name, candidates)],
        )

    def begin(self) -> OutputFolder:
        """The folder of the result, with the label maps that it will have, if it may be written."""
        shards = self._found.shards
        self._results = {one.path: one for one in map(self._result, shards)}
        sources = {one.path for one in self._found.files}
        sources |= {one for shard in shards for one in (shard.label_map, *shard.candidates) if one}
        if report := self._options.report:
            ProtectedPaths(sources).require_unprotected(report)
            texts = (os.path.join(self._output, place) for place in self._texts)
            written = map(os.path.realpath, (self._output, *self._results, *texts))
            if os.path.realpath(report) in written:
                raise TfodError(f"{report}: is of the result; name another place for the report")
        if self._outcome.output is not None:
            sources.add(self._outcome.source)
        existing = {one.subset: one.paths for one in sets_in(self._output)}

        def there(path: str) -> list[str]:
            """What goes with a shard of the result: is of its name, or of its subset."""
            own = [path] if os.path.lexists(path) else []
            others = existing.get(self._results[path].subset, ())
            return [*own, *(one for one in others if one not in self._results)]

        out = OutputFolder(self._output, sources, self._options.overwrite, find_existing=there)
        for place, content in self._texts.items():
            out.add_text(place, content)
        for path in self._results:
            out.require_writable(path, os.path.relpath(path, self._output))
        return out

    def repair(self, out: OutputFolder) -> Outcome:
        """Repair all shards; the result is complete, and not yet published."""
        written = []
        for shard, result in zip(self._found.shards, self._results.values(), strict=True):
            file = out.add_shard(result.path)
            self._rewrite(shard, file)
            file.complete()
            written.append(
                replace(result, path=file.temporary_path, size=os.path.getsize(file.temporary_path))
            )
        self._outcome.label_maps = [*map(self._name, self._texts)]
        self._outcome.remaining = self._check(iter(written))
        return self._outcome

    def _check(self, written: Iterator[Shard]) -> Report:
        """What is left, as a check of the result reports it."""
        datasets = []
        for one in self._found.datasets:
            shards = list(itertools.islice(written, len(one.shards)))
            maps = {one.label_map: self._new_maps[one.label_map] for one in shards if one.label_map}
            place = "." if one.zips else os.path.relpath(one.name or ".", self._root)
            datasets.append(Dataset(os.path.normpath(self._name(place)), shards, maps))
        # What is wrong with a zip: the result is none, and need not have it.
        rest = Dataset("", zips=[one for each in self._found.datasets for one in each.zips])
        options = CheckOptions(
            profile=self._options.profile,
            receiver=self._receiver,
            decode=0,
            severities=_OF_NO_FOLDER,
            max_record_bytes=self._options.max_record_bytes,
            fail_on=Severity.WARNING,
        )
        return check(ResolvedSources(datasets, rest), options)

    def _rewrite(self, shard: Shard, file: PendingFile) -> None:
        """Write the repaired shard to a file; what is no shard is copied as it is."""
        is_shard = True
        with shard.open() as stream:
            writer = RecordWriter(file, PeekedStream(stream).compression)
        for records in self._walk(shard):
            if isinstance(records, Damage):
                if records.is_archive:
                    raise records.to_error()
                if records.kind in (DamageKind.EMPTY, DamageKind.FOREIGN):
                    is_shard = False
                else:
                    place = Place(shard.name, records.record, records.offset)
                    self._add(fixes.dropped_damage(records), place)
                continue
            self._outcome.records += len(records)
            detections = Detections(ExampleBatch.of(records), self._profile.field_mapping)
            for row in range(len(records)):
                payload = self._repaired(shard, detections, row)
                if payload is not None:
                    writer.write(payload)
                    self._outcome.written += 1
        if is_shard:
            writer.finish()
            return
        with shard.open() as stream:
            shutil.copyfileobj(stream, file)

    def _repaired(self, shard: Shard, detections: Detections, row: int) -> bytes | None:
        """The payload of a record of a batch as it is to be; None to leave the record out."""
        examples = detections.examples
        source = examples.records.record(row)
        place = Place(shard.name, source.number, source.offset)
        if found := fixes.dropped_record(examples, row, self._codes):
            self._add(found, place)
            return None
        if row in examples.refused:
            return bytes(source.payload)
        file = self._label_maps.get(shard.label_map or "")
        record = fixes.EditedRecord(
            detections,
            row,
            self._profile,
            file.label_map if file else None,
            lambda: shard.label_map not in self._incomplete,
            self._source_ids,
        )
        changes = record.fix(self._codes)
        if not changes:
            return bytes(source.payload)
        place = place._replace(item=detections.filenames[row] or None)
        for change in changes:
            self._add(change, place)
        self._outcome.changed += 1
        return record.payload()

    def _add(self, change: Finding, place: Place) -> None:
        """Count a change, and tell it; the first ones of each rule are kept."""
        change, outcome = change.at(place), self._outcome
        outcome.by_code[change.code] += 1
        outcome.dropped += isinstance(change.value, dict) and bool(change.value["record_dropped"])
        examples = [*outcome.examples.get(change.code, ()), change]
        outcome.examples[change.code] = examples[:_MOST_EXAMPLES]
        self._tell(change)

    @cached_property
    def _incomplete(self) -> set[str]:
        """The label maps that miss a class of their shards, which are read once more for it.

        Such a map may be of another data set: nothing is renumbered by it.
        """
        key = self._profile.field_mapping.class_text
        return {
            shard.label_map
            for dataset in self._found.datasets
            for shard in dataset.shards
            if key and shard.label_map and (file := dataset.label_map_of(shard)) and file.label_map
            if any(fixes.misses_a_class(file.label_map, one, key) for one in self._read(shard))
        }

    def _last_source_id(self) -> int:
        """The number behind which others are free; the shards are read once more for it."""
        key = self._profile.field_mapping.source_id or keys.SOURCE_ID
        used = (one for each in self._found.shards for one in source_ids_of(self._read(each), key))
        return last_before_free(used, self._source_ids.largest)

    def _read(self, shard: Shard) -> Iterator[RecordBatch]:
        """The sound records of a shard before they are repaired."""
        return (one for one in self._walk(shard) if not isinstance(one, Damage))

    def _walk(self, shard: Shard) -> Iterator[RecordBatch | Damage]:
        limit = self._options.max_record_bytes
        # What is wrong with a zip its own findings say; what was read of an entry is sound.
        with contextlib.suppress(ZipEntryError), shard.open() as stream:
            yield from walk(stream, shard.name, shard.size, limit)


def _content(label_map: LabelMapFile) -> bytes:
    """The bytes of a label map; of one that was named for all shards there are none."""
    if label_map.label_map is None and not 0 < len(label_map.data) <= LONGEST_LABEL_MAP:
        raise TfodError(label_map.error)  # of a longer one only the beginning was read
    text = label_map.label_map.to_text() if label_map.label_map else ""
    return label_map.data or text.encode()
