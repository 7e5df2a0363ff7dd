"""Reports for the tests of the renderers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tfod.checker.analysis.result import ShardResult, Undecoded
from tfod.checker.baseline import Baseline
from tfod.checker.finding import Finding, Findings, Rule, Severity
from tfod.checker.report import ChosenProfile, DatasetReport, Report, SourceFile
from tfod.checker.reporters.samples import Sample

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

# Rules that are not in the registry, so that these tests do not change with its texts.
_WHY = "TensorFlow stops here and does not say in which file."
_RULES = [
    ("TFR904", ERROR, "data checksum is wrong", _WHY, "Copy or download the shard again."),
    ("BOX903", ERROR, "box outside the image", "The trainer stops on coordinates above 1.1.",
     "Clip boxes to the image."),
    ("LAB906", WARNING, "class differs from the map by case or spaces", "Readers distinguish them.",
     "Use the name in the label map."),
    ("SET901", ERROR, "a shard of the set is missing", "", "Find the missing shard."),
    ("ZIP917", INFO, "stray files", "They do no harm.", "Leave them out when zipping."),
]  # fmt: skip
RULES = {fields[0]: Rule(*fields, "an issue", lambda _: ()) for fields in _RULES}


def found(code: str, message: str, shard: str = "a.record", **fields: Any) -> Finding:
    """A finding with its rule's severity and fix."""
    defaults: dict[str, Any] = {"severity": RULES[code].severity, "fix": RULES[code].fix}
    return Finding(code=code, message=message, shard=shard, **(defaults | fields))


def make_report(
    findings: Iterable[Finding] = (),
    *,
    most: int = 1000,
    fail_on: Severity = ERROR,
    sources: Sequence[str] = ("a.record",),
    figures: Mapping[str, Counter[Any]] | None = None,
    receiver: str = "any",
    baseline: Baseline | None = None,
    **profile: str,
) -> Report:
    """A report of these findings, of which the first ``most`` are listed."""
    every = Findings(sys.maxsize)
    every.keep(findings)
    shards = [ShardResult(one, "", "label_map.pbtxt") for one in sources]
    if shards:
        read = {"records": 1204, "images": 1200, "decoded": 1000, "boxes": 1}
        shards[0] = replace(shards[0], **read)
    dataset = DatasetReport(
        name="data",
        profile=ChosenProfile(**{"name": "cvat", "reason": "requested", **profile}),
        findings=every,
        fail_on=fail_on,
        shards=shards,
        **(figures or {}),
        undecoded=Undecoded("spread over all shards", "--decode all"),
        files=[SourceFile(name, 1_234_567) for name in sources],
    )
    return Report.of(
        [dataset],
        receiver=receiver,
        fail_on=fail_on,
        max_listed=most,
        baseline=baseline,
        version="1.2.3",
        duration=1.5,
    )


def some_figures() -> dict[str, Counter[Any]]:
    """Statistics of two images with three boxes."""
    classes = Counter({"person": 2, "автомобиль": 1})
    return {"classes": classes, "image_sizes": Counter({(1080, 1920): 2})}


def sample(image: bytes | None = None, boxes: object = (), **fields: object) -> Sample:
    """An image of record 1 with its boxes."""
    given = {"shard": "a.record", "record": 1, "item": "1.jpg", "height": 320, "width": 640}
    given |= {"classes": ("person", "cat"), **fields}
    return Sample(image=image, boxes=np.asarray(boxes, np.float32).reshape(-1, 4), **given)


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b]0;title\x07\x1b[31mred",
    "\u202egpj.exe",
    "half a pair \ud800, no character \uffff, NUL \x00, C1 \x9b31m",
    "]]>&amp;<![CDATA[",
    "{{ 7 * 7 }}{% raw %}",
    "two\nlines\r\tand \u2028 more",
)
"""Texts of a shard that try to control a reader."""


def hostile_report() -> Report:
    """A report in which each text from the data is hostile."""
    figures = some_figures()
    figures["classes"].update(HOSTILE)
    findings = [
        found("LAB906", f"class {text}", text, record=record, offset=0)._replace(
            item=text, feature=text, value=text, fix=text
        )
        for record, text in enumerate(HOSTILE)
    ]
    return make_report(
        findings, sources=HOSTILE, figures=figures, name=HOSTILE[0], reason=HOSTILE[2]
    )
