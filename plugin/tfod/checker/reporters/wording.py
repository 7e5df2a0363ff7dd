"""Texts that all reporters share: findings by rule, verdict, totals, locations, next steps."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from tfod.checker.finding import FAMILIES, Finding, Rule, Severity, join_names, plural
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import ANY, CVAT, OD_API, RECEIVERS
from tfod.checker.report import Counts, DatasetReport, Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.rules.registry import all_rules

_MAX_HEADLINE_LENGTH = 80
SEVEREST_FIRST = tuple(sorted(Severity, key=lambda severity: -severity.rank))


class Group(NamedTuple):
    """The findings of a rule.

    Attributes:
        fix: the fix of all listed findings if they have the same one, else the fix of the rule.
        total: number of findings, including those that are not listed.
        findings: the listed findings, starting with one of each fix, feature and shard.
    """

    rule: Rule
    severity: Severity
    fix: str
    total: int
    files: int
    findings: Sequence[Finding]

    @property
    def code(self) -> str:
        """The code of the rule."""
        return self.rule.code


def group_findings(report: Report) -> list[Group]:
    """Group the findings of a report by rule, the most severe first, then by family."""
    listed: dict[str, list[Finding]] = {code: [] for code in report.counts.by_code}
    for finding in report.findings:
        listed[finding.code].append(finding)
    groups = []
    for code, findings in listed.items():
        first: dict[tuple[str, str | None, str], Finding] = {}
        following = []
        for finding in findings:
            key = (finding.fix, finding.feature, finding.shard)
            if first.setdefault(key, finding) is not finding:
                following.append(finding)
        rule, fixes = all_rules()[code], {finding.fix for finding in findings}
        groups.append(
            Group(
                rule=rule,
                severity=report.severities[code],
                fix=fixes.pop() if len(fixes) == 1 else rule.fix,
                total=report.counts.by_code[code],
                files=sum(code in counts for counts in report.counts.by_shard.values()),
                findings=[*first.values(), *following],
            )
        )
    order = list(FAMILIES)

    def sort_key(group: Group) -> tuple[int, int, str]:
        return -group.severity.rank, order.index(group.code[:3]), group.code

    return sorted(groups, key=sort_key)


_NO_RECORD = "no record was read"


def format_headline(report: Report) -> str:
    """Format the verdict: ``Ready for CVAT: 12 images, no boxes``, ``9 errors in 3 of 38 images``.

    A single error that does not concern an image is described.
    """
    counts, whom = report.counts, format_receiver(report)
    if report.valid:
        zipped = " once it is zipped with its label map" if is_to_be_zipped(report) else ""
        ready = f"Ready{whom}{zipped}" if whom else "Valid"
        boxes = plural(counts.boxes, "box") if counts.boxes else "no boxes"
        return f"{ready}: {plural(counts.records, 'image')}, {boxes}"
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
        text = f"{valid:,} of {plural(count, 'dataset')} valid, {text}"
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
    if report.valid and is_to_be_zipped(report):
        text += "; zip it with its label map"
    return text


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


def format_decoded(report: Report) -> str:
    """Format the number of decoded images: ``200 of 20,000 images (the first 200 …)``."""
    counts = report.counts
    reason = f" ({report.undecoded})" if report.undecoded else ""
    return f"{counts.decoded:,} of {plural(counts.images, 'image')}{reason}"


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


def next_steps(
    report: Report, groups: Sequence[Group], *, on_page: bool = False
) -> list[tuple[str, str]]:
    """Suggest next steps after the verdict: sentences, each with a command or "".

    The page of the service (``on_page``) has a button instead of the repair command.
    """
    if report.valid:
        return _suggest_uses(report)
    failing = [group for group in groups if group.severity.rank >= report.fail_on.rank]
    if not failing:
        return [("Pass the shards to check; no record was read.", "")]
    first = max(failing, key=lambda group: group.total)
    steps = [((f"Begin with {first.code}: " if len(failing) > 1 else "") + first.fix, "")]
    name = _find_repairable(report, {group.code for group in failing if group.rule.repair})
    if name and not on_page:
        sentence = "See what tfod can repair automatically (this writes nothing):"
        steps.append((sentence, f"tfod repair {shlex.quote(visible(name))} repaired --dry-run"))
    return steps


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


def _find_repairable(report: Report, codes: Set[str]) -> str:
    """Return the file or folder with findings of these rules; "" if nothing can be repaired."""
    shards = report.counts.by_shard.items() if report.counts.records else ()
    sources = {report.find_source(shard) for shard, counts in shards if codes & counts.keys()}
    for dataset in report.datasets:
        files = [name for name in dataset.sources if name in sources and not name.startswith("<")]
        folder = "" if dataset.name == "." else f"{dataset.name.rstrip('/')}/"
        is_folder = len(files) > 1 and all(name.startswith(folder) for name in files)
        if files:
            return dataset.name if is_folder else files[0]
    return ""


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
    yield "Fix", rule.fix
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
