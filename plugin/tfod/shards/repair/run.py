"""The repair of everything a source means, into a folder of its own."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

from tfod.check.amounts import plural
from tfod.check.box_columns import MOST_SLIPS, BoxColumns, ColumnOrder, is_many
from tfod.check.collector import Collector, Findings
from tfod.check.compare_records import class_names, examination_of, judge_together
from tfod.check.conclusion import JudgedDataset, conclude
from tfod.check.examine import Examiner
from tfod.check.examined import Examined, Instructions
from tfod.check.finding import Place, Severity
from tfod.check.profiles.profile import OFF, Policy, Profile
from tfod.check.receivers import ANY
from tfod.check.report import Report
from tfod.check.row_blocks import RowBlock, RowCollector
from tfod.check.row_store import RowStore, scratch_folder
from tfod.check.rules.labels import LabelMapFile
from tfod.check.rules.registry import all_rules
from tfod.check.rules.repairs import INEVITABLE, MAX_DROPPED, REPAIRS
from tfod.check.sampling import profile_of
from tfod.check.shard_walk import WalkedShard, walk_shards
from tfod.check.sources import Inventory, take_inventory
from tfod.check.tally import ShardSummary, WorkResult
from tfod.check.tally import Tally as CheckTally
from tfod.check.work import label_map_file, number_of, numbered_sets
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.shards.repair.boxes import why_not_one_by_one
from tfod.shards.repair.changes import Change, Tally
from tfod.shards.repair.label_maps import map_from_uses
from tfod.shards.repair.layout import LABEL_MAP, Layout
from tfod.shards.repair.shard import Orders, ShardRepair
from tfod.tfrecord.index import INDEX_EXTENSION
from tfod.tfrecord.publishing import publish_together, recover
from tfod.tfrecord.shard_sources import require_content
from tfod.tfrecord.shards import find_shards, group_shards
from tfod.tfrecord.writer import AtomicFile

_MOST_FINDINGS = 1000
# About the zip itself, which the result is not.
_OF_NO_FOLDER = dict.fromkeys(("ZIP014", "ZIP016", "ZIP017"), OFF)


@dataclass(frozen=True)
class Options:
    """What may be asked of a repair.

    Attributes:
        profile: the expected feature description; None to choose the one that fits best.
        label_map: file or name of a label map for all shards; None for those beside them.
        only: codes or families of the rules to repair; None for all.
        skip: codes or families not to repair; stronger.
        max_record_bytes: a larger record ends the repair.
        overwrite: whether files of the result may replace others.
        report: a file that is written besides; it must be none of the source or the result.
        columns: in which order to read the columns of all boxes; None for the usual one.
        max_dropped: the repair is refused where a larger share of the objects or the records
            would be removed.
    """

    profile: Profile | None = None
    label_map: str | None = None
    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    max_record_bytes: int = 256 << 20
    overwrite: bool = False
    report: str | None = None
    columns: ColumnOrder | None = None
    max_dropped: float = MAX_DROPPED

    def codes(self, policy: Policy) -> frozenset[str]:
        """The rules whose findings are to be repaired."""
        found = set(INEVITABLE)
        for rule in all_rules().values():
            names = {rule.code, rule.family}
            asked = self.only is None or names & self.only
            if rule.code in REPAIRS and asked and not names & self.skip:
                found |= {rule.code} if policy.severity(rule) is not None else set()
        return frozenset(found)


@dataclass
class Outcome:
    """What a repair has done.

    Attributes:
        source: what was repaired.
        output: the folder of the result; None when nothing was to be written.
        shards, records: how many were read.
        written: how many records the result has.
        label_maps: the label maps of the result, by path.
        tally: the changes.
        remaining: what a check of the result says.
        refused: why a repair that writes would be refused; empty for one that would not.
    """

    source: str
    output: str | None
    shards: int
    records: int
    written: int
    label_maps: Sequence[str]
    tally: Tally
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
        output: folder of the result, whose files appear complete or not at all; None to write
            nothing and only say what would be done.
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
    with take_inventory([source]) as inventory:
        for location in inventory.locations:
            if location.remote or location.name != location.path:
                raise TfodError(f"{location.name}: only files on this machine can be repaired")
        if len(inventory.archives) + bool(inventory.shards) > 1:
            # Their entries may have the same names.
            raise TfodError(f"{source}: there are several zips; repair them one by one")
        for group in inventory.groups:
            require_content([shard.location.path for shard in group.shards])
        with scratch_folder() as folder, closing(RowStore(folder)) as rows:
            run = _Run(source, output, options or Options(), inventory, Tally(write), rows)
            try:
                run.plan()
                outcome = run.do()
                if close is not None:
                    close(outcome)
                run.publish()
                return outcome
            finally:
                run.discard()


@dataclass
class _Repaired:
    """A shard of the result: what is known of it, what its records show, and what it comes to."""

    summary: ShardSummary
    examined: Examined
    result: WorkResult


@dataclass
class _Run:
    """One repair."""

    source: str
    output: str | None
    options: Options
    inventory: Inventory
    tally: Tally
    rows: RowStore
    _files: dict[str, AtomicFile] = field(default_factory=dict)
    _results: list[_Repaired] = field(default_factory=list)
    _label_maps: dict[str, LabelMapFile] = field(default_factory=dict)
    _rivals: set[str] = field(default_factory=set)
    _refused: list[str] = field(default_factory=list)
    _columns: dict[tuple[str, str], BoxColumns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options, self._began = self.options, time.monotonic()
        limit = options.max_record_bytes
        profile, self._chosen, self._unknown = profile_of(options.profile, self.inventory, limit)
        self._policy = Policy(profile.severities, user=_OF_NO_FOLDER)
        self._collector = Collector(self._policy, _MOST_FINDINGS)
        self._orders = Orders(profile, options.codes(self._policy), limit, options.columns)
        self._instructions = Instructions(profile, self._policy, _MOST_FINDINGS, limit)
        self._layout = Layout.of(self.source, self.output)
        self._read = self._written = self._objects = self._repeated = 0

    def plan(self) -> None:
        """Hold that every file of the result may be written, before any is.

        Raises:
            TfodError: one may not.
        """
        silent = Collector(self._policy, 0)
        results: list[str] = []
        sources = {os.path.realpath(one.path) for one in self.inventory.locations}
        for shard in walk_shards(self.inventory, self.options.label_map, silent):
            sources |= {os.path.realpath(shard.label_map.name)} if shard.label_map else set()
            sources |= {os.path.realpath(rival) for rival in shard.rivals}
            self._require_not_report(sources)
            if self.output is None:
                continue
            named = self.options.label_map is not None
            results.append(self._layout.shard(shard))
            paths = [results[-1], self._layout.label_map(shard, named)]
            paths += [self._layout.companion(shard, rival) for rival in shard.rivals]
            paths.append(results[-1] + INDEX_EXTENSION)  # of a shard that goes
            for path in filter(None, paths):
                if os.path.realpath(path) in sources:
                    raise TfodError(f"{path} is a part of the source; name another folder with -o")
                self._require_free(path)

        if self.output is not None:
            recover(self.output)
            self._require_whole_sets(results, self.output)

    def _require_whole_sets(self, results: Sequence[str], output: str) -> None:
        """Shards of another numbering would be one subset with the result."""
        subsets = {one.subset for one in group_shards(list(results), output)}
        ours = set(map(os.path.realpath, results))
        try:
            there = find_shards(output)
        except ShardsNotFoundError:
            return
        for path in (path for one in there if one.subset in subsets for path in one.paths):
            if os.path.realpath(path) not in ours:
                raise TfodError(
                    f"{path} would be in one subset with the result; name another folder with -o"
                )

    def _require_not_report(self, paths: Iterable[str]) -> None:
        report = self.options.report
        if report is not None and os.path.realpath(report) in set(paths):
            raise TfodError(f"--report {report}: is of the source or the result; name another file")

    def _require_free(self, path: str) -> None:
        if self.output is not None and os.path.lexists(path) and not self.options.overwrite:
            raise TfodError(f"{path} is there already; pass --overwrite, or another folder")

    def do(self) -> Outcome:
        """Repair all shards; the result is complete, and not yet published."""
        seen: dict[str, set[bytes]] = {}
        for shard in walk_shards(self.inventory, self.options.label_map, self._collector):
            self._repair_shard(shard, seen.setdefault(shard.subset, set()))
        self._require_slips()
        self._require_few_dropped()
        self._make_label_map()
        remaining = self._remaining()
        return Outcome(
            source=self.source,
            output=self.output,
            shards=len(self._results),
            records=self._read,
            written=self._written,
            label_maps=[*self._label_maps],
            tally=self.tally,
            remaining=remaining,
            refused=self._refused,
        )

    def publish(self) -> None:
        """Give the files of the result their names.

        Raises:
            WriteError: one cannot have its name.
        """
        if self.output is not None:
            pending = {path: file.aside for path, file in self._files.items()}
            stale = [one.summary.name + INDEX_EXTENSION for one in self._results]
            publish_together(pending, stale, self.output)

    def _require_slips(self) -> None:
        """Of each shard and each set, and of all together: a shard or a set may have few boxes."""
        parts = [*self._columns.items()]
        whole = reduce(add, (columns for _, columns in parts), BoxColumns())
        sets: dict[str, BoxColumns] = {}
        for (subset, _), columns in parts:
            sets[subset] = sets.get(subset, BoxColumns()) + columns
        named = [(shard, columns) for (_, shard), columns in parts]
        named += [(f"{self.source}, {subset}", columns) for subset, columns in sets.items()]
        # Of few boxes in one of many shards it is the whole that tells.
        named = [one for one in named if one[1].improper > MOST_SLIPS or one[1] == whole]
        found = []
        for where, columns in (*named, (self.source, whole)):
            why = why_not_one_by_one(columns, self._orders.codes)
            if why is not None:
                found.append((bool(columns.candidates), columns.boxes, f"{where}: {why}"))
        if found:
            # One that names the order of the columns says more, and the most boxes say it best.
            self._refuse(max(found, key=lambda one: one[:2])[2])

    def _require_few_dropped(self) -> None:
        """A set without its objects or its records is valid, and useless."""
        most, tally = self.options.max_dropped, self.tally
        # Of a record that comes twice nothing is lost.
        records = tally.records_dropped - self._repeated
        # Damaged ones were never read.
        all_records = self._written + tally.records_dropped
        if tally.objects_dropped > most * self._objects:
            self._refuse_to_drop(tally.objects_dropped, self._objects, "object")
        elif is_many(records, all_records, most):
            self._refuse_to_drop(records, all_records, "record")

    def _refuse_to_drop(self, dropped: int, of: int, what: str) -> None:
        share = math.ceil(100 * dropped / of)
        self._refuse(
            f"{dropped:,} of {plural(of, what)} ({share} %) would be removed, more than "
            f"{self.options.max_dropped * 100:.0f} %; look at them with --dry-run, then pass "
            f"--max-dropped {share} to remove them"
        )

    def _refuse(self, why: str) -> None:
        """What only says what it would do says this, too."""
        if self.output is not None:
            raise RepairRefusedError(f"{why}; nothing was written")
        self._refused.append(why)

    def discard(self) -> None:
        """Remove what was not published."""
        for file in reversed(self._files.values()):
            file.discard()

    def _repair_shard(self, shard: WalkedShard, seen: set[bytes]) -> None:
        path = self._layout.shard(shard)
        map_path = self._layout.label_map(shard, self.options.label_map is not None)
        if map_path is not None and map_path not in self._label_maps:
            self._copy_label_map(shard, map_path)
        rivals = [self._layout.companion(shard, rival) for rival in shard.rivals]
        for path_of_rival, rival in zip(rivals, shard.rivals, strict=True):
            self._copy_rival(rival, path_of_rival)
        label_map = shard.label_map.label_map if shard.label_map else None
        number = number_of(len(self._results))
        result = WorkResult(number, Findings(_MOST_FINDINGS))
        rows = RowCollector(
            number, 0, shard.subset, lambda block: result.blocks.append(self.rows.keep(block))
        )
        examiner = Examiner(self._instructions, path, label_map, rows, numbered=shard.numbered)
        repair = ShardRepair(shard, self._orders, self.tally, examiner, seen)
        file = self._open(path)
        repair.run(file)
        if file is not None:
            file.complete()
        self._columns[shard.subset, shard.name] = repair.columns
        self._objects += repair.objects
        self._repeated += repair.repeated
        self._read += repair.read
        self._written += repair.written
        summary = ShardSummary(number, 0, path, shard.subset, map_path, rivals)
        self._results.append(_Repaired(summary, examiner.finish(), result))

    def _copy_label_map(self, shard: WalkedShard, path: str) -> None:
        """A label map of the source, in the legal spelling."""
        file = shard.label_map
        assert file is not None  # else it has no path
        data, found = shard.label_map_data, file.label_map
        if found is None and not data:
            raise TfodError(file.error)
        if found is not None and not data:
            data = found.to_text().encode()
        elif found is not None and file.liberties and "LAB015" in self._orders.codes:
            data = found.to_text().encode()
            told = "; ".join(liberty.partition(": ")[2] or liberty for liberty in file.liberties)
            self.tally.add(Change("LAB015", f"label map written anew: {told}"), Place(file.name))
        self._write_label_map(path, data)

    def _copy_rival(self, source: str, path: str) -> None:
        """One of several label maps that fit a shard equally well: which one is to be decided."""
        if path not in self._rivals:
            self._rivals.add(path)
            file = self._open(path)
            if file is not None:
                with open(source, "rb") as stream:
                    shutil.copyfileobj(stream, file)
                file.complete()

    def _make_label_map(self) -> None:
        """Where shards have no label map, the one that their records define."""
        bare = [
            one
            for one in self._results
            if not one.summary.label_map and not one.summary.rivals and one.examined.boxes
        ]
        if not bare or "LAB001" not in self._orders.codes:
            return
        made = map_from_uses(one.examined.uses for one in bare)
        if made is None:
            return
        what = f"label map written, of {plural(len(made.items), 'class')} that the records name"
        for one in bare:
            path = os.path.join(os.path.dirname(one.summary.name), LABEL_MAP)
            one.summary = replace(one.summary, label_map=path)
            if path not in self._label_maps:
                self._require_free(path)
                self.tally.add(Change("LAB001", what), Place(one.summary.name))
                self._write_label_map(path, made.to_text().encode())

    def _write_label_map(self, path: str, data: bytes) -> None:
        self._label_maps[path] = label_map_file(data, path)
        file = self._open(path)
        if file is not None:
            file.write(data)
            file.complete()

    def _open(self, path: str) -> AtomicFile | None:
        if self.output is None:
            return None
        folder, name = os.path.split(path)
        self._require_not_report([os.path.realpath(path)])
        if path in self._files:
            raise TfodError(f"{path} would be written twice; repair the shards one by one")
        file = AtomicFile(folder, name[:100])
        self._files[path] = file
        return file

    def _remaining(self) -> Report:
        """What is left, as a check of the result says it."""
        collector = self._collector
        for name, file in self._label_maps.items():
            collector.judge(file, Place(name))
        paths = [one.summary.name for one in self._results]
        for group in group_shards(paths, self._layout.output):
            for numbered in numbered_sets(group.paths, group.missing):
                collector.judge(numbered, Place(numbered.stem))
        if self._unknown is not None:
            collector.judge(*self._unknown)
        tally = CheckTally(_MOST_FINDINGS)
        blocks: list[RowBlock] = []
        for one in self._results:
            one.result.add(one.summary, one.examined)
            tally.add(one.result)
            blocks += one.result.blocks
        collector.findings.merge(tally.findings())
        shards = tally.shards()
        judge_together(
            examination_of(tally, blocks, _MOST_FINDINGS),
            shards,
            self._label_maps,
            collector,
            task=None,
            annotations=None,
            field_mapping=self._orders.profile.field_mapping,
        )
        remaining = JudgedDataset(
            name=self._layout.output,
            profile=self._chosen,
            findings=collector.findings,
            shards=shards,
            statistics=tally.figures.statistics,
            classes=class_names(tally.figures.uses, self._label_maps),
            undecoded="repair does not decode",
        )
        return conclude(
            [remaining],
            receiver=ANY.name,
            fail_on=Severity.WARNING,
            began=self._began,
        )
