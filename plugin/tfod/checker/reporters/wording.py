"""Texts that all reporters share: findings by rule, verdict, totals, locations, next steps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tfod.checker.advice import complete_command, fill_in, find_source_with, split_command
from tfod.checker.finding import FAMILIES, Finding, Rule, Severity, join_names, plural
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import ANY, CVAT, OD_API, RECEIVERS
from tfod.checker.report import Counts, DatasetReport, Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.groups import Group
from tfod.checker.rules.registry import all_rules

if TYPE_CHECKING:
    from tfod.checker.baseline import Baseline

_MAX_HEADLINE_LENGTH = 80
SEVEREST_FIRST = tuple(sorted(Severity, key=lambda severity: -severity.rank))


_NO_RECORD = "no record was read"


def format_headline(report: Report) -> str:
    """Format the verdict: ``Ready for CVAT: 12 images, no boxes``, ``9 errors in 3 of 38 images``.

    A single error that does not concern an image is described. With a baseline, the headline is
    ``No new findings; 7 known ones remain, and CVAT would refuse this zip``.
    """
    counts, whom = report.counts, format_receiver(report)
    if report.valid and report.baseline is not None:
        nothing = f"No new {_FAILING[report.fail_on] if report.total else 'findings'}"
        return f"{nothing}; {_describe_known(report, report.baseline)}"
    if report.valid:
        zipped = " once it is zipped with its label map" if is_to_be_zipped(report) else ""
        ready = f"Ready{whom}{zipped}" if whom else "Valid"
        boxes = plural(counts.boxes, "box") if counts.boxes else "no boxes"
        decoded = f" ({counts.decoded:,} decoded)" if counts.decoded < counts.images else ""
        return f"{ready}: {plural(counts.records, 'image')}{decoded}, {boxes}"
    prefix = f"Not ready{whom}: " if whom else ""
    failing = [item for item in report.findings if item.severity.rank >= report.fail_on.rank]
    images = {(item.shard, item.record): item.code for item in failing if item.record is not None}
    if len(failing) == 1 and not images:
        message, title = failing[0].message, all_rules()[failing[0].code].title
        # The message of a TFR finding needs the file name, which the headline does not contain.
        if len(message) > _MAX_HEADLINE_LENGTH or failing[0].code[:3] == "TFR":
            message = title
        return prefix + message if whom else message[:1].upper() + message[1:]
    levels = [level for level in SEVEREST_FIRST if level.rank >= report.fail_on.rank]
    by_level = [(counts.by_severity.get(level, 0), level.value) for level in levels]
    numbers = " and ".join(plural(count, name) for count, name in by_level if count)
    if not images:
        return f"{prefix}{numbers or _NO_RECORD}"
    at_least = "" if len(report.findings) == report.total else "at least "
    # Damaged records are not included in the number of records.
    total = counts.records + sum(code.startswith("TFR") for code in images.values())
    return f"{prefix}{numbers} in {at_least}{len(images):,} of {plural(total, 'image')}"


_FAILING = {Severity.ERROR: "errors", Severity.WARNING: "errors or warnings"}


def _describe_known(report: Report, baseline: Baseline) -> str:
    """Describe the known findings: ``7 known ones remain, and CVAT would refuse this zip``."""
    if baseline.worst is None:
        return "no known ones remain"
    text = f"{baseline.hidden:,} known {'one remains' if baseline.hidden == 1 else 'ones remain'}"
    if baseline.worst.rank < report.fail_on.rank:
        return text
    are_zips = all(source.name.lower().endswith(".zip") for source in report.sources)
    is_single = are_zips and len(report.sources) == 1
    files = "this zip" if is_single else "these zips" if are_zips else "these shards"
    if report.receiver == CVAT.name and baseline.worst is Severity.ERROR:
        return f"{text}, and CVAT would refuse {files}"
    verb = "is" if is_single else "are"
    return f"{text}, and {files} {verb} still invalid{format_receiver(report)}"


def format_verdict(report: Report) -> str:
    """Format the verdict and the totals: ``VALID for CVAT: 0 errors, 1 warning, 0 infos``.

    With a baseline, shards are never called valid, because their known findings do not count.
    """
    if report.valid and report.baseline is not None:
        new = f" (new: {_format_by_severity(report.counts)})" if report.total else ""
        return f"{format_headline(report)}{new}{_format_undecoded(report)}"
    verdict = "VALID" if report.valid else "INVALID"
    return f"{verdict}{format_receiver(report)}: {format_totals(report)}"


def format_dataset_verdict(report: Report, dataset: DatasetReport) -> str:
    """Format the verdict on one of several datasets: ``VALID``."""
    if dataset.valid and report.baseline is not None:
        return f"NO NEW {_FAILING[report.fail_on].upper()}"
    return "VALID" if dataset.valid else "INVALID"


def is_to_be_zipped(report: Report) -> bool:
    """Return whether CVAT, which needs zips, is the receiver of shards outside of zips."""
    names = (source.name.lower() for source in report.sources)
    return report.receiver == CVAT.name and not all(name.endswith(".zip") for name in names)


def format_receiver(report: Report) -> str:
    """Return the suffix `` for CVAT`` for a verdict; empty if it is for any receiver."""
    return "" if report.receiver == ANY.name else f" for {RECEIVERS[report.receiver].title}"


def format_totals(report: Report) -> str:
    """Format the number of findings, ``2 errors, 1 warning, 0 infos``, with remarks.

    If there are several datasets, the text begins with the number of valid ones.
    """
    text = _format_by_severity(report.counts)
    count = len(report.datasets)
    if count > 1:
        valid = sum(dataset.valid for dataset in report.datasets)
        is_new = report.baseline is not None
        good = f"without new {_FAILING[report.fail_on]}" if is_new else "valid"
        text = f"{valid:,} of {plural(count, 'dataset')} {good}, {text}"
    if report.fail_on is not Severity.ERROR:
        text += f" ({report.fail_on.value}s fail, too)"
    if not report.counts.records and not report.valid:
        text += f"; {_NO_RECORD}"
    if report.baseline is not None:
        text += f"; {plural(report.baseline.hidden, 'known finding')} in the baseline"
    profile = READY.get(report.profile.name)
    expects_boxes = profile is None or profile.field_mapping.box  # not for classifications
    if report.valid and report.counts.records and not report.counts.boxes and expects_boxes:
        text += "; no boxes"  # valid, but usually not intended
    if report.valid and report.baseline is None and is_to_be_zipped(report):
        text += "; zip it with its label map"
    return text + _format_undecoded(report)


def _format_undecoded(report: Report) -> str:
    """Format ``; 1,000 of 26,000 images decoded, spread over all shards``, if not all were."""
    counts = report.counts
    if counts.decoded == counts.images:
        return ""
    images = plural(counts.images, "image")
    return f"; {counts.decoded:,} of {images} decoded, {report.undecoded.reason}"


def _format_by_severity(counts: Counts) -> str:
    by_severity = counts.by_severity
    return ", ".join(plural(by_severity.get(level, 0), level.value) for level in SEVEREST_FIRST)


def format_amounts(counts: Counts) -> str:
    """Format the amount of data: ``6 shards, 1,204 records, 1,204 images, 8,310 boxes``."""
    nouns = ("shard", "record", "image", "box")
    numbers = (counts.shards, counts.records, counts.images, counts.boxes)
    return ", ".join(map(plural, numbers, nouns))


def describe_dataset(dataset: DatasetReport) -> str:
    """Describe one of several datasets, for a line that begins with its verdict and name."""
    text = f"{_format_by_severity(dataset.counts)}; {format_amounts(dataset.counts)}"
    names = dataset.label_maps
    label_map = f"label map {join_names(names, 1)}" if names else "no label map"
    return visible(f"{text}; profile {dataset.profile.name}; {label_map}")


def format_decoded(report: Report, *, on_page: bool = False) -> str:
    """Format the number of decoded images: ``200 of 260 images (to decode all: --decode all)``.

    The page of the service (``on_page``) has an option instead.
    """
    counts, fix = report.counts, report.undecoded.fix
    if on_page and fix:
        fix = "check them again with “Decode all images”"
    remedy = f" (to decode all: {fix})" if fix else ""
    return f"{counts.decoded:,} of {plural(counts.images, 'image')}{remedy}"


def get_unnamed_key(finding: Finding) -> str:
    """Return the key of the feature of a finding, or "" if the message contains it."""
    key = finding.feature or ""
    return "" if key in finding.message else visible(key)


def format_record(record: int) -> str:
    """Format a record number: ``record 12``, ``record 0 (the first)``."""
    return f"record {record}{'' if record else ' (the first)'}"


def format_location(finding: Finding, shard: str | None = None) -> str:
    """Format a location: ``train.record, record 12, byte 4096, image/encoded (000012.jpg)``."""
    parts = (
        visible(finding.shard if shard is None else shard),
        "" if finding.record is None else format_record(finding.record),
        "" if finding.offset is None else f"byte {finding.offset}",
        get_unnamed_key(finding),
    )
    item = finding.item if finding.item != finding.shard else ""
    location = ", ".join(filter(None, parts))
    return f"{location} ({visible(item)})".lstrip() if item else location


def next_steps(report: Report, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Suggest next steps after the verdict: sentences, each with a command or ""."""
    if report.valid:
        return [] if report.baseline is not None else _suggest_uses(report)
    causes = find_causes(report, groups)
    if not causes:
        return [("Pass the shards to check; no record was read.", "")]
    first = causes[0]
    sentence, command = split_command(first.fix)
    explained = list_explained(groups, first)
    if len(causes) > 1 or explained:
        names = f", which explains {join_names(explained, 9)}" if explained else ""
        sentence = f"Begin with {first.code}{names}: {sentence}"
    return [(sentence, command), *suggest_repair(report, groups)]


def find_causes(report: Report, groups: Sequence[Group]) -> list[Group]:
    """Return the groups that make the shards invalid and that no other group explains.

    Those that explain others come first, then those with most findings.
    """
    totals = Counter[str]()
    for group in groups:
        if group.severity.rank >= report.fail_on.rank:
            totals[group.cause or group.code] += group.total
    causes = [group for group in groups if group.code in totals and not group.cause]
    return sorted(
        causes,
        key=lambda group: (bool(list_explained(groups, group)), totals[group.code]),
        reverse=True,
    )


def list_explained(groups: Sequence[Group], cause: Group) -> list[str]:
    """Return the codes of the groups that a group explains."""
    return [group.code for group in groups if group.cause == cause.code]


def suggest_repair(report: Report, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Suggest the command that shows what can be repaired, if anything can."""
    failing = (group for group in groups if group.severity.rank >= report.fail_on.rank)
    repairable = {group.code for group in failing if group.is_repairable and not group.cause}
    shards = report.counts.by_shard.items() if report.counts.records else ()
    names = [shard for shard, counts in shards if repairable & counts.keys()]
    name = find_source_with(report, names, report.datasets)
    sentence = "See what tfod can repair automatically (this writes nothing):"
    command = complete_command(report, "tfod repair SOURCE repaired --dry-run", name)
    return [(sentence, command)] if name else []


def _suggest_uses(report: Report) -> list[tuple[str, str]]:
    """Suggest how to use valid shards in CVAT, or in the configuration of the OD API."""
    if report.receiver == CVAT.name:
        source = visible(report.sources[0].name) if len(report.sources) == 1 else "its zip"
        file = "a zip of these shards and their label map" if is_to_be_zipped(report) else source
        menu = "In CVAT, open the menu of the task or job, choose Upload annotations, then"
        return [(f"{menu} TFRecord 1.0 and {file}.", "")]
    maps = [name for dataset in report.datasets for name in dataset.label_maps]
    if report.receiver == OD_API.name and report.shards and maps:
        # The file names after unpacking are the names of the zip entries.
        names = report.shards[0].name, maps[0]
        paths = (visible(name.removeprefix(f"{report.find_source(name)}:")) for name in names)
        shard, label_map = (json.dumps(path, ensure_ascii=False) for path in paths)
        sentence = "Add this line, and one for each other shard, to train_input_reader or "
        sentence += "eval_input_reader in the pipeline config (unpack a zip first):"
        line = f"label_map_path: {label_map} tf_record_input_reader {{ input_path: {shard} }}"
        return [(sentence, line)]
    return []


# Documentation of rules, for `tfod rules`, docs/rules and the page of the service


def group_by_family(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """Group rules by family, in the order of the families."""
    families: dict[str, list[Rule]] = {family: [] for family in FAMILIES}
    for rule in rules:
        families[rule.family].append(rule)
    return {family: members for family, members in families.items() if members}


def describe_rule(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the documentation of a rule below its title: headings and texts."""
    yield "Why", rule.why
    yield "Fix", fill_in(rule.fix)
    if rule.explains:
        yield "Explains", f"findings of {', '.join(sorted(rule.explains))} in the same place"
    if rule.repair:
        yield "Repair", f"tfod repair: {rule.repair}"
    yield "Source", rule.source
    yield from describe_overrides(rule)


def describe_overrides(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the profiles and receivers that change the severity: ``Profiles``, ``off in cvat``."""
    profiles = {profile.name: resolve_levels(profile.severities) for profile in READY.values()}
    receivers = {
        receiver.name: resolve_levels(receiver=receiver.severities(None))
        for receiver in RECEIVERS.values()
    }
    for heading, word, policies in (("Profiles", "in", profiles), ("Receivers", "for", receivers)):
        severities = {name: levels[rule.code] for name, levels in policies.items()}
        texts = [
            f"{severity.value if severity else 'off'} {word} {name}"
            for name, severity in severities.items()
            if severity is not rule.severity
        ]
        if texts:
            yield heading, ", ".join(texts)
