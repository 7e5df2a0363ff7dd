"""The repair of everything a source means, into a folder of its own."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tfod.check.check import Options as CheckOptions
from tfod.check.check import check
from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import Place, Severity, plural
from tfod.check.findings.report import Report
from tfod.check.profiles.choice import profile_of
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import OFF
from tfod.check.receivers import ANY, RECEIVERS
from tfod.check.rules.labels import LabelMapFile
from tfod.check.sources.archive import ArchiveDamageError
from tfod.check.sources.archive_contents import Archives
from tfod.check.sources.datasets import datasets_of
from tfod.check.sources.inventory import Inventory, Location, ShardGroup, ShardSource
from tfod.check.sources.search import take_inventory
from tfod.check.sources.shard_walk import WalkedShard, walk_shards
from tfod.detection import keys
from tfod.detection.images.source_ids import LARGEST_FOR, SourceIdNumbers, last_before_free
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP, LabelMap
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.shards.repair.class_fixes import BY_IDS, label_map_of, raised_label_maps
from tfod.shards.repair.record import Change, Changes
from tfod.shards.repair.refusals import why_refused
from tfod.shards.repair.shard import Options, ShardRepair
from tfod.shards.source_ids import source_ids_of
from tfod.tfrecord.label_files import LABEL_MAP_FILE
from tfod.tfrecord.output_folder import require_no_others
from tfod.tfrecord.reader import RecordBatch, read_record_batch_stream
from tfod.tfrecord.shard_sets.names import INDEX_EXTENSION
from tfod.tfrecord.shard_sets.search import find_shards, group_shards, require_content
from tfod.tfrecord.storage.publishing import AtomicFile, publish_together, recover

_MOST_FINDINGS = 1000
# About the zip itself, which the result is not.
_OF_NO_FOLDER = dict.fromkeys(("ZIP014", "ZIP016", "ZIP017"), OFF)


@dataclass(frozen=True)
class Outcome:
    """What a repair has done.

    Attributes:
        output: the folder of the result; None when nothing was to be written.
        shards, records: how many were read.
        written: how many records the result has.
        label_maps: the label maps of the result, by path.
        remaining: what a check of the result reports.
        refused: why a repair that writes would be refused; empty for one that would not.
    """

    source: str
    output: str | None
    shards: int
    records: int
    written: int
    label_maps: Sequence[str]
    changes: Changes
    remaining: Report
    refused: Sequence[str] = ()


class RepairRefusedError(TfodError):
    """The repair would do more harm than good."""


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
        RepairRefusedError: many boxes are inverted or far outside, or many objects or records
            would be removed.
        OSError: a shard cannot be read.
    """
    with (
        take_inventory([source]) as inventory,
        tempfile.TemporaryDirectory(prefix="tfod-repair-") as scratch,
        contextlib.ExitStack() as stack,
    ):
        for location in inventory.locations:
            if location.remote or location.name != location.path:
                raise TfodError(f"{location.name}: only files on this machine can be repaired")
        if len(inventory.archives) + bool(inventory.shards) > 1:
            # Their entries may have the same names.
            raise TfodError(f"{source}: there are several zips; repair them one by one")
        for group in inventory.groups:
            require_content([shard.location.path for shard in group.shards])
        run = _Run(source, output, scratch, options or Options(), inventory, Changes(write), stack)
        run.require_free_names()
        outcome = run.repair()
        if close is not None:
            close(outcome)
        run.publish()
        return outcome


class _Run:
    """One repair. Paths of the result are as in the source, seen from the folder that was named."""

    def __init__(
        self,
        source: str,
        output: str | None,
        scratch: str,
        options: Options,
        inventory: Inventory,
        changes: Changes,
        stack: contextlib.ExitStack,
    ) -> None:
        folder = source if os.path.isdir(source) else os.path.dirname(source)
        while glob.has_magic(folder) and not os.path.lexists(folder):
            folder = os.path.dirname(folder)  # what is in front of the first wildcard
        self._source, self._root = source, os.path.abspath(folder or ".")
        self._is_dry = output is None
        self._output = scratch if output is None else output
        self._named = folder if output is None else output  # what reports call it
        self._options, self._inventory, self._changes = options, inventory, changes
        with Archives() as zips:
            self._profile, self._chosen, _ = profile_of(
                options.profile, inventory, zips, options.max_record_bytes
            )
        receiver = self._receiver = RECEIVERS[options.receiver] if options.receiver else ANY
        policy = Policy(self._profile.severities, receiver.severities(None), _OF_NO_FOLDER)
        self._source_ids = SourceIdNumbers(LARGEST_FOR.get(receiver.name), self._last_source_id)
        self._collector = Collector(policy, _MOST_FINDINGS)
        self._codes = options.codes(policy)
        self._files: dict[str, AtomicFile] = {}
        self._stack = stack  # removes in the end what was not published
        self._label_maps: dict[str, bytes] = {}
        self._results: list[ShardRepair] = []

    # Paths

    def _path(self, shard: WalkedShard, path: str | None = None) -> str:
        """Where the result of a shard goes, or of a file that belongs to it.

        One that lies above the source comes beside the shard.
        """
        root = os.sep if shard.archive else self._root
        relative = os.path.relpath(os.path.abspath(path or shard.path), root)
        if not relative.startswith(os.pardir + os.sep):
            return os.path.join(self._output, relative)
        if path is None:
            raise TfodError(f"{shard.name}: lies outside {root}; name the folder of all shards")
        return os.path.join(os.path.dirname(self._path(shard)), os.path.basename(path))

    def _label_map_path(self, shard: WalkedShard) -> str | None:
        """Where its label map goes; one for all shards comes beside each, in place of its own."""
        if shard.label_map is None:
            return None
        if self._options.label_map is not None:
            return os.path.join(os.path.dirname(self._path(shard)), LABEL_MAP_FILE)
        return self._path(shard, shard.label_map.name)

    def _name(self, path: str) -> str:
        """What reports call a file of the result."""
        return os.path.join(self._named, os.path.relpath(path, self._output))

    def require_free_names(self) -> None:
        """Require that every file of the result may be written, before any is.

        Raises:
            TfodError: one may not.
        """
        results: list[str] = []
        sources = {os.path.realpath(one.path) for one in self._inventory.locations}
        for shard in walk_shards(self._inventory, self._options.label_map):
            beside = [shard.label_map.name] if shard.label_map else []
            sources |= set(map(os.path.realpath, (*beside, *shard.candidates)))
            self._require_not_report(sources)
            results.append(self._path(shard))
            paths = [results[-1], self._label_map_path(shard)]
            paths += [self._path(shard, candidate) for candidate in shard.candidates]
            paths.append(results[-1] + INDEX_EXTENSION)  # of a shard that goes
            for path in filter(None, paths):
                if os.path.realpath(path) in sources:
                    raise TfodError(f"{path} is a part of the source; name another folder with -o")
                self._require_free(path)
        if not self._is_dry:
            recover(self._output)
            self._require_whole_sets(results)

    def _require_whole_sets(self, results: Sequence[str]) -> None:
        """Shards of another numbering would be one subset with the result."""
        subsets = {one.subset for one in group_shards(list(results), self._output)}
        ours = set(map(os.path.realpath, results))
        try:
            there = find_shards(self._output)
        except ShardsNotFoundError:
            return
        for path in (path for one in there if one.subset in subsets for path in one.paths):
            if os.path.realpath(path) not in ours:
                raise TfodError(
                    f"{path} would be in one subset with the result; name another folder with -o"
                )

    def _require_not_report(self, paths: Collection[str]) -> None:
        report = self._options.report
        if report is not None and os.path.realpath(report) in paths:
            raise TfodError(f"--report {report}: is of the source or the result; name another file")

    def _require_free(self, path: str) -> None:
        if os.path.lexists(path) and not self._options.overwrite:
            raise TfodError(f"{path} is there already; pass --overwrite, or another folder")

    # The result

    def repair(self) -> Outcome:
        """Repair all shards; the result is complete, and not yet published."""
        digests: dict[str, set[bytes]] = {}
        for shard in walk_shards(self._inventory, self._options.label_map, self._collector):
            self._repair_shard(shard, digests.setdefault(shard.subset, set()))
        repairs, most = self._results, self._options.max_dropped
        refused = []
        for why in why_refused(self._source, repairs, self._changes, self._codes, most):
            if not self._is_dry:
                raise RepairRefusedError(f"{why}; nothing was written")
            refused.append(why)
        self._make_label_map()
        for path, data in self._label_maps.items() if not self._is_dry else ():
            require_no_others(path, data, [one.output for one in repairs])
        return Outcome(
            source=self._source,
            output=None if self._is_dry else self._output,
            shards=len(repairs),
            records=sum(one.read for one in repairs),
            written=sum(one.written for one in repairs),
            label_maps=[self._name(path) for path in self._label_maps],
            changes=self._changes,
            remaining=self._check_result(),
            refused=refused,
        )

    def publish(self) -> None:
        """Give the files of the result their names.

        Raises:
            WriteError: one cannot have its name.
        """
        if not self._is_dry:
            pending = {path: file.aside for path, file in self._files.items()}
            stale = [one.output + INDEX_EXTENSION for one in self._results]
            publish_together(pending, stale, self._output)

    def _repair_shard(self, shard: WalkedShard, digests: set[bytes]) -> None:
        map_path = self._label_map_path(shard)
        if map_path is not None and map_path not in self._label_maps:
            self._copy_label_map(shard, map_path)
        candidates = [self._path(shard, candidate) for candidate in shard.candidates]
        for source, candidate in zip(shard.candidates, candidates, strict=True):
            if candidate not in self._files:  # which one is meant is left to a person
                with open(source, "rb") as stream:
                    self._write(candidate, stream.read())
        name = shard.label_map.name if shard.label_map else ""
        raised = self._raised.get(name)
        is_doubtful = name in self._raised and raised is None
        repair = ShardRepair(
            shard,
            self._path(shard),
            map_path,
            candidates,
            self._profile,
            self._codes - BY_IDS if is_doubtful else self._codes,
            self._options,
            self._changes,
            digests,
            self._source_ids,
            raised if "LAB005" in self._codes else None,
        )
        file = self._open(repair.output)
        repair.run(file)
        file.complete()
        self._results.append(repair)

    def _last_source_id(self) -> int:
        """The number behind which others are free; the shards are read once more for it."""
        key = self._profile.field_mapping.source_id or keys.SOURCE_ID
        used = (one for _, batches in self._read() for one in source_ids_of(batches, key))
        return last_before_free(used, self._source_ids.largest)

    @cached_property
    def _raised(self) -> Mapping[str, LabelMap | None]:
        """See :func:`raised_label_maps`; the shards are read once more for it."""
        return raised_label_maps(self._read(), self._profile)

    def _read(self) -> Iterator[tuple[LabelMapFile | None, Iterator[RecordBatch]]]:
        """The records of each shard before they are repaired, with its label map."""
        for shard in walk_shards(self._inventory, self._options.label_map):
            yield shard.label_map, self._batches(shard)

    def _batches(self, shard: WalkedShard) -> Iterator[RecordBatch]:
        limit = self._options.max_record_bytes
        with contextlib.suppress(ArchiveDamageError), shard.open() as stream:
            yield from read_record_batch_stream(
                stream, shard.name, on_damage=lambda _: None, max_record_bytes=limit
            )

    def _copy_label_map(self, shard: WalkedShard, path: str) -> None:
        """A label map of the source, in the legal spelling."""
        file, data = shard.label_map, shard.label_map_data
        assert file is not None  # else it has no path
        if file.label_map is None and not 0 < len(data) <= LONGEST_LABEL_MAP:
            raise TfodError(file.error)  # of a longer one only the beginning was read
        raised = self._raised.get(file.name)
        if raised is not None and "LAB005" in self._codes:
            data = raised.to_text().encode()
            what = "1 added to the ids of the label map, which counted from 0"
            self._changes.add(Change(what, code="LAB005"), Place(self._name(path)))
        elif file.label_map is not None and not data:
            data = file.label_map.to_text().encode()
        elif file.label_map and file.liberties and "LAB015" in self._codes:
            data = file.label_map.to_text().encode()
            why = "; ".join(liberty.partition(": ")[2] or liberty for liberty in file.liberties)
            self._changes.add(
                Change(f"label map rewritten: {why}", code="LAB015"), Place(file.name)
            )
        self._add_label_map(path, data)

    def _make_label_map(self) -> None:
        """Where shards have no label map, the one that their records define."""
        bare = [one for one in self._results if one.classes]
        if not bare or "LAB001" not in self._codes:
            return
        made = label_map_of(pair for one in bare for pair in one.classes)
        if made is None:
            return
        what = f"label map written, of {plural(len(made.items), 'class')} that the records name"
        for one in bare:
            path = one.label_map = os.path.join(os.path.dirname(one.output), LABEL_MAP_FILE)
            if path not in self._label_maps:
                self._require_free(path)
                self._changes.add(Change(what, code="LAB001"), Place(self._name(one.output)))
                self._add_label_map(path, made.to_text().encode())

    def _add_label_map(self, path: str, data: bytes) -> None:
        self._label_maps[path] = data
        self._write(path, data)

    def _write(self, path: str, data: bytes) -> None:
        file = self._open(path)
        file.write(data)
        file.complete()

    def _open(self, path: str) -> AtomicFile:
        self._require_not_report([os.path.realpath(path)])
        if path in self._files:
            raise TfodError(f"{path} would be written twice; repair the shards one by one")
        self._files[path] = file = AtomicFile(path)
        self._stack.callback(file.discard)
        return file

    def _check_result(self) -> Report:
        """What is left, as a check of the result by the profile of the source reports it."""
        results = {one.output: one for one in self._results}
        groups = []
        for group in group_shards(list(results), self._output):
            shards = [
                ShardSource(
                    Location(self._name(path), self._files[path].aside),
                    group.subset,
                    self._name(one.label_map) if one.label_map else None,
                    tuple(map(self._name, one.candidates)),
                )
                for path in group.paths
                for one in (results[path],)
            ]
            groups.append(ShardGroup(group.subset, shards, group.missing))
        label_maps = {self._name(path): data for path, data in self._label_maps.items()}
        # Each of several datasets has its own; where none fits, one may fit the result.
        is_kept = self._profile.features and len(datasets_of(self._inventory)) == 1
        options = CheckOptions(
            profile=self._profile if is_kept else self._options.profile,
            receiver=self._receiver,
            decode=0,
            severities=_OF_NO_FOLDER,
            max_findings=_MOST_FINDINGS,
            max_record_bytes=self._options.max_record_bytes,
            fail_on=Severity.WARNING,
            hash_sources=False,
        )
        others = self._collector.findings  # about the zip
        report = check(Inventory(groups, (), label_maps), options, others=others)
        datasets = list(report.datasets)
        if is_kept:
            datasets = [replace(one, profile=self._chosen) for one in datasets]
            report = replace(report, profile=self._chosen)
        if len(datasets) == 1:
            datasets = [replace(datasets[0], name=self._named)]
        return replace(report, datasets=datasets)
