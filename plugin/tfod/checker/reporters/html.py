"""The report as one self-contained page, for people who would rather look than read.

It loads nothing, runs no script, and shows everything that came from a shard as plain text. Its
body has no inline styles, so that another page can show it under a strict policy. The page of
``tfod show`` is the same template with nothing but images in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from mmap import mmap
from typing import TYPE_CHECKING, Any

from tfod.checker.finding import Finding, plural
from tfod.checker.report import REPORT_VERSION, Report, most_first
from tfod.checker.reporters import wording
from tfod.checker.reporters.drawing import OTHER, WRONG, draw, template_of, undrawn
from tfod.checker.reporters.samples import Sample
from tfod.checker.reporters.wording import Group, group_findings, headline, next_steps, record_name
from tfod.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

AFTER_HEAD = "<!-- after the head -->"
"""Stands in a body after the verdict; what a page offers to do at once may take its place."""
_BODY = ("<main>\n", "\n</main>")
"""What is around the body of a report; texts from shards are escaped."""
_OPEN_CARDS, _OPEN_ROWS, _OPEN_BARS, _OPEN_SOURCES = 4, 5, 25, 10
_MOST = 500  # rows, bars or files
ON_THE_PAGE = {
    "TFR012": "If such records are meant, check them with tfod on your own machine.",
    "EXA010": "If they are meant to be like this, choose the layout of the records under Options.",
    "LAB001": "Upload the right label map (label_map.pbtxt) together with the shards.",
    "ZIP007": "Split it into several archives, or check the shard by itself if it is so large.",
    "TSK007": "Export the task as CVAT for images 1.1.",
}
"""Fixes for readers of the service's page, who have no options to pass, by rule."""


@dataclass(frozen=True)
class Card:
    """An image on a page, and what is said of it.

    Attributes:
        svg: the image with its boxes.
        name: the image's file name, or what else people know it by.
        where: its record.
        lines: of each rule its first finding, its title and how many there are, severest first.
        notes: what is odd about how it is drawn.
        classes: name, colour (empty for none) and how many objects there are.
    """

    svg: str
    name: str
    where: str
    lines: Sequence[tuple[Finding, str, int]] = ()
    notes: Sequence[str] = ()
    classes: Sequence[tuple[str, str, int]] = ()


def render_html(report: Report, samples: Sequence[Sample] = (), *, on_page: bool = False) -> str:
    """Write a report as an HTML page, to be saved as UTF-8.

    ``on_page`` says that the service made it, whose users have no options of a command line.

    Raises:
        TfodError: jinja2, or Pillow for the images, is not installed.
    """
    groups = group_findings(report)
    if on_page:
        groups = [_on_page(one, ON_THE_PAGE.get(one.code)) for one in groups]
    several = report.counts.shards > 1
    cards = [_card(sample, groups, several=several) for sample in samples]
    cards.sort(key=lambda one: -one.lines[0][0].severity.rank if one.lines else 1)
    sizes = {f"{width} × {high}": n for (high, width), n in report.image_sizes.items()}
    return _render(
        title=f"{headline(report)} · {report.sources[0].name if report.sources else 'tfod check'}",
        report=report,
        has_wrong_boxes=any(one.offending for one in samples),
        next_steps=next_steps(report, groups, on_page=on_page),
        sections=[(one, _folded(one.findings, _OPEN_ROWS, one.total)) for one in groups],
        images=_folded([one for one in cards if one.lines], _OPEN_CARDS),
        sound=[one for one in cards if not one.lines],
        charts=[
            ("Objects per class", "class", _bars(report.classes)),
            ("Image sizes, width × height in pixels", "size", _bars(sizes)),
        ],
        sources=_folded(report.sources, _OPEN_SOURCES),
    )


def body_of(page: mmap) -> tuple[int, int, int]:
    """What another page shows of a report that :func:`render_html` has made, which may be long.

    It brings the ``<h1>``, and that page needs :func:`report_css`, and from its policy only
    ``img-src data:`` besides.

    Returns:
        The bytes where it begins, where its head ends (`AFTER_HEAD`), and where it ends.
    """
    start, middle = (page.find(one.encode()) for one in (_BODY[0], AFTER_HEAD))
    return start + len(_BODY[0]), middle, page.rfind(_BODY[1].encode())


def render_cards(cards: Sequence[Card], title: str) -> str:
    """Write a page of images alone, to be saved as UTF-8.

    Raises:
        TfodError: jinja2 is not installed.
    """
    return _render(title=title, report=None, cards=cards)


@cache
def report_css() -> str:
    """The style sheet of reports."""
    return files("tfod.checker.reporters").joinpath("templates/report.css").read_text("utf-8")


@cache
def load_template() -> Template:
    """The template of the page, as :func:`~tfod.checker.reporters.drawing.template_of`."""
    template = template_of("report.html")
    template.globals.update(
        wording=wording,
        colours={"wrong": WRONG, "other": OTHER},
        after_head=AFTER_HEAD,
        report_version=REPORT_VERSION,
        version=__version__,
        css=report_css(),
    )
    return template


def _render(**values: Any) -> str:
    return f"{load_template().render(**values).strip()}\n"


def _card(sample: Sample, groups: Sequence[Group], *, several: bool) -> Card:
    """A sample drawn, with all that was found in it."""
    place, lines = (sample.shard, sample.record), []
    for group in groups:
        if same := [one for one in group.findings if (one.shard, one.record) == place]:
            lines.append((same[0], group.rule.title, len(same)))
    left, where = undrawn(sample), record_name(sample.record)
    return Card(
        svg=draw(sample),
        name=sample.item or where,
        where=f"{sample.shard}, {where}" if several else where,
        lines=sorted(lines, key=lambda one: -one[0].severity.rank),
        notes=[f"{plural(left, 'box')} not drawn"] if left else [],
    )


def _on_page(group: Group, fix: str | None) -> Group:
    findings = [one._replace(fix=fix) for one in group.findings] if fix else group.findings
    return group._replace(fix=fix or group.fix, findings=findings)


def _bars(counts: Mapping[str, int]) -> dict[str, object]:
    """The most frequent first: name, count, percent of the longest bar."""
    most = max(counts.values(), default=0) or 1
    bars = [(name, count, count / most * 100) for name, count in most_first(counts)]
    return _folded(bars, _OPEN_BARS)


def _folded(things: Sequence[object], first: int, total: int | None = None) -> dict[str, object]:
    """What is seen at once, what on demand, and how many of so many are left out."""
    if len(things) <= first + 2:  # not worth a click
        first = len(things)
    total = len(things) if total is None else total
    return {
        "open": things[:first],
        "folded": things[first:_MOST],
        "left": total - len(things[:_MOST]),
        "total": total,
    }
