"""The check: examine the shards of each dataset in order, and make a report.

``resolve_levels`` decides how severe each rule and case is. ``run_rules`` calls each rule for each
batch of records (:mod:`tfod.checker.analysis.examine`), or for the dataset after the last shard.
``Findings.add`` counts the findings and completes them. ``DatasetResult.add`` combines the shards.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tfod.checker.advice import advise
from tfod.checker.analysis.decoding import Decoding, MaxDecoded, choose_decoding
from tfod.checker.analysis.examine import Instructions, Progress, Step, examine_steps, take_steps
from tfod.checker.analysis.result import DatasetResult, ShardResult, explain_undecoded
from tfod.checker.finding import Findings, Severity
from tfod.checker.profiles.choice import AS_IMPORTED, NO_PROFILE, choose_profile
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import READY, Profile, Severities
from tfod.checker.receivers import ANY, DATUMARO, RECEIVERS, Receiver, choose_receiver, verdicts
from tfod.checker.report import ChosenProfile, DatasetReport, Report, SourceFile
from tfod.checker.rules.registry import run_rules
from tfod.errors import TfodError
from tfod.sources.layouts import SEGMENTATION
from tfod.sources.resolved import Dataset, LabelMapFile, ResolvedSources, Shard
from tfod.sources.resolver import resolve
from tfod.tfrecord.storage.archive import ZipLimits

if TYPE_CHECKING:
    from tfod.checker.baseline import Baseline
    from tfod.checker.references.cvat_task import Task
    from tfod.checker.references.pipeline_config import TrainingConfig

_MIN_BYTES_FOR_PROCESSES = 64 << 20
"""Smaller inputs are checked in one process: starting another takes half a second."""


class Runner(Protocol):
    """An executor outside of this machine: :class:`tfod.beam.Runner`."""

    def examine(self, shards: Sequence[Shard], instructions: Instructions) -> Iterable[ShardResult]:
        """Examine shards, and return the results in the same order."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a check.

    Attributes:
        profile: None for the receiver's profile, or else the best match.
        receiver: the program that will read the shards; None for CVAT if a task or CVAT's profile
            is given, and otherwise for any.
        task, training_config: references to compare the shards with.
        label_map: file or name of a label map for all shards; None for the one next to each shard.
        decode: maximum number of images to decode per shard; None for all, 0 for none. "auto" is
            all if the shards are small in total, or else a sample.
        severities: the user's severities of rules or families.
        configuration: the file that options were read from, shown in the report.
        max_findings: maximum number of findings to list.
        max_record_bytes: larger records are not read.
        runner: the Beam runner that does the work instead of processes of this machine.
        fail_on: the lowest severity that makes the report invalid.
        baseline: known findings, which are not reported.
    """

    profile: Profile | None = None
    receiver: Receiver | None = None
    task: Task | None = None
    training_config: TrainingConfig | None = None
    label_map: str | None = None
    decode: MaxDecoded = "auto"
    severities: Severities = field(default_factory=dict)
    configuration: str | None = None
    max_findings: int = 1000
    max_record_bytes: int = 256 << 20
    archive_limits: ZipLimits = field(default_factory=ZipLimits)
    jobs: int = 1
    runner: Runner | None = None
    fail_on: Severity = Severity.ERROR
    baseline: Baseline | None = None


def check_sources(sources: Sequence[str], options: Options | None = None) -> Report:
    """Check shards, sets, globs, folders, zips, URLs or standard input (``-``).

    Raises TfodError if the sources contain no shards, or an option is invalid.
    """
    options = options or Options()
    with resolve(sources, options.label_map, options.archive_limits) as resolved:
        return check(resolved, options)


def check(
    sources: ResolvedSources, options: Options | None = None, progress: Progress = lambda *_: None
) -> Report:
    """Check resolved sources; raise TfodError if an option is invalid, or a process died.

    ``progress`` is called with the number of (unpacked) bytes and records that were read. It may
    raise an exception to end the check. A Beam runner does not call it.
    """
    return take_steps(check_steps(sources, options), progress)


def check_steps(
    sources: ResolvedSources, options: Options | None = None
) -> Generator[Step, None, Report]:
    """Check resolved sources like :func:`check`, a batch of records at a time."""
    began = time.monotonic()
    options = options or Options()
    config = options.training_config
    requested = options.receiver or (RECEIVERS["od-api"] if config else None)
    receiver = choose_receiver(requested, options.profile, options.task)
    sources = use_label_map(sources, options)
    # A task or a configuration is compared with all shards together.
    if len(sources.datasets) > 1 and (options.task or config):
        sources = sources.join()
    datasets = sources.datasets or [Dataset("")]
    is_only = len(datasets) == 1
    # One decision for all shards, so that processes and Beam give the same report.
    decoding = choose_decoding(options.decode, [shard.size for shard in sources.shards])
    reports = []
    for dataset in datasets:
        report = yield from _check_dataset(dataset, options, receiver, decoding, is_only)
        reports.append(report)
    unused = _check_label_maps(sources.unused_label_maps, options, receiver)
    baseline = options.baseline
    if baseline is not None:
        from tfod.checker.baseline import remove_known

        baseline = remove_known([report.findings for report in (*reports, unused)], baseline)
    whole = Report.of(
        reports,
        unused,
        receiver=receiver.name,
        fail_on=options.fail_on,
        max_listed=options.max_findings,
        duration=time.monotonic() - began,
        configuration=options.configuration,
        baseline=baseline,
    )
    return replace(whole, findings=advise(whole))


def use_label_map(sources: ResolvedSources, options: Options) -> ResolvedSources:
    """Return the sources with the label map of the options, unless they already have one."""
    config = options.training_config
    label_map = options.label_map or (config.label_map if config else None)
    if label_map is None or sources.label_map is not None:
        return sources
    return sources.with_label_map(LabelMapFile.load(label_map))


def _check_dataset(
    dataset: Dataset, options: Options, receiver: Receiver, decoding: Decoding, is_only: bool
) -> Generator[Step, None, DatasetReport]:
    implied = READY[receiver.profile] if receiver.profile else None
    profile, chosen, unmatched = choose_profile(
        options.profile, dataset.shards, options.max_record_bytes, implied
    )
    # If there are other datasets, this is a finding, as for any unmatched records.
    if is_only and unmatched is not None and not SEGMENTATION.isdisjoint(unmatched.keys):
        raise TfodError(
            f"{unmatched.shard}: contains masks of whole images and no boxes, as for DeepLab's "
            "segmentation, which tfod does not check; pass shards with boxes, or a profile"
        )
    if unmatched is not None and receiver is DATUMARO:
        profile = AS_IMPORTED
    task, files = options.task, dataset.label_maps.items()
    levels = resolve_levels(profile.severities, receiver.severities(task), options.severities)
    label_maps = {name: file.label_map for name, file in files if file.label_map}
    title = receiver.title if receiver is not ANY else ""
    result = DatasetResult(
        dataset=dataset,
        profile=profile,
        findings=Findings(_max_listed(options), levels),
        unmatched=unmatched._replace(receiver=title) if unmatched else None,
        task=task,
        training_config=options.training_config,
    )
    instructions = Instructions(
        profile=profile,
        levels=levels,
        label_maps=label_maps,
        max_findings=_max_listed(options),
        max_record_bytes=options.max_record_bytes,
        decoding=decoding,
        keeps_rows=task is not None,
        counts_objects=options.training_config is not None,
    )
    if task is not None and task.skips_others:
        from tfod.checker.references.frames import Matcher

        instructions = instructions._replace(matcher=Matcher(task, ()))
    # Batch rules run while a shard is examined, dataset rules after the last shard.
    for part in _examine_all(dataset.shards, instructions, options):
        if isinstance(part, Step):
            yield part
        else:
            result.add(part)
    run_rules(result, result.findings, of_dataset=True)
    # Each receiver judges the findings by its own severities.
    by_receiver = verdicts(profile, options.severities, result.findings) if receiver is ANY else ()
    return DatasetReport(
        name=dataset.name,
        profile=chosen,
        findings=result.findings,
        fail_on=options.fail_on,
        shards=[replace(shard, rows=[], index=[]) for shard in result.shards],
        classes=result.classes,
        image_sizes=result.image_sizes,
        undecoded=explain_undecoded(decoding, levels, result.shards),
        files=[SourceFile(file.name, file.size) for file in dataset.files],
        verdicts=by_receiver,
    )


def _examine_all(
    shards: Sequence[Shard], instructions: Instructions, options: Options
) -> Iterable[Step | ShardResult]:
    """Yield the steps of shards, and the result of each."""
    if options.runner is not None:
        return options.runner.examine(shards, instructions)
    total = sum(shard.size or 0 for shard in shards)
    if options.jobs > 1 and len(shards) > 1 and total >= _MIN_BYTES_FOR_PROCESSES:
        from tfod.checker.processes import examine_in_processes  # its imports take a while

        return examine_in_processes(shards, instructions._replace(threads=1), options.jobs)
    return _examine_here(shards, instructions)


def _examine_here(
    shards: Sequence[Shard], instructions: Instructions
) -> Iterator[Step | ShardResult]:
    for shard in shards:
        result = yield from examine_steps(shard, instructions)
        yield result


def _check_label_maps(dataset: Dataset, options: Options, receiver: Receiver) -> DatasetReport:
    """Check the label maps among the sources that belong to no dataset."""
    levels = resolve_levels({}, receiver.severities(options.task), options.severities)
    findings = Findings(_max_listed(options), levels)
    result = DatasetResult(dataset, NO_PROFILE, findings)
    run_rules(result, findings, of_dataset=True)
    by_receiver = verdicts(None, options.severities, findings) if receiver is ANY else ()
    return DatasetReport("", ChosenProfile("", ""), findings, options.fail_on, verdicts=by_receiver)


def _max_listed(options: Options) -> int:
    # A baseline is compared with all findings.
    return options.max_findings if options.baseline is None else sys.maxsize
