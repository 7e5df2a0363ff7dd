"""Repair of shards: fixes the findings of ``tfod check`` that can be fixed without guessing.

The result is a folder of shards, with a report of the changes and of a check of the result. Records
are fixed one by one, see :mod:`tfod.shards.fixes`.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from tfod.checker.check import Options as CheckOptions
from tfod.checker.check import check
from tfod.checker.finding import Finding, Location, Severity
from tfod.checker.profiles.choice import choose_profile
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import OFF
from tfod.checker.receivers import ANY, RECEIVERS
from tfod.checker.report import Report
from tfod.checker.rules.registry import all_rules
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.detection.labels.label_map import MAX_LABEL_MAP_BYTES
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.shards import fixes
from tfod.shards.box_repair import BoxRepair, find_causes
from tfod.shards.repair_options import Options, Outcome
from tfod.shards.rewrite import make_numbers
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.sources.resolved import Dataset, LabelMapFile, ResolvedSources, Shard
from tfod.sources.resolver import resolve
from tfod.tfrecord.compression import PeekedStream
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.output import OutputFolder, find_sets
from tfod.tfrecord.reader import RecordBatch, walk
from tfod.tfrecord.shard_sets.search import require_content
from tfod.tfrecord.storage.publishing import PendingFile, ProtectedPaths
from tfod.tfrecord.storage.zip_entry import ZipEntryError
from tfod.tfrecord.writer import RecordWriter

_MAX_EXAMPLES = 3
__all__ = ["Options", "Outcome", "repair"]
_ZIP_RULES_OFF = {"ZIP016": OFF}  # about the zip itself; the result is a folder


def repair(
    source: str,
    output: str | None,
    options: Options | None = None,
    add: Callable[[Finding], object] = lambda _: None,
    close: Callable[[Outcome], object] = lambda _: None,
) -> Outcome:
    """Repair the defects that can be repaired without guessing; the source is not changed.

    Args:
        source: a shard, a folder, a glob or a zip.
        output: folder of the result, which is published complete or not at all; None for a dry run,
            whose result is written to a temporary folder and deleted. Nothing is published if
            the outcome is useless.
        options: options of the repair.
        add: called with each change, as a finding with the values before and after.
        close: called with the outcome before the result is published; an exception prevents this.

    Raises:
        TfodError: there are no shards, a file cannot be read or written or already exists, all
            shards of a set are files of 0 bytes, or ``odd_boxes`` does not fit the data.
        OSError: a shard cannot be read.
    """
    options = options or Options()
    with (
        resolve([source], options.label_map) as sources,
        tempfile.TemporaryDirectory(prefix="tfod-repair-") as scratch,
    ):
        _require_repairable(source, sources)
        run = _Run(source, output, scratch, options, sources, add)
        if options.odd_boxes:
            run.require_corners()
        with contextlib.suppress(_NothingRepairedError), run.begin() as out:
            outcome = run.repair(out)
            close(outcome)
            if outcome.is_useless:
                raise _NothingRepairedError
        return outcome


class _NothingRepairedError(Exception):
    """Prevents the publication of a copy with the same errors."""


def _require_repairable(source: str, sources: ResolvedSources) -> None:
    for file in sources.files:
        if file.is_remote or file.name != file.path:
            raise TfodError(f"{file.name}: only files on this machine can be repaired")
    datasets = sources.datasets
    zip_count = sum(bool(dataset.zips) for dataset in datasets)
    # Entries of a zip may have the same names as other files.
    if zip_count > 1 or 0 < zip_count < len(datasets):
        raise TfodError(f"{source}: there are several zips, or shards next to a zip; name one")
    for dataset in datasets:
        for subset in {} if dataset.zips else {shard.subset for shard in dataset.shards}:
            require_content([shard.path for shard in dataset.shards if shard.subset == subset])


class _Run:
    """A repair. The result has the paths of the source, relative to the folder of the source."""

    def __init__(
        self,
        source: str,
        output: str | None,
        scratch: str,
        options: Options,
        sources: ResolvedSources,
        add: Callable[[Finding], object],
    ) -> None:
        folder = source if os.path.isdir(source) else os.path.dirname(source)
        while glob.has_magic(folder) and not os.path.lexists(folder):
            folder = os.path.dirname(folder)  # the part before the first wildcard
        self._root = os.path.abspath(folder or ".")
        self._output = scratch if output is None else output
        self._output_name = folder if output is None else output  # in reports
        self._options, self._sources, self._add_change = options, sources, add
        self._outcome = Outcome(source, output, len(sources.shards))
        self._label_maps: dict[str, LabelMapFile] = {}
        for dataset in sources.datasets:
            self._label_maps |= dataset.label_maps
        max_bytes = options.max_record_bytes
        self._profile, _, _ = choose_profile(options.profile, sources.shards, max_bytes)
        receiver = self._receiver = RECEIVERS[options.receiver] if options.receiver else ANY
        levels = resolve_levels(self._profile.severities, receiver.severities(None), _ZIP_RULES_OFF)
        codes = (code for code, rule in all_rules().items() if rule.repair)
        included = (code for code in codes if options.includes(code) and levels[code])
        self._codes = fixes.ALWAYS_FIXED.union(included)
        self._boxes = BoxRepair(options.odd_boxes, options.includes)
        key = self._profile.field_mapping.source_id or keys.SOURCE_ID
        batches = itertools.chain.from_iterable(map(self._read, sources.shards))
        self._source_ids = make_numbers(batches, LARGEST_FOR.get(receiver.name), key)
        self._texts: dict[str, bytes] = {}  # label maps and their candidates, by target
        self._new_maps: dict[str, LabelMapFile] = {}
        self._results: dict[str, Shard] = {}  # by path

    # Paths of the result: targets are relative to its folder

    def _target(self, shard: Shard, path: str | None = None) -> str:
        """Return the target of a shard or its label map: next to it, if not from the source."""
        root = os.path.abspath(shard.entry.archive) if shard.entry else self._root
        relative = os.path.relpath(os.path.abspath(path or shard.path), root)
        if not relative.startswith(os.pardir + os.sep):
            return relative
        if path is None:
            raise TfodError(f"{shard.name}: is outside {root}; name the folder of all shards")
        return os.path.join(os.path.dirname(self._target(shard)), os.path.basename(path))

    def _name(self, target: str) -> str:
        return os.path.join(self._output_name, target)

    def _plan(self, shard: Shard) -> Shard:
        """Return the result of a shard, with its label map or the candidates for it."""
        target, label_map = self._target(shard), None
        candidates = [] if shard.entry else [self._target(shard, path) for path in shard.candidates]
        for candidate, source in zip(candidates, shard.candidates, strict=False):
            with open(source, "rb") as stream:
                self._texts[candidate] = stream.read()
        if shard.label_map is not None:
            file = self._label_maps[shard.label_map]
            label_map = self._target(shard, file.path)
            if self._options.label_map is not None:  # copied next to each shard
                label_map = os.path.join(os.path.dirname(target), LABEL_MAP_FILE)
            text = self._texts.setdefault(label_map, _read_content(file))
            path, label_map = os.path.join(self._output, label_map), self._name(label_map)
            copy = file._replace(name=label_map, path=path)  # may also be a labels.txt
            new_map = copy if file.label_map else copy.decode(text, label_map, path)
            self._new_maps[label_map] = new_map
        return Shard(
            self._name(target),
            os.path.join(self._output, target),
            subset=shard.subset,
            label_map=label_map,
            candidates=[*map(self._name, candidates)],
        )

    def begin(self) -> OutputFolder:
        """Return the folder of the result with its label maps; check that it can be written."""
        shards = self._sources.shards
        self._results = {shard.path: shard for shard in map(self._plan, shards)}
        read = {file.path for file in self._sources.files}
        for shard in shards:
            read |= {*filter(None, (shard.label_map, *shard.candidates))}
        if report := self._options.report:
            ProtectedPaths(read).require_unprotected(report)
            texts = (os.path.join(self._output, target) for target in self._texts)
            written = map(os.path.realpath, (self._output, *self._results, *texts))
            if os.path.realpath(report) in written:
                raise TfodError(f"{report}: is a file of the result; rename the report")
        if self._outcome.output is not None:
            read.add(self._outcome.source)
        existing_sets = {existing.subset: existing.paths for existing in find_sets(self._output)}

        def find_existing(path: str) -> list[str]:
            """Return the existing files that a shard of the result would replace."""
            same_path = [path] if os.path.lexists(path) else []
            same_subset = existing_sets.get(self._results[path].subset, ())
            return [*same_path, *(path for path in same_subset if path not in self._results)]

        out = OutputFolder(self._output, read, self._options.overwrite, find_existing=find_existing)
        for target, content in self._texts.items():
            out.add_text(target, content)
        for path in self._results:
            out.require_writable(path, os.path.relpath(path, self._output))
        return out

    def require_corners(self) -> None:
        """Refuse to change single boxes if all boxes are in another form."""
        for finding in find_causes(self._check(self._sources)):
            if self._options.includes(finding.code):
                raise TfodError(
                    f"{finding.shard}: {finding.message} ({finding.code}), so --odd-boxes would "
                    f"keep wrong boxes (--ignore {finding.code} permits this). {finding.fix}"
                )

    def repair(self, out: OutputFolder) -> Outcome:
        """Repair all shards; the result is complete, but not yet published."""
        written = []
        for shard, result in zip(self._sources.shards, self._results.values(), strict=True):
            file = out.add_shard(result.path)
            self._rewrite(shard, file)
            file.complete()
            path = file.temporary_path
            written.append(replace(result, path=path, size=os.path.getsize(path)))
        self._boxes.require_plausible()
        self._outcome.label_maps = [*map(self._name, self._texts)]
        self._outcome.remaining = self._check(self._plan_result(iter(written)))
        if self._outcome.is_useless:  # report the source: there will be no result
            self._outcome.remaining = self._check(self._sources)
        return self._outcome

    def _plan_result(self, written: Iterator[Shard]) -> ResolvedSources:
        datasets = []
        for dataset in self._sources.datasets:
            shards = list(itertools.islice(written, len(dataset.shards)))
            names = filter(None, (shard.label_map for shard in shards))
            maps = {name: self._new_maps[name] for name in names}
            target = "." if dataset.zips else os.path.relpath(dataset.name or ".", self._root)
            datasets.append(Dataset(os.path.normpath(self._name(target)), shards, maps))
        # Findings about the zips themselves are reported, but belong to no dataset of the result.
        zips = [file for dataset in self._sources.datasets for file in dataset.zips]
        return ResolvedSources(datasets, Dataset("", zips=zips))

    def _check(self, sources: ResolvedSources) -> Report:
        options = CheckOptions(
            profile=self._options.profile,
            receiver=self._receiver,
            decode=0,
            severities=_ZIP_RULES_OFF,
            max_record_bytes=self._options.max_record_bytes,
            fail_on=Severity.WARNING,
        )
        return check(sources, options)

    def _rewrite(self, shard: Shard, file: PendingFile) -> None:
        """Write the repaired shard to a file; a file that is not a shard is copied unchanged."""
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
                    location = Location(shard.name, records.record, records.offset)
                    self._add(fixes.drop_damage(records), location)
                continue
            self._outcome.records += len(records)
            detections = Detections(ExampleBatch.of(records), self._profile.field_mapping)
            self._boxes.begin(detections)
            for row in range(len(records)):
                payload = self._fix(shard, detections, row)
                if payload is not None:
                    writer.write(payload)
                    self._outcome.written += 1
        if is_shard:
            writer.finish()
            return
        with shard.open() as stream:
            shutil.copyfileobj(stream, file)

    def _fix(self, shard: Shard, detections: Detections, row: int) -> bytes | None:
        """Return the new payload of a record of a batch, or None if the record is dropped."""
        examples = detections.examples
        source = examples.records.record(row)
        location = Location(shard.name, source.number, source.offset)
        if finding := fixes.drop_record(examples, row, self._codes):
            self._add(finding, location)
            return None
        if row in examples.unreadable:
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
        edited: fixes.EditedRecord | None = record
        if row in self._boxes.odd_rows:
            edited, more = self._boxes.repair(record)
            changes += more
        if not changes:
            return bytes(source.payload)
        location = location._replace(item=detections.filenames[row] or None)
        for change in changes:
            self._add(change, location)
        self._outcome.changed += edited is not None
        return edited.payload() if edited else None

    def _add(self, change: Finding, location: Location) -> None:
        change, outcome = change.at(location), self._outcome
        outcome.by_code[change.code] += 1
        outcome.dropped += isinstance(change.value, dict) and bool(change.value["record_dropped"])
        examples = [*outcome.examples.get(change.code, ()), change]
        outcome.examples[change.code] = examples[:_MAX_EXAMPLES]
        self._add_change(change)

    @cached_property
    def _incomplete(self) -> set[str]:
        """Names of the label maps that lack a class of their shards; reads the shards again.

        Such a label map may belong to a different dataset: no ids are changed by it.
        """
        key = self._profile.field_mapping.class_text
        return {
            shard.label_map
            for dataset in self._sources.datasets
            for shard in dataset.shards
            if key and shard.label_map and (file := dataset.get_label_map(shard)) and file.label_map
            if any(fixes.lacks_a_class(file.label_map, batch, key) for batch in self._read(shard))
        }

    def _read(self, shard: Shard) -> Iterator[RecordBatch]:
        return (batch for batch in self._walk(shard) if not isinstance(batch, Damage))

    def _walk(self, shard: Shard) -> Iterator[RecordBatch | Damage]:
        limit = self._options.max_record_bytes
        # The check of the zip reports its errors; the records read before an error are valid.
        with contextlib.suppress(ZipEntryError), shard.open() as stream:
            yield from walk(stream, shard.name, shard.size, limit)


def _read_content(label_map: LabelMapFile) -> bytes:
    if label_map.label_map is None and not 0 < len(label_map.data) <= MAX_LABEL_MAP_BYTES:
        raise TfodError(label_map.error)  # only the beginning of a longer file was read
    text = label_map.label_map.to_text() if label_map.label_map else ""
    return label_map.data or text.encode()
