"""The check: a fold over the shards of each data set, in their order, and a report.

The life of a finding: a rule yields it, called by ``run_rules`` for each batch of records
(:mod:`tfod.checker.analysis.examine`) or, after the last shard, for the data set. ``Findings.add``
counts it and fills in what its rule says; ``DatasetResult.add`` joins those of the shards.
``levels_of`` decides before the first record how severe each rule and case is: by the user, the
receiver, the profile or the rule, the first that says anything. ``Report.findings`` chooses those
that are listed, and a reporter prints them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tfod.checker.analysis.encoded_images import MOST_DECODED, why_not_all_decoded
from tfod.checker.analysis.examine import Instructions, Progress, examine
from tfod.checker.analysis.result import DatasetResult, ShardResult
from tfod.checker.finding import Findings, Severity
from tfod.checker.profiles.choice import AS_IMPORTED, NO_PROFILE, profile_of
from tfod.checker.profiles.policy import levels_of
from tfod.checker.profiles.profile import READY, Profile, Severities
from tfod.checker.receivers import ANY, DATUMARO, RECEIVERS, Receiver, receiver_of, verdicts
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

_WORTH_PROCESSES = 64 << 20
"""Bytes: of fewer none are shared, since another process takes half a second to start."""


class Runner(Protocol):
    """Examines elsewhere than on this machine: :class:`tfod.beam.Runner`."""

    def examine(self, shards: Sequence[Shard], instructions: Instructions) -> Iterable[ShardResult]:
        """Examine shards; the results are in their order."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be asked of a check.

    Attributes:
        profile: the expected feature description; None for the receiver's, or else the one that
            fits best.
        receiver: who reads the shards next; None for CVAT where a task or CVAT's profile is given,
            and else for any.
        task: the CVAT task that the shards are meant for.
        training_config: what a trainer is to do with them.
        label_map: file or name of a label map for all shards; None for those beside them.
        decode: how many images of each shard are decoded at most; None for all, 0 for none.
        severities: of rules or families, stronger than the receiver's and the profile's.
        configuration: the file that options are from, for the report.
        max_findings: how many are listed.
        max_record_bytes: larger records are not read.
        archive_limits: where the reading of archives stops.
        jobs: how many processes work.
        runner: the Beam runner that does the work in place of processes of this machine.
        fail_on: the least severity that makes the verdict.
        baseline: findings that are known, which are not reported.
    """

    profile: Profile | None = None
    receiver: Receiver | None = None
    task: Task | None = None
    training_config: TrainingConfig | None = None
    label_map: str | None = None
    decode: int | None = MOST_DECODED
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

    Raises:
        TfodError: the check could not run: nothing was found, or an option does not make sense.
    """
    options = options or Options()
    with resolve(sources, options.label_map, options.archive_limits) as found:
        return check(found, options)


def check(
    found: ResolvedSources, options: Options | None = None, progress: Progress = lambda *_: None
) -> Report:
    """Check what was found.

    Args:
        found: what is to be checked.
        options: how.
        progress: is given the bytes and records that were read; of packed data the unpacked bytes.
            What it raises ends the check. A Beam runner does not call it.

    Raises:
        TfodError: the check could not run: an option does not make sense, or a process died.
    """
    began = time.monotonic()
    options = options or Options()
    config = options.training_config
    asked = options.receiver or (RECEIVERS["od-api"] if config else None)
    receiver = receiver_of(asked, options.profile, options.task)
    label_map = options.label_map or (config.label_map if config else None)
    if label_map is not None and found.label_map is None:
        found = found.with_label_map(LabelMapFile.named(label_map))
    if len(found.datasets) > 1 and (options.task or config):  # each is about all shards together
        found = found.joined()
    datasets = found.datasets or [Dataset("")]
    is_alone = len(datasets) == 1
    checked = [_check_dataset(one, options, receiver, progress, is_alone) for one in datasets]
    rest = _check_rest(found.unused_label_maps, options, receiver)
    baseline = options.baseline
    if baseline is not None:
        from tfod.checker.baseline import without_known

        baseline = without_known([one.findings for one in (*checked, rest)], baseline)
    return Report.of(
        checked,
        rest,
        receiver=receiver.name,
        fail_on=options.fail_on,
        most=options.max_findings,
        duration=time.monotonic() - began,
        configuration=options.configuration,
        baseline=baseline,
    )


def _check_dataset(
    dataset: Dataset, options: Options, receiver: Receiver, progress: Progress, is_alone: bool
) -> DatasetReport:
    implied = READY[receiver.profile] if receiver.profile else None
    profile, chosen, unmatched = profile_of(
        options.profile, dataset.shards, options.max_record_bytes, implied
    )
    # Beside other data sets it is a finding, as any misfit is.
    if is_alone and unmatched is not None and not SEGMENTATION.isdisjoint(unmatched.keys):
        raise TfodError(
            f"{unmatched.shard}: holds masks of whole images and no boxes, as DeepLab's "
            "segmentation does, which tfod does not check; give shards with boxes, or a profile"
        )
    if unmatched is not None and receiver is DATUMARO:
        profile = AS_IMPORTED
    levels = levels_of(profile.severities, receiver.severities(options.task), options.severities)
    label_maps = {name: one.label_map for name, one in dataset.label_maps.items() if one.label_map}
    title = receiver.title if receiver is not ANY else ""
    result = DatasetResult(
        dataset=dataset,
        profile=profile,
        findings=Findings(_most_listed(options), levels),
        unmatched=unmatched._replace(receiver=title) if unmatched else None,
        task=options.task,
        training_config=options.training_config,
    )
    instructions = Instructions(
        profile=profile,
        levels=levels,
        label_maps=label_maps,
        max_findings=_most_listed(options),
        max_record_bytes=options.max_record_bytes,
        decode=options.decode,
        keeps_rows=options.task is not None,
        counts_objects=options.training_config is not None,
    )
    if options.task is not None and options.task.skips_others:
        from tfod.checker.references.frames import Matcher

        instructions = instructions._replace(matcher=Matcher(options.task, ()))
    # The rules of records run while a shard is examined, those of the data set after the last one.
    for shard in _examined(dataset.shards, instructions, options, progress):
        result.add(shard)
    run_rules(result, result.findings, of_dataset=True)
    # Each receiver judges what was found by severities of its own.
    by_receiver = verdicts(profile, options.severities, result.findings) if receiver is ANY else ()
    return DatasetReport(
        name=dataset.name,
        profile=chosen,
        findings=result.findings,
        fail_on=options.fail_on,
        shards=[replace(one, rows=[], index=[]) for one in result.shards],
        classes=result.classes,
        image_sizes=result.image_sizes,
        undecoded=why_not_all_decoded(options.decode, levels),
        files=[SourceFile(one.name, one.size) for one in dataset.files],
        verdicts=by_receiver,
    )


def _examined(
    shards: Sequence[Shard], instructions: Instructions, options: Options, progress: Progress
) -> Iterable[ShardResult]:
    """The results of the shards, in their order, whoever examines them."""
    if options.runner is not None:
        return options.runner.examine(shards, instructions)
    total = sum(one.size or 0 for one in shards)
    if options.jobs > 1 and len(shards) > 1 and total >= _WORTH_PROCESSES:
        from tfod.checker.processes import examine_in_processes  # its imports take a while

        one_thread = instructions._replace(threads=1)
        return examine_in_processes(shards, one_thread, options.jobs, progress)
    return (examine(one, instructions, progress) for one in shards)


def _check_rest(rest: Dataset, options: Options, receiver: Receiver) -> DatasetReport:
    """What is to be said of label maps that were named and go with no data set."""
    levels = levels_of({}, receiver.severities(options.task), options.severities)
    findings = Findings(_most_listed(options), levels)
    result = DatasetResult(rest, NO_PROFILE, findings)
    run_rules(result, findings, of_dataset=True)
    by_receiver = verdicts(None, options.severities, findings) if receiver is ANY else ()
    return DatasetReport("", ChosenProfile("", ""), findings, options.fail_on, verdicts=by_receiver)


def _most_listed(options: Options) -> int:
    """How many findings are kept: to be compared with a baseline, all."""
    return options.max_findings if options.baseline is None else sys.maxsize
