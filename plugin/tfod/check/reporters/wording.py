"""What all reporters say: findings by rule, the verdict, amounts, places, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tfod.check.findings.finding import FAMILIES, Finding, Rule, Severity, plural
from tfod.check.findings.report import Counts, DatasetReport, Report
from tfod.check.profiles.profile import READY
from tfod.check.receivers import ANY, CVAT, RECEIVERS
from tfod.check.reporters.escaping import visible
from tfod.check.rules.registry import all_rules
from tfod.check.rules.repairs import REPAIRS

_LONGEST_HEADLINE = 80
SEVEREST_FIRST = tuple(sorted(Severity, key=lambda one: -one.rank))


@dataclass(frozen=True)
class Group:
    """All that is known of one rule's findings.

    Attributes:
        rule: which one.
        severity: as it was applied.
        fix: the rule's, or the one that all listed findings ask for in place of it.
        total: how many there are, listed or not.
        findings: those that are listed, in the report's order.
        by_shard: how many there are in each file that has any.
    """

    rule: Rule
    severity: Severity
    fix: str
    total: int
    findings: Sequence[Finding]
    by_shard: Mapping[str, int]

    @property
    def code(self) -> str:
        """The rule's."""
        return self.rule.code

    @property
    def heading(self) -> str:
        """Code, severity and title in a line, and how many there are: ``(212 in 6 shards)``."""
        extent = f" ({self._in_places(self.total, len(self.by_shard))})" if self.total > 1 else ""
        return f"{self.code} {self.severity.value}: {self.rule.title}{extent}"

    def examples(self, most: int) -> list[Finding]:
        """So many listed findings, of each fix, feature and shard one before the second."""
        first: dict[tuple[str, str | None, str], int] = {}
        for number, one in enumerate(self.findings):
            first.setdefault((one.fix, one.feature, one.shard), number)
        chosen = dict.fromkeys((*first.values(), *range(len(self.findings))))
        return [self.findings[one] for one in sorted(list(chosen)[:most])]

    def rest(self, shown: Sequence[Finding]) -> str:
        """``and 211 more in 6 shards``; empty when all are shown."""
        left = self.total - len(shown)
        if left <= 0:
            return ""
        # A shard whose only finding is shown has no more.
        names = [one.shard for one in shown]
        places = sum(count > names.count(shard) for shard, count in self.by_shard.items())
        return f"and {self._in_places(left, places, ' more')}"

    def _in_places(self, count: int, places: int, what: str = "") -> str:
        # Findings without a record may be about label maps or entries of an archive.
        in_records = any(one.record is not None for one in self.findings)
        noun = "shard" if in_records or not self.findings else "file"
        return f"{count:,}{what} in {plural(places, noun)}"


def group_findings(report: Report) -> list[Group]:
    """The groups of a report: the severest first, then in the order of the families."""
    listed: dict[str, list[Finding]] = {code: [] for code in report.counts.by_code}
    for finding in report.findings:
        listed[finding.code].append(finding)
    groups = []
    for code, findings in listed.items():
        rule, fixes = all_rules()[code], {one.fix for one in findings}
        groups.append(
            Group(
                rule=rule,
                severity=report.severities[code],
                fix=fixes.pop() if len(fixes) == 1 else rule.fix,
                total=report.counts.by_code[code],
                findings=findings,
                by_shard={
                    shard: by_code[code]
                    for shard, by_code in report.counts.by_shard.items()
                    if code in by_code
                },
            )
        )
    order = list(FAMILIES)
    return sorted(groups, key=lambda one: (-one.severity.rank, order.index(one.code[:3]), one.code))


def verdict(report: Report) -> str:
    """``VALID`` or ``INVALID``, and for whom unless it is for any: ``VALID for CVAT``."""
    return ("VALID" if report.valid else "INVALID") + _for_whom(report)


def headline(report: Report) -> str:
    """The verdict as a sentence: ``Ready for CVAT: 12 images, 24 boxes``; CVAT wants a zip.

    Or ``9 errors in 3 of 38 images``, in which warnings count where they fail, too; a single error
    that concerns no image is named.
    """
    counts = report.counts
    whom = _for_whom(report)
    if report.valid:
        ready = f"Ready{whom}" if whom else "Valid"
        zipped = " once it is zipped with its label map" if is_to_be_zipped(report) else ""
        return f"{ready}{zipped}: {extent(report)}"
    refused = f"Not ready{whom}: " if whom else ""
    levels = [one for one in SEVEREST_FIRST if one.rank >= report.fail_on.rank]
    amounts = [(one, counts.by_severity.get(one, 0)) for one in levels]
    numbers = " and ".join(plural(count, one.value) for one, count in amounts if count)
    failing = [one for one in report.findings if one.severity in levels]
    images = {(one.shard, one.record) for one in failing if one.record is not None}
    if images:
        least = "" if len(report.findings) == report.total else "at least "
        total = max(counts.records + _unread(report), len(images))
        return f"{refused}{numbers} in {least}{len(images):,} of {plural(total, 'image')}"
    if len(failing) == 1:
        what = _in_short(failing[0])
        return f"{refused}{what}" if refused else f"{what[:1].upper()}{what[1:]}"
    return f"{refused}{numbers}"


def is_to_be_zipped(report: Report) -> bool:
    """Whether there are shards that lie open for CVAT, which takes zips."""
    names = (one.name.lower() for one in report.sources)
    return report.receiver == CVAT.name and not all(one.endswith(".zip") for one in names)


def extent(report: Report) -> str:
    """How much data there is: ``12 images, 24 boxes``."""
    boxes = "no boxes" if _lacks_boxes(report) else plural(report.counts.boxes, "box")
    return f"{plural(report.counts.records, 'image')}, {boxes}"


def _unread(report: Report) -> int:
    """Records that are there but damaged, which are not among those that were read."""
    fails = report.fail_on.rank
    return len(
        {
            (one.shard, one.record)
            for one in report.findings
            if one.code.startswith("TFR") and one.record is not None and one.severity.rank >= fails
        }
    )


def _in_short(finding: Finding) -> str:
    """The message for a headline; the rule's title where it is long, or begins behind a name."""
    is_message = len(finding.message) <= _LONGEST_HEADLINE and finding.code[:3] != "TFR"
    return finding.message if is_message else all_rules()[finding.code].title


def _for_whom(report: Report) -> str:
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
    if report.valid and _lacks_boxes(report):  # nothing is wrong, but mostly there should be some
        found += "; no boxes"
    if report.valid and is_to_be_zipped(report):
        found += "; zip it with its label map"
    return found


def _lacks_boxes(report: Report) -> bool:
    """Whether records that may have boxes have none at all; those of classifications may not."""
    profile = READY.get(report.profile.name)
    is_detection = profile is None or bool(profile.field_mapping.box)
    return bool(report.counts.records) and not report.counts.boxes and is_detection


def _by_severity(counts: Counts) -> str:
    return ", ".join(plural(counts.by_severity.get(one, 0), one.value) for one in SEVEREST_FIRST)


def amounts(counts: Counts) -> str:
    """What was looked at: ``6 shards, 1,204 records, 1,204 images, 8,310 boxes``."""
    nouns = ("shard", "record", "image", "box")
    numbers = (counts.shards, counts.records, counts.images, counts.boxes)
    return ", ".join(map(plural, numbers, nouns))


def about_dataset(dataset: DatasetReport) -> str:
    """What is known of one of several datasets, behind its verdict and its name."""
    found = f"{_by_severity(dataset.counts)}; {amounts(dataset.counts)}; profile "
    found += visible(dataset.profile.name)
    maps = [visible(one) for one in dataset.label_maps]
    if not maps:
        return f"{found}; no label map"
    more = f" and {len(maps) - 1:,} more" if len(maps) > 1 else ""
    return f"{found}; label map {maps[0]}{more}"


def decoded(report: Report) -> str:
    """How many images were decoded: ``1,000 of 20,000 images (an even sample; ...)``."""
    counts = report.counts
    reason = f" ({report.undecoded})" if report.undecoded else ""
    return f"{counts.decoded:,} of {plural(counts.images, 'image')}{reason}"


def known_before(report: Report) -> str:
    """How many findings the baseline has; empty without one."""
    if report.baseline is None:
        return ""
    known = report.baseline.known
    return f"{plural(known, 'known finding')} {'is' if known == 1 else 'are'} in the baseline"


def unnamed_key(finding: Finding) -> str:
    """Key of the feature that is to blame, unless the message names it."""
    key = finding.feature or ""
    return "" if key in finding.message else visible(key)


def record_name(record: int | None) -> str:
    """``record 12``: records are counted from 0, and of the first it is said."""
    first = " (the first)" if record == 0 else ""
    return "" if record is None else f"record {record}{first}"


def place_parts(finding: Finding, shard: str | None = None) -> Iterator[str]:
    """The place in parts that should stay in one piece: a shard's name may hold spaces.

    ``train.record,`` ``record 12,`` ``byte 4096,`` ``image/encoded`` ``(000012.jpg)``. ``shard`` is
    what to call the shard in place of its name; empty for nothing.
    """
    parts = [
        visible(finding.shard if shard is None else shard),
        record_name(finding.record),
        "" if finding.offset is None else f"byte {finding.offset}",
        unnamed_key(finding),
    ]
    *first, last = [part for part in parts if part] or [""]
    yield from (f"{part}," for part in first)
    if last:
        yield last
    if finding.item and finding.item != finding.shard:
        yield f"({visible(finding.item)})"


def next_steps(report: Report, groups: Sequence[Group]) -> Iterator[tuple[str, str]]:
    """What somebody does next who has read the verdict: a sentence, and a command or none."""
    if report.valid:
        yield _use_it(report), ""
        if report.counts.by_severity.get(Severity.WARNING):
            yield "Look at the warnings: they stop nothing, but may not be what you want.", ""
        return
    failing = [one for one in groups if one.severity.rank >= report.fail_on.rank]
    first = max(failing, key=lambda one: one.total)
    is_most = all(one.total < first.total for one in failing if one is not first)
    which = f"Begin with {first.code}{', the most frequent' if is_most else ''}: "
    yield (which if len(failing) > 1 else "") + first.fix, ""
    name = _repairable(report, {one.code for one in failing if one.code in REPAIRS})
    if name:
        what = "See what can be repaired without guessing, before anything is written:"
        yield what, f"tfod repair {shlex.quote(visible(name))} repaired --dry-run"


def _use_it(report: Report) -> str:
    if report.receiver == ANY.name:
        return "It can be read. Who takes it, and who does not, is below."
    if report.receiver != CVAT.name:
        title = RECEIVERS[report.receiver].title
        return f"Point {title} at the shards and at their label map."
    zipped = "a zip of these shards and their label map" if is_to_be_zipped(report) else "this file"
    return (
        "In CVAT open the menu of the task or job, choose Upload annotations, then TFRecord 1.0 "
        f"and {zipped}."
    )


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
