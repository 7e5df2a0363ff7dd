"""How the renderers say things: the verdict, amounts, places."""

from __future__ import annotations

from collections.abc import Iterator

from tfod.check.findings.finding import Finding, Severity, plural
from tfod.check.findings.report import Counts, DatasetReport, Report
from tfod.check.profiles.profile import READY
from tfod.check.receivers import ANY, CVAT, RECEIVERS
from tfod.check.reporters.escaping import visible

SEVEREST_FIRST = tuple(sorted(Severity, key=lambda one: -one.rank))
_ON_THE_PAGE = {
    "Put label_map.pbtxt beside the shard, or pass --label-map.": "Upload the label map "
    "(label_map.pbtxt) together with the shards.",
    "Pass the right one with --label-map.": "Upload the right one alone with the shards.",
    ", or name one with --label-map.": ", or upload one together with the zip.",
    "Pass --profile with a profile of your own; tfod describe --as-profile writes one.": "If they "
    "are meant to be like this, choose the layout of the records under Options.",
    "Raise TFOD_MAX_RECORD_BYTES if such records are meant.": "If such records are meant, check "
    "them with tfod on your own machine.",
    ", or raise TFOD_MAX_ARCHIVE_BYTES.": ".",
    ", or raise TFOD_MAX_ARCHIVE_ENTRIES.": ".",
    ", or give its images with --images.": ".",
    " without compression: tfod reshard --compression none.": " without compression.",
}
"""Advice that names options of the command line, and what a page says instead."""
_KEYS_IN_HEADLINE = 3


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
        message = _in_short(failing[0])
        return refused + message if refused else message[:1].upper() + message[1:]
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


def records_read(report: Report) -> str:
    """How many records were read: ``11 of 12 records``."""
    read, unread = report.counts.records, _unread(report)
    return f"{read:,} of {plural(read + unread, 'record')}" if unread else plural(read, "record")


def _in_short(finding: Finding) -> str:
    """The message for a headline: of EXA010 with the first keys alone."""
    names = finding.value
    if finding.code != "EXA010" or not isinstance(names, list) or len(names) <= _KEYS_IN_HEADLINE:
        return finding.message
    text, are, _ = finding.message.partition(" features are ")
    return f"{text}{are}{', '.join(map(str, names[:_KEYS_IN_HEADLINE]))}, …"


def _for_whom(report: Report) -> str:
    return "" if report.receiver == ANY.name else f" for {RECEIVERS[report.receiver].title}"


def besides(report: Report) -> str:
    """What the headline leaves out: ``also 1 warning, 2 infos``; empty for nothing."""
    others = [one for one in SEVEREST_FIRST if one.rank < report.fail_on.rank]
    counts = [(one, report.counts.by_severity.get(one, 0)) for one in others]
    found = [plural(count, one.value) for one, count in counts if count]
    also = f"also {', '.join(found)}" if found and not report.valid else ", ".join(found)
    fails = f"{report.fail_on.value}s fail, too" if report.fail_on is not Severity.ERROR else ""
    return "; ".join(part for part in (also, fails) if part)


def totals(report: Report) -> str:
    """``2 errors, 1 warning, 0 infos``, which level fails if it is not errors, and what to know.

    Of several datasets how many are valid comes first; a folder that holds none is not.
    """
    found = _by_severity(report.counts)
    every = len(report.datasets) + report.counts.by_code.get("SET007", 0)
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


def notes(report: Report) -> Iterator[tuple[str, str]]:
    """What else the reader has to know of what the verdict is about: a title, and a sentence."""
    if report.baseline is not None:
        known = report.baseline.known
        are = "is" if known == 1 else "are"
        yield "Baseline", f"{plural(known, 'known finding')} {are} in the baseline"


def unnamed_key(finding: Finding) -> str:
    """Key of the feature that is to blame, unless the message names it."""
    key = finding.feature or ""
    return "" if key in finding.message else visible(key)


def place_parts(finding: Finding) -> Iterator[str]:
    """The place in parts that should stay in one piece: a shard's name may hold spaces.

    ``train.record,`` ``record 12,`` ``byte 4096,`` ``image/encoded`` ``(000012.jpg)``
    """
    parts = [
        visible(finding.shard),
        "" if finding.record is None else f"record {finding.record}",
        "" if finding.offset is None else f"byte {finding.offset}",
        unnamed_key(finding),
    ]
    *first, last = [part for part in parts if part] or [""]
    yield from (f"{part}," for part in first)
    if last:
        yield last
    if finding.item and finding.item != finding.shard:
        yield f"({visible(finding.item)})"


def page_advice(text: str) -> str:
    """Advice for readers of the service's page, who have no options to pass."""
    for said, on_page in _ON_THE_PAGE.items():
        text = text.replace(said, on_page)
    return text
