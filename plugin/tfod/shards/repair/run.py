"""The repair of everything a source means, into a folder of its own."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from tfod.check.check import Options as CheckOptions
from tfod.check.check import check
from tfod.check.dataset import Dataset, Found, LabelMapFile, Shard
from tfod.check.find import find
from tfod.check.findings.finding import Severity
from tfod.check.findings.report import Report
from tfod.check.profiles.choice import profile_of
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import OFF, Profile
from tfod.check.receivers import ANY, RECEIVERS
from tfod.check.rules.registry import all_rules
from tfod.check.rules.repairs import INEVITABLE, REPAIRS
from tfod.detection import keys
from tfod.detection.images.source_ids import LARGEST_FOR, SourceIdNumbers, last_before_free
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.errors import TfodError
from tfod.shards.repair.fixes import misses_a_class
from tfod.shards.repair.record import Changes
from tfod.shards.repair.shard import ShardRepair
from tfod.shards.source_ids import source_ids_of
from tfod.tfrecord.output_folder import OutputFolder, sets_in
from tfod.tfrecord.reader import RecordBatch, read_record_batch_stream
from tfod.tfrecord.shard_sets.names import INDEX_EXTENSION
from tfod.tfrecord.shard_sets.search import group_shards, require_content
from tfod.tfrecord.storage.read_paths import ReadPaths
from tfod.tfrecord.storage.zip_entry import ZipEntryError

_MOST_FINDINGS = 1000
# About the zip itself, which the result is not.
_OF_NO_FOLDER = dict.fromkeys(("ZIP016",), OFF)


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

    def codes(self, policy: Policy) -> frozenset[str]:
        """The rules whose findings are to be repaired."""
        found = set(INEVITABLE)
        for rule in all_rules().values():
            names = {rule.code, rule.family}
            asked = self.only is None or names & self.only
            if rule.code in REPAIRS and asked and not names & self.skip:
                found |= {rule.code} if policy.severity(rule.code) is not None else set()
        return frozenset(found)


@dataclass(frozen=True)
class Outcome:
    """What a repair has done.

    Attributes:
        output: the folder of the result; None when nothing was to be written.
        shards, records: how many were read.
        written: how many records the result has.
        label_maps: the label maps of the result, by path.
        remaining: what a check of the result reports.
    """

    source: str
    output: str | None
    shards: int
    records: int
    written: int
    label_maps: Sequence[str]
    changes: Changes
    remaining: Report


def repair(
    source: str,
    output: str | None,
    options: Options | None = None,
    write: Callable[[str], object] | None = None,
    close: Callable[[Outcome], object] | None = None,
) -> Outcome:
    """Repair what can be repaired without guessing; the source is never touched.

    Args:
        source: a shard, a folder, a glob or a zip.
        output: folder of the result, whose files appear complete or not at all; None to only say
            what would be done: the result then goes into a temporary folder.
        options: what is to be repaired.
        write: takes each change as a line of JSON.
        close: takes the outcome before the result is published; if it fails, nothing is.

    Raises:
        TfodError: it cannot be done: nothing was found, a file cannot be read or written, or is
            there already; or all shards of a set are files of 0 bytes.
        OSError: a shard cannot be read.
    """
    with (
        find([source], (options or Options()).label_map) as found,
        tempfile.TemporaryDirectory(prefix="tfod-repair-") as scratch,
    ):
        for file in found.files:
            if file.is_remote or file.name != file.path:
                raise TfodError(f"{file.name}: only files on this machine can be repaired")
        zips = sum(bool(one.zips) for one in found.datasets)
        if zips + (zips < len(found.datasets)) > 1:
            # Their entries may have the same names.
            raise TfodError(f"{source}: there are several zips; repair them one by one")
        for dataset in found.datasets:
            for subset in {} if dataset.zips else {one.subset for one in dataset.shards}:
                require_content([one.path for one in dataset.shards if one.subset == subset])
        run = _Run(source, output, scratch, options or Options(), found, Changes(write))
        with run.begin() as out:
            outcome = run.repair(out)
            if close is not None:
                close(outcome)
        return outcome


class _Run:
    """One repair. Paths of the result are as in the source, seen from the folder that was named."""

    def __init__(
        self,
        source: str,
        output: str | None,
        scratch: str,
        options: Options,
        found: Found,
        changes: Changes,
    ) -> None:
        folder = source if os.path.isdir(source) else os.path.dirname(source)
        while glob.has_magic(folder) and not os.path.lexists(folder):
            folder = os.path.dirname(folder)  # what is in front of the first wildcard
        self._source, self._root = source, os.path.abspath(folder or ".")
        self._is_dry = output is None
        self._output = scratch if output is None else output
        self._named = folder if output is None else output  # what reports call it
        self._options, self._found, self._changes = options, found, changes
        self._label_maps = {n: file for one in found.datasets for n, file in one.label_maps.items()}
        self._profile, _, _ = profile_of(options.profile, found.shards, options.max_record_bytes)
        receiver = self._receiver = RECEIVERS[options.receiver] if options.receiver else ANY
        policy = Policy(self._profile.severities, receiver.severities(None), _OF_NO_FOLDER)
        self._source_ids = SourceIdNumbers(LARGEST_FOR.get(receiver.name), self._last_source_id)
        self._codes = options.codes(policy)
        self._results: list[str] = []
        self._texts: dict[str, bytes] = {}  # label maps, and candidates for them

    # Paths

    def _path(self, shard: Shard, path: str | None = None) -> str:
        """Where the result of a shard goes, or of a file that belongs to it.

        One that lies above the source comes beside the shard.
        """
        root = os.path.abspath(shard.entry.archive) if shard.entry else self._root
        relative = os.path.relpath(os.path.abspath(path or shard.path), root)
        if not relative.startswith(os.pardir + os.sep):
            return os.path.join(self._output, relative)
        if path is None:
            raise TfodError(f"{shard.name}: lies outside {root}; name the folder of all shards")
        return os.path.join(os.path.dirname(self._path(shard)), os.path.basename(path))

    def _label_map_path(self, shard: Shard) -> str | None:
        """Where its label map goes; one for all shards comes beside each, in place of its own."""
        if shard.label_map is None:
            return None
        if self._options.label_map is not None:
            return os.path.join(os.path.dirname(self._path(shard)), LABEL_MAP_FILE)
        return self._path(shard, self._label_maps[shard.label_map].path)

    def _name(self, path: str) -> str:
        """What reports call a file of the result."""
        return os.path.join(self._named, os.path.relpath(path, self._output))

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._output)

    # The result

    def begin(self) -> OutputFolder:
        """The folder of the result, with the label maps that it will have.

        Raises:
            TfodError: a file of the result may not be written.
        """
        sources = {one.path for one in self._found.files}
        shards = self._found.shards
        for shard in shards:
            sources |= {*([shard.label_map] if shard.label_map else ()), *shard.candidates}
            self._copy_label_map(shard)
        self._results = [self._path(shard) for shard in shards]
        if report := self._options.report:
            ReadPaths(sources).require_other(report)
            written = (self._output, *self._results, *self._texts)
            if os.path.realpath(report) in map(os.path.realpath, written):
                raise TfodError(f"{report}: is of the result; name another place for the report")
        if not self._is_dry:
            sources.add(self._source)
        out = OutputFolder(self._output, sources, self._options.overwrite, shards_there=self._there)
        for path, content in self._texts.items():
            out.add_text(self._relative(path), content)
        for path in self._results:
            out.require_free(path, self._relative(path))
        return out

    def _there(self, path: str) -> list[str]:
        """What is there that goes with a path of the result: of this name, or of its subset."""
        own = filter(os.path.lexists, (path, path + INDEX_EXTENSION))
        return [*own, *self._others.get(path, ())]

    @cached_property
    def _others(self) -> Mapping[str, Sequence[str]]:
        """By the first path of each subset of the result, its other shards in the folder."""
        ours = set(map(os.path.realpath, self._results))
        there = {one.subset: one.paths for one in sets_in(self._output)}
        return {
            one.paths[0]: [
                path for path in there.get(one.subset, ()) if os.path.realpath(path) not in ours
            ]
            for one in group_shards(self._results, self._output)
        }

    def _copy_label_map(self, shard: Shard) -> None:
        """The label map of a shard, or all that could be: which is meant is left to a person."""
        for source in () if shard.in_archive else shard.candidates:
            with open(source, "rb") as stream:
                self._texts[self._path(shard, source)] = stream.read()
        path = self._label_map_path(shard)
        if path is None or shard.label_map is None or path in self._texts:
            return
        file = self._label_maps[shard.label_map]
        data = file.data
        if file.label_map is None and not 0 < len(data) <= LONGEST_LABEL_MAP:
            raise TfodError(file.error)  # of a longer one only the beginning was read
        # Of one that was named for all shards there are no bytes.
        self._texts[path] = data or (file.label_map.to_text().encode() if file.label_map else b"")

    def repair(self, out: OutputFolder) -> Outcome:
        """Repair all shards; the result is complete, and not yet published."""
        results: dict[str, Shard] = {}
        repairs: list[ShardRepair] = []
        for shard in self._found.shards:
            label_map = self._label_maps.get(shard.label_map or "")
            one = ShardRepair(
                shard,
                label_map.label_map if label_map else None,
                self._profile,
                self._codes,
                self._options.max_record_bytes,
                self._changes,
                self._source_ids,
                partial(self._is_complete, shard.label_map or ""),
            )
            path, map_path = self._path(shard), self._label_map_path(shard)
            file = out.add_shard(path)
            one.run(file)
            file.complete()
            repairs.append(one)
            results[path] = Shard(
                self._name(path),
                file.aside,
                os.path.getsize(file.aside),
                shard.subset,
                map_path and self._name(map_path),
                []
                if shard.in_archive
                else [self._name(self._path(shard, one)) for one in shard.candidates],
            )
        return Outcome(
            source=self._source,
            output=None if self._is_dry else self._output,
            shards=len(repairs),
            records=sum(one.read for one in repairs),
            written=sum(one.written for one in repairs),
            label_maps=[self._name(path) for path in self._texts],
            changes=self._changes,
            remaining=self._check(results),
        )

    def _is_complete(self, label_map: str) -> bool:
        return label_map not in self._incomplete

    @cached_property
    def _incomplete(self) -> set[str]:
        """The label maps that miss a class of their shards, which are read once more for it.

        Such a map may be of another data set: nothing is renumbered by it.
        """
        key = self._profile.field_mapping.class_text
        return {
            file.name
            for file, batches in self._read()
            if key and file is not None and file.label_map is not None
            and any(misses_a_class(file.label_map, batch, key) for batch in batches)
        }  # fmt: skip

    def _last_source_id(self) -> int:
        """The number behind which others are free; the shards are read once more for it."""
        key = self._profile.field_mapping.source_id or keys.SOURCE_ID
        used = (one for _, batches in self._read() for one in source_ids_of(batches, key))
        return last_before_free(used, self._source_ids.largest)

    def _read(self) -> Iterator[tuple[LabelMapFile | None, Iterator[RecordBatch]]]:
        """The records of each shard before they are repaired, with its label map."""
        for shard in self._found.shards:
            yield self._label_maps.get(shard.label_map or ""), self._batches(shard)

    def _batches(self, shard: Shard) -> Iterator[RecordBatch]:
        limit = self._options.max_record_bytes
        with contextlib.suppress(ZipEntryError), shard.open() as stream:
            yield from read_record_batch_stream(
                stream, shard.name, on_damage=lambda _: None, max_record_bytes=limit
            )

    def _check(self, results: dict[str, Shard]) -> Report:
        """What is left, as a check of the result reports it."""
        shards: list[Shard] = []
        for group in group_shards(list(results), self._output):
            shards += [replace(results[path], subset=group.subset) for path in group.paths]
        used = {one.label_map for one in shards}
        label_maps = {
            name: LabelMapFile.of(data, name, path)
            for path, data in self._texts.items()
            if (name := self._name(path)) in used
        }
        result = Dataset(os.path.normpath(self._named or "."), shards, label_maps)
        # What is wrong with a zip: the result is none, and need not have it.
        rest = Dataset("", zips=[one for each in self._found.datasets for one in each.zips])
        options = CheckOptions(
            profile=self._options.profile,
            receiver=self._receiver,
            decode=0,
            severities=_OF_NO_FOLDER,
            max_findings=_MOST_FINDINGS,
            max_record_bytes=self._options.max_record_bytes,
            fail_on=Severity.WARNING,
            hash_sources=False,
        )
        return check(Found([result], rest), options)
