"""The check: one streaming pass over the sources of each dataset, and a report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

from tfod.check.annotations import Annotations
from tfod.check.archive import ArchiveLimits
from tfod.check.collector import Collector, Findings
from tfod.check.compare_records import Examination, class_names, judge_together
from tfod.check.conclusion import JudgedDataset, conclude
from tfod.check.datasets import Dataset, datasets_of
from tfod.check.decoding import MOST_DECODED, Decoding, choose_decoding
from tfod.check.examined import Instructions
from tfod.check.finding import Place, Severity
from tfod.check.local_check import examine_here
from tfod.check.plan import Plan, label_maps_of
from tfod.check.profiles.profile import READY, Policy, Profile, Severities
from tfod.check.receivers import ANY, Receiver, receiver_of
from tfod.check.report import Report, SourceFile
from tfod.check.row_store import scratch_folder
from tfod.check.sampling import profile_of
from tfod.check.sources import Inventory, Location, take_inventory
from tfod.check.task import Task
from tfod.check.work import Progress, numbered_sets
from tfod.tfrecord.remote import patience

_NO_IMAGES = "the others are no images, or announce many more pixels than they have bytes"


class Runner(Protocol):
    """Does the work elsewhere than in this process: :class:`tfod.beam.Runner`."""

    def examine(self, plan: Plan) -> Examination:
        """Do all the work."""


@dataclass(frozen=True)
class Options:
    """What may be asked of a check.

    Attributes:
        profile: the expected feature description; None for the receiver's, or else the one that
            fits best.
        receiver: who reads the shards next; None for CVAT where a task or CVAT's profile is given,
            and else for any.
        label_map: file or name of a label map for all shards; None for those beside them.
        task: the CVAT task that the shards are meant for.
        annotations: what the shards were made from.
        decode: how many images are decoded at most, an even sample of all; None for all, 0 for
            none.
        with_tensorflow: whether TensorFlow itself is to parse every record.
        severities: of rules or families, stronger than the receiver's and the profile's.
        max_findings: how many are listed.
        max_record_bytes: larger records are not read.
        jobs: how many processes work.
        runner: the Beam runner that does the work in place of processes of this machine.
        part_bytes: large shards are shared among them in parts of about so many bytes.
        spill: whether what is remembered of many records may go into a temporary file.
        fail_on: the least severity that makes the verdict.
        hash_sources: whether the report names the SHA-256 of each source.
        archive_limits: where the reading of archives stops.
    """

    profile: Profile | None = None
    receiver: Receiver | None = None
    label_map: str | None = None
    task: Task | None = None
    annotations: Annotations | None = None
    decode: int | None = MOST_DECODED
    with_tensorflow: bool = False
    severities: Severities = field(default_factory=dict)
    max_findings: int = 1000
    max_record_bytes: int = 256 << 20
    jobs: int = 1
    runner: Runner | None = None
    part_bytes: int = 32 << 20
    spill: bool = True
    fail_on: Severity = Severity.ERROR
    hash_sources: bool = True
    archive_limits: ArchiveLimits = field(default_factory=ArchiveLimits)


def check_sources(sources: Sequence[str], options: Options | None = None) -> Report:
    """Check shards, sets, globs, folders, zips, URLs or standard input (``-``).

    Raises:
        TfodError: the check could not run: nothing was found, or an option does not make sense.
    """
    has_label_map = options is not None and options.label_map is not None
    with take_inventory(sources, has_label_map) as inventory:
        return check(inventory, options)


def check(
    inventory: Inventory,
    options: Options | None = None,
    progress: Progress | None = None,
    others: Findings | None = None,
) -> Report:
    """Check what is in an inventory.

    Args:
        inventory: what is to be checked.
        options: how.
        progress: told of bytes and records that were read; of packed data the unpacked bytes. What
            it raises ends the check. A Beam runner does not tell.
        others: more findings, about no shard in the inventory.

    Raises:
        TfodError: the check could not run: nothing was found, or an option does not make sense.
    """
    began = time.monotonic()
    options = options or Options()
    receiver = receiver_of(options.receiver, options.profile, options.task)
    options = replace(options, label_map=options.label_map or inventory.label_map)
    decoding = choose_decoding(
        options.decode,
        inventory,
        max_record_bytes=options.max_record_bytes,
        limits=options.archive_limits,
    )
    judged: list[JudgedDataset] = []
    datasets = _datasets(inventory, options)
    for dataset in datasets:
        run = _Run(_without_runner(options, dataset, datasets), receiver, dataset, decoding)
        with scratch_folder() if options.spill and not options.runner else nullcontext() as folder:
            judged.append(run.judge(run.examine(progress or _nothing, folder)))
        decoding = replace(decoding, first=decoding.first + len(dataset.inventory.locations))
    collector = Collector(
        Policy({}, receiver.severities(options.task), options.severities), options.max_findings
    )
    for source in inventory.empty:
        collector.judge(source)
    if others is not None:
        collector.findings.merge(others)
    return conclude(
        judged,
        receiver=receiver.name,
        fail_on=options.fail_on,
        began=began,
        others=collector.findings,
    )


def _datasets(inventory: Inventory, options: Options) -> list[Dataset]:
    """The datasets; one where a task or annotations are said to be of all that there is."""
    found = datasets_of(inventory)
    if len(found) > 1 and (options.task or options.annotations):
        return [Dataset(", ".join(one.name for one in found), inventory)]
    return found or [Dataset("", inventory)]


def _without_runner(options: Options, dataset: Dataset, datasets: Sequence[Dataset]) -> Options:
    """The options for one dataset: of several a small one is done before a pipeline begins."""
    sizes = [one.known_size() for one in dataset.inventory.locations]
    known = [size for size in sizes if size is not None]
    is_small = len(known) == len(sizes) and sum(known) < 2 * options.part_bytes
    return replace(options, runner=None) if len(datasets) > 1 and is_small else options


class _Run:
    """The check of one dataset."""

    def __init__(
        self, options: Options, receiver: Receiver, dataset: Dataset, decoding: Decoding
    ) -> None:
        self._options = options
        self._dataset = dataset
        inventory = dataset.inventory
        profile, self._chosen, self._unknown = profile_of(
            options.profile,
            inventory,
            options.max_record_bytes,
            implied=READY[receiver.profile] if receiver.profile else None,
        )
        if self._unknown is not None and receiver is not ANY:
            records, place = self._unknown
            self._unknown = replace(records, receiver=receiver.title), place
        policy = Policy(profile.severities, receiver.severities(options.task), options.severities)
        self._collector = Collector(policy, options.max_findings)
        self._label_maps = label_maps_of(inventory, options.label_map)
        instructions = Instructions(
            profile=profile,
            policy=policy,
            max_findings=options.max_findings,
            max_record_bytes=options.max_record_bytes,
            decoding=decoding.under(policy),
            with_tensorflow=options.with_tensorflow,
            annotations=options.annotations,
            label_maps={
                name: file.label_map for name, file in self._label_maps.items() if file.label_map
            },
            patience=patience(),
        )
        self._plan = Plan(
            inventory,
            instructions,
            options.label_map,
            options.part_bytes,
            options.hash_sources,
            options.archive_limits,
            keeps_rows=options.task is not None,
        )

    def examine(self, progress: Progress, folder: str | None) -> Examination:
        """Do all the work; rows for which memory is too small go into the folder."""
        if self._options.runner is None:
            return examine_here(self._plan, self._options.jobs, progress, folder)
        return self._options.runner.examine(self._plan)

    def judge(self, examination: Examination) -> JudgedDataset:
        """Bring together what the work came to."""
        tally, collector = examination.tally, self._collector
        label_maps = {**self._label_maps, **dict(sorted(tally.label_maps.items()))}
        for name, file in label_maps.items():
            collector.judge(file, Place(name))
        collector.findings.merge(tally.findings())
        self._judge_sets()
        shards = tally.shards()
        judge_together(
            examination,
            shards,
            label_maps,
            collector,
            task=self._options.task,
            annotations=self._options.annotations,
            field_mapping=self._plan.instructions.profile.field_mapping,
        )
        locations = self._dataset.inventory.locations
        return JudgedDataset(
            name=self._dataset.name,
            profile=self._chosen,
            findings=collector.findings,
            shards=shards,
            statistics=tally.figures.statistics,
            classes=class_names(tally.figures.uses, label_maps),
            undecoded=self._plan.instructions.decoding.limit or _NO_IMAGES,
            sources=[self._source_file(one, tally.digests) for one in locations],
        )

    def _source_file(self, location: Location, digests: Mapping[str, str]) -> SourceFile:
        digest = digests.get(location.name)
        is_read = digest is not None or not self._options.hash_sources
        return SourceFile(location.name, location.known_size() if is_read else None, digest)

    def _judge_sets(self) -> None:
        """Judge what is known before any shard is opened, and what the sampling has found."""
        for group in self._dataset.inventory.groups:
            paths = [shard.location.name for shard in group.shards]
            for one in numbered_sets(paths, group.missing):
                self._collector.judge(one, Place(one.stem))
        if self._unknown is not None:
            self._collector.judge(*self._unknown)


def _nothing(_: int, __: int) -> None:
    pass
