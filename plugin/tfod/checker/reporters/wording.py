"""What all reporters say: findings by rule, the verdict, amounts, places, what to do next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from tfod.checker.finding import FAMILIES, Finding, Rule, Severity, join_names, plural
from tfod.checker.profiles.policy import levels_of
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import ANY, CVAT, OD_API, RECEIVERS
from tfod.checker.report import Counts, DatasetReport, Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.rules.registry import all_rules

_LONGEST_HEADLINE = 80
SEVEREST_FIRST = tuple(sorted(Severity, key=lambda one: -one.rank))


class Group(NamedTuple):
    """All that is known of one rule's findings.

    Attributes:
        rule: which one.
        severity: as it was applied.
        fix: the rule's, or the one that all listed findings ask for in place of it.
        total: how many there are, listed or not.
        files: in how many files.
        findings: those that are listed, first one of each fix, feature and shard.
    """

    rule: Rule
    severity: Severity
    fix: str
    total: int
    files: int
    findings: Sequence[Finding]

    @property
    def code(self) -> str:
        """The rule's."""
        return self.rule.code


def group_findings(report: Report) -> list[Group]:
    """The groups of a report: the severest first, then in the order of the families."""
    listed: dict[str, list[Finding]] = {code: [] for code in report.counts.by_code}
    for finding in report.findings:
        listed[finding.code].append(finding)
    groups = []
    for code, findings in listed.items():
        kinds: dict[tuple[str, str | None, str], Finding] = {}
        others = [
            one
            for one in findings
            if kinds.setdefault((one.fix, one.feature, one.shard), one) is not one
        ]
        rule, fixes = all_rules()[code], {one.fix for one in findings}
        groups.append(
            Group(
                rule=rule,
                severity=report.severities[code],
                fix=fixes.pop() if len(fixes) == 1 else rule.fix,
                total=report.counts.by_code[code],
                files=sum(code in found for found in report.counts.by_shard.values()),
                findings=[*kinds.values(), *others],
            )
        )
    order = list(FAMILIES)
    return sorted(groups, key=lambda one: (-one.severity.rank, order.index(one.code[:3]), one.code))


_NO_RECORD = "no record was read"


def headline(report: Report) -> str:
    """The verdict as a sentence: ``Ready for CVAT: 12 images, no boxes``; CVAT wants a zip.

    Or ``9 errors in 3 of 38 images``, in which warnings count where they fail, too; a single error
    that concerns no image is named.
    """
    counts, whom = report.counts, for_whom(report)
    if report.valid:
        zipped = " once it is zipped with its label map" if is_to_be_zipped(report) else ""
        ready = f"Ready{whom}{zipped}" if whom else "Valid"
        boxes = plural(counts.boxes, "box") if counts.boxes else "no boxes"
        return f"{ready}: {plural(counts.records, 'image')}, {boxes}"
    refused = f"Not ready{whom}: " if whom else ""
    failing = [one for one in report.findings if one.severity.rank >= report.fail_on.rank]
    images = {(one.shard, one.record): one.code for one in failing if one.record is not None}
    if len(failing) == 1 and not images:
        what, title = failing[0].message, all_rules()[failing[0].code].title
        # Of a file that is no shard the message begins behind its name.
        what = title if len(what) > _LONGEST_HEADLINE or failing[0].code[:3] == "TFR" else what
        return refused + what if whom else what[:1].upper() + what[1:]
    levels = [one for one in SEVEREST_FIRST if one.rank >= report.fail_on.rank]
    found = [(counts.by_severity.get(one, 0), one.value) for one in levels]
    numbers = " and ".join(plural(count, name) for count, name in found if count)
    if not images:
        return f"{refused}{numbers or _NO_RECORD}"
    least = "" if len(report.findings) == report.total else "at least "
    # What is damaged is not among the records that were read.
    total = counts.records + sum(code.startswith("TFR") for code in images.values())
    return f"{refused}{numbers} in {least}{len(images):,} of {plural(total, 'image')}"


def is_to_be_zipped(report: Report) -> bool:
    """Whether there are shards that lie open for CVAT, which takes zips."""
    names = (one.name.lower() for one in report.sources)
    return report.receiver == CVAT.name and not all(one.endswith(".zip") for one in names)


def for_whom(report: Report) -> str:
    """`` for CVAT`` behind a verdict; nothing where it is for any."""
    return "" if report.receiver == ANY.name else f" for {RECEIVERS[report.receiver].title}"


def totals(report: Report) -> str:
    """``2 errors, 1 warning, 0 infos``, which level fails if it is not errors, and what to know.

    Of several datasets how many are valid comes first.
    """
    found = _by_severity(report.counts)
    every = len(report.datasets)
    if every > 1:
        valid = sum(one.valid for one in report.datasets)
        found = f"{valid:,} of {plural(every, 'dataset')} valid, {found}"
    if report.fail_on is not Severity.ERROR:
        found += f" ({report.fail_on.value}s fail, too)"
    if not report.counts.records and not report.valid:
        found += f"; {_NO_RECORD}"
    if report.baseline is not None:
        found += f"; {plural(report.baseline.hidden, 'known finding')} in the baseline"
    profile = READY.get(report.profile.name)
    has_boxes = profile is None or profile.field_mapping.box  # those of classifications have none
    if report.valid and report.counts.records and not report.counts.boxes and has_boxes:
        found += "; no boxes"  # nothing is wrong, but mostly there should be some
    if report.valid and is_to_be_zipped(report):
        found += "; zip it with its label map"
    return found


def _by_severity(counts: Counts) -> str:
    """How much was found: ``2 errors, 1 warning, 0 infos``."""
    return ", ".join(plural(counts.by_severity.get(one, 0), one.value) for one in SEVEREST_FIRST)


def amounts(counts: Counts) -> str:
    """What was looked at: ``6 shards, 1,204 records, 1,204 images, 8,310 boxes``."""
    nouns = ("shard", "record", "image", "box")
    numbers = (counts.shards, counts.records, counts.images, counts.boxes)
    return ", ".join(map(plural, numbers, nouns))


def about_dataset(dataset: DatasetReport) -> str:
    """What is known of one of several datasets, behind its verdict and its name."""
    found = f"{_by_severity(dataset.counts)}; {amounts(dataset.counts)}"
    maps = (
        f"label map {join_names(dataset.label_maps, 1)}" if dataset.label_maps else "no label map"
    )
    return visible(f"{found}; profile {dataset.profile.name}; {maps}")


def decoded(report: Report) -> str:
    """How many images were decoded: ``1,000 of 20,000 images (an even sample; ...)``."""
    counts = report.counts
    reason = f" ({report.undecoded})" if report.undecoded else ""
    return f"{counts.decoded:,} of {plural(counts.images, 'image')}{reason}"


def unnamed_key(finding: Finding) -> str:
    """Key of the feature that is to blame, unless the message names it."""
    key = finding.feature or ""
    return "" if key in finding.message else visible(key)


def record_name(record: int) -> str:
    """``record 12``: records are counted from 0, and of the first it is said."""
    return f"record {record}{'' if record else ' (the first)'}"


def place_of(finding: Finding, shard: str | None = None) -> str:
    """``train.record, record 12, byte 4096, image/encoded (000012.jpg)``.

    ``shard`` is what to call the shard in place of its name; empty for nothing.
    """
    parts = (
        visible(finding.shard if shard is None else shard),
        "" if finding.record is None else record_name(finding.record),
        "" if finding.offset is None else f"byte {finding.offset}",
        unnamed_key(finding),
    )
    item = finding.item if finding.item != finding.shard else ""
    place = ", ".join(filter(None, parts))
    return f"{place} ({visible(item)})".lstrip() if item else place


def next_steps(
    report: Report, groups: Sequence[Group], *, on_page: bool = False
) -> list[tuple[str, str]]:
    """What somebody does next who has read the verdict: a sentence, and a command or none.

    The service's page (``on_page``) has a button in place of the command that repairs.
    """
    if report.valid:
        return _uses(report)
    failing = [one for one in groups if one.severity.rank >= report.fail_on.rank]
    if not failing:
        return [("Name the shards that are to be checked; no record was read.", "")]
    first = max(failing, key=lambda one: one.total)
    steps = [((f"Begin with {first.code}: " if len(failing) > 1 else "") + first.fix, "")]
    name = _repairable(report, {one.code for one in failing if one.rule.repair})
    if name and not on_page:
        what = "See what can be repaired without guessing, before anything is written:"
        steps.append((what, f"tfod repair {shlex.quote(visible(name))} repaired --dry-run"))
    return steps


def _uses(report: Report) -> list[tuple[str, str]]:
    """What to do with valid shards in CVAT, or in the configuration of the OD API."""
    if report.receiver == CVAT.name:
        source = visible(report.sources[0].name) if len(report.sources) == 1 else "its zip"
        what = "a zip of these shards and their label map" if is_to_be_zipped(report) else source
        menu = "In CVAT open the menu of the task or job, choose Upload annotations, then"
        return [(f"{menu} TFRecord 1.0 and {what}.", "")]
    maps = [name for one in report.datasets for name in one.label_maps]
    if report.receiver == OD_API.name and report.shards and maps:
        # The names in a zip are those of the files when it is unpacked.
        shard, label_map = (
            json.dumps(visible(name.removeprefix(f"{report.source_of(name)}:")), ensure_ascii=False)
            for name in (report.shards[0].name, maps[0])
        )
        what = "Put this, and the other shards if there are any, into train_input_reader of the "
        what += "pipeline config, or into eval_input_reader; a zip has to be unpacked:"
        line = f"label_map_path: {label_map} tf_record_input_reader {{ input_path: {shard} }}"
        return [(what, line)]
    return []


def _repairable(report: Report, codes: Set[str]) -> str:
    """The file with such findings, or the folder of several.

    Empty where no record was read, or the shard came as ``<stdin>``.
    """
    shards = report.counts.by_shard.items() if report.counts.records else ()
    hit = dict.fromkeys(report.source_of(shard) for shard, found in shards if codes & found.keys())
    for dataset in report.datasets:
        here = [name for name in dataset.sources if name in hit and not name.startswith("<")]
        folder = "" if dataset.name == "." else f"{dataset.name.rstrip('/')}/"
        is_folder = len(here) > 1 and all(name.startswith(folder) for name in here)
        if here:
            return dataset.name if is_folder else here[0]
    return ""


# What is said of the rules: by `tfod rules`, in docs/rules and on the page of the service


def by_family(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """The rules of each family that has any, in the order of the families."""
    families: dict[str, list[Rule]] = {family: [] for family in FAMILIES}
    for rule in rules:
        families[rule.family].append(rule)
    return {family: members for family, members in families.items() if members}


def parts(rule: Rule) -> Iterator[tuple[str, str]]:
    """All that is said about a rule below its title: a heading, and the text."""
    yield "Why", rule.why
    yield "Fix", rule.fix
    if rule.repair:
        yield "Repair", f"tfod repair: {rule.repair}"
    yield "Source", rule.source
    yield from changes(rule)


def changes(rule: Rule) -> Iterator[tuple[str, str]]:
    """Who gives a rule another severity, or turns it off: ``Profiles``, ``off in cvat``.

    CVAT is the one of which no task is known.
    """
    ready = {one.name: levels_of(one.severities) for one in READY.values()}
    receivers = {one.name: levels_of(receiver=one.severities(None)) for one in RECEIVERS.values()}
    for heading, word, policies in (("Profiles", "in", ready), ("Receivers", "for", receivers)):
        found = {name: levels[rule.code] for name, levels in policies.items()}
        said = [
            f"{one.value if one else 'off'} {word} {name}"
            for name, one in found.items()
            if one is not rule.severity
        ]
        if said:
            yield heading, ", ".join(said)
