"""The check: one streaming pass over the sources of each dataset, and a report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Protocol

from tfod.check.duplicates.row_blocks import scratch_folder
from tfod.check.engine.dataset_checks import check_together, class_names
from tfod.check.engine.inputs import Input, Progress, inputs_of
from tfod.check.engine.run import examine_here
from tfod.check.findings.baseline import Baseline, BaselineComparison
from tfod.check.findings.collector import Collector, Findings
from tfod.check.findings.finding import Place, Severity
from tfod.check.findings.fingerprints import KnownFingerprints
from tfod.check.findings.report import CheckedDataset, Report, SourceFile, make_report
from tfod.check.profiles.choice import profile_of
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import READY, Profile, Severities
from tfod.check.receivers import ANY, RECEIVERS, Receiver, receiver_of, verdicts
from tfod.check.records.images.decoding import MOST_DECODED, Decoding, choose_decoding
from tfod.check.records.instructions import Instructions, RecordOptions
from tfod.check.records.result import Result
from tfod.check.records.statistics import Statistics
from tfod.check.rules.example import no_profile
from tfod.check.rules.shards import empty_source
from tfod.check.sources.archive_contents import Archives
from tfod.check.sources.datasets import datasets_of, problems_of_sets
from tfod.check.sources.inventory import Inventory, Location
from tfod.check.sources.label_maps import load_label_maps
from tfod.check.sources.search import take_inventory

if TYPE_CHECKING:
    from tfod.check.references.cvat_task.task import Task
    from tfod.check.references.pipeline import TrainingConfig

_NO_IMAGES = "the others are not images, or announce many more pixels than they have bytes"


class Runner(Protocol):
    """Examines elsewhere than on this machine: :class:`tfod.beam.Runner`."""

    def examine(
        self, inputs: Sequence[Input], instructions: Instructions, keeps_rows: bool
    ) -> Result:
        """Examine all inputs, and find the duplicates among their records.

        Args:
            inputs: in the order of the report; shards are whole.
            instructions: the same for all of them.
            keeps_rows: whether the rows of all records are wanted at the end.
        """


@dataclass(frozen=True)
class Options(RecordOptions):
    """What may be asked of a check, besides what :class:`RecordOptions` has.

    Attributes:
        profile: the expected feature description; None for the receiver's, or else the one that
            fits best.
        receiver: who reads the shards next; None for CVAT where a task or CVAT's profile is given,
            and else for any.
        task: the CVAT task that the shards are meant for.
        training_config: what a trainer is to do with them.
        decode: how many images are decoded at most, an even sample of all; None for all, 0 for
            none.
        severities: of rules or families, stronger than the receiver's and the profile's.
        configuration: the file that options are from, for the report.
        jobs: how many processes work.
        runner: the Beam runner that does the work in place of processes of this machine.
        spill: whether what is remembered of many records may go into a temporary file.
        fail_on: the least severity that makes the verdict.
        baseline: findings that are known, which are not reported.
    """

    profile: Profile | None = None
    receiver: Receiver | None = None
    task: Task | None = None
    training_config: TrainingConfig | None = None
    decode: int | None = MOST_DECODED
    severities: Severities = field(default_factory=dict)
    configuration: str | None = None
    jobs: int = 1
    runner: Runner | None = None
    spill: bool = True
    fail_on: Severity = Severity.ERROR
    baseline: Baseline | None = None


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
        progress: is given the bytes and records that were read; of packed data the unpacked bytes.
            What it raises ends the check. A Beam runner does not call it.
        others: more findings, about no shard in the inventory.

    Raises:
        TfodError: the check could not run: nothing was found, or an option does not make sense.
    """
    began = time.monotonic()
    options = options or Options()
    progress = progress or (lambda *_: None)
    config = options.training_config
    asked = options.receiver or (RECEIVERS["od-api"] if config else None)
    receiver = receiver_of(asked, options.profile, options.task)
    label_map = options.label_map or inventory.label_map or (config.label_map if config else None)
    options = replace(options, label_map=label_map)
    checked: list[CheckedDataset] = []
    known = options.baseline.fingerprints() if options.baseline else None
    datasets = _datasets(inventory, options)
    needs_label_map = options.label_map is None
    with Archives(options.archive_limits, needs_label_map=needs_label_map) as archives:
        decoding = choose_decoding(options.decode, inventory, archives, options.max_record_bytes)
        for dataset in datasets:
            # Of several, a small one is done here before a pipeline begins.
            is_done_here = len(datasets) > 1 and _is_small(dataset, options)
            chosen = replace(options, runner=None) if is_done_here else options
            checked.append(
                _check_dataset(dataset, chosen, receiver, decoding, progress, archives, known)
            )
            decoding = replace(decoding, first=decoding.first + len(dataset.locations))
    collector = Collector(_policy({}, receiver, options), options.max_findings, known)
    for name, reason in inventory.empty:
        collector.add_all(empty_source(name, reason))
    for name in inventory.unused_label_maps:
        collector.check(load_label_maps((), name, {})[name], Place(name))
    if config is not None:
        from tfod.check.references.pipeline import check_training_config  # few checks need it

        check_training_config(config, checked, collector)
    if others is not None:
        collector.findings.merge(others)
    of_others = verdicts(None, collector) if receiver is ANY else ()
    comparison = BaselineComparison(options.baseline) if options.baseline else None
    if comparison is not None:
        for findings in (*(one.findings for one in checked), collector.findings):
            findings.close()
            comparison.remove_known(findings)
    return make_report(
        checked,
        receiver=receiver.name,
        fail_on=options.fail_on,
        configuration=options.configuration,
        began=began,
        others=collector.findings,
        verdicts=of_others,
        baseline=comparison,
    )


def _policy(profile: Severities, receiver: Receiver, options: Options) -> Policy:
    of_receiver = receiver.severities(options.task)
    return Policy(profile, of_receiver, options.severities)


def _datasets(inventory: Inventory, options: Options) -> list[Inventory]:
    """The datasets; one where a task is said to be of all that there is."""
    found = datasets_of(inventory)
    if len(found) > 1 and options.task:
        return [replace(inventory, name=", ".join(one.name for one in found))]
    return found or [inventory]


def _is_small(dataset: Inventory, options: Options) -> bool:
    """Whether a dataset is known to have fewer bytes than are shared among workers."""
    sizes = [one.known_size() for one in dataset.locations]
    known = [size for size in sizes if size is not None]
    return len(known) == len(sizes) and sum(known) < 2 * options.part_bytes


def _check_dataset(
    inventory: Inventory,
    options: Options,
    receiver: Receiver,
    decoding: Decoding,
    progress: Progress,
    archives: Archives,
    known: KnownFingerprints | None,
) -> CheckedDataset:
    implied = READY[receiver.profile] if receiver.profile else None
    profile, chosen, unknown = profile_of(
        options.profile, inventory, archives, options.max_record_bytes, implied
    )
    policy = _policy(profile.severities, receiver, options)
    collector = Collector(policy, options.max_findings, known)
    beside = [one.label_map for one in inventory.shards if one.label_map]
    label_maps = load_label_maps(beside, options.label_map, inventory.label_maps)
    decoding = decoding.under(policy)
    inputs = inputs_of(inventory, options.hash_sources)
    instructions = Instructions(
        **{one.name: getattr(options, one.name) for one in fields(RecordOptions)},
        profile=profile,
        policy=policy,
        decoding=decoding,
        counts_objects=options.training_config is not None,
        label_maps={name: one.label_map for name, one in label_maps.items() if one.label_map},
        known=known,
    )
    with scratch_folder() if options.spill and not options.runner else nullcontext() as folder:
        if options.runner is None:
            result = examine_here(inputs, instructions, options.jobs, progress, folder, archives)
        else:
            result = options.runner.examine(inputs, instructions, options.task is not None)
        label_maps.update(sorted(result.label_maps.items()))
        for name, file in label_maps.items():
            collector.check(file, Place(name))
        collector.findings.merge(result.all_findings())
        for group in inventory.groups:
            paths = [shard.location.name for shard in group.shards]
            for stem, problems in problems_of_sets(paths, group.missing):
                collector.add_all(problems, Place(stem))
        if unknown is not None:
            features, layout, shard = unknown
            title = receiver.title if receiver is not ANY else ""
            collector.add_all(no_profile(features, title, layout), Place(shard))
        check_together(result, label_maps, collector, instructions, options.task)
        statistics = Statistics(class_names(result.uses, label_maps), result.image_sizes)
    collector.findings.close()
    return CheckedDataset(
        name=inventory.name,
        profile=chosen,
        findings=collector.findings,
        shards=result.all_shards(),
        statistics=statistics,
        undecoded=decoding.limit or _NO_IMAGES,
        sources=[
            _source_file(one, result.digests.get(one.name), options.hash_sources)
            for one in inventory.locations
        ],
        label_maps=label_maps,
        verdicts=verdicts(profile, collector) if receiver is ANY else (),
    )


def _source_file(location: Location, digest: str | None, is_hashed: bool) -> SourceFile:
    is_read = digest is not None or not is_hashed
    return SourceFile(location.name, location.known_size() if is_read else None, digest)
