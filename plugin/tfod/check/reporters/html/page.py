"""The report as one self-contained page, for people who would rather look than read.

It loads nothing, runs no script, and shows everything that came from a shard as plain text. Its
body has no inline styles, so that another page can show it under a strict policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tfod.check.findings.finding import Finding, Severity, plural, size
from tfod.check.findings.report import REPORT_VERSION, Report
from tfod.check.records.statistics import most_first
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.groups import Group, group_findings
from tfod.check.reporters.html.drawing import Card, make_card
from tfod.check.reporters.html.samples import Sample
from tfod.check.reporters.next_steps import next_steps
from tfod.check.reporters.wording import (
    about_dataset,
    besides,
    decoded,
    headline,
    notes,
    page_advice,
    records_read,
    unnamed_key,
)
from tfod.check.rules.repairs import REPAIRS
from tfod.errors import TfodError, how_to_install

if TYPE_CHECKING:
    from jinja2 import Environment

AFTER_HEAD = "<!-- after the head -->"
"""Stands in a body after the verdict; what a page offers to do next may take its place."""
_OPEN_CARDS, _OPEN_ROWS, _OPEN_BARS, _OPEN_SOURCES = 4, 5, 25, 10
_MOST_ROWS, _MOST_BARS, _MOST_SOURCES, _MOST_IMAGES, _MOST_LINES = 200, 500, 1000, 200, 3


@dataclass(frozen=True)
class _Entry:
    """An image, or a file where no image is concerned, with what was found in it.

    ``lines`` are of each rule its first finding, its title and how many there are, severest first;
    ``card`` is None where the image is not shown.
    """

    name: str
    where: str
    lines: Sequence[tuple[Finding, str, int]] = ()
    card: Card | None = None

    @property
    def severity(self) -> Severity | None:
        """Of the worst; None where nothing was found."""
        return self.lines[0][0].severity if self.lines else None


def render_html(
    report: Report,
    samples: Sequence[Sample] = (),
    *,
    links: Sequence[str] = (),
    is_body: bool = False,
    on_page: bool = False,
) -> str:
    """Write a report as an HTML page, to be saved as UTF-8; or as a part of another page.

    As such it brings the ``<h1>``, and that page needs :func:`report_css`, and from its policy only
    ``img-src data:`` besides. ``links`` are where larger images of the samples are. ``on_page``
    says that the service made it, whose users have no options of a command line.

    Raises:
        TfodError: jinja2, or Pillow for the images, is not installed.
    """
    cards = list(map(make_card, samples, links or [""] * len(samples)))
    groups = group_findings(report)
    in_files, images, sound = _entries(report.findings, groups, cards)
    sizes = {f"{width} × {high}": n for (high, width), n in report.statistics.image_sizes.items()}
    return render_template(
        "body.html" if is_body else "report.html",
        report=report,
        headline=headline(report),
        besides=besides(report),
        records_read=records_read(report),
        legend=_legend(cards),
        about_dataset=about_dataset,
        notes=list(notes(report)),
        decoded=decoded(report),
        next_steps=next_steps(report),
        sections=_sections(groups),
        files=_folded(in_files, _OPEN_ROWS, _MOST_IMAGES),
        images=_folded(images, _OPEN_CARDS, _MOST_IMAGES),
        sound=sound,
        advice=page_advice if on_page else str,
        classes=_folded(_bars(report.statistics.classes), _OPEN_BARS, _MOST_BARS),
        image_sizes=_folded(_bars(sizes), _OPEN_ROWS * 2, _MOST_BARS),
        sources=_folded(report.sources, _OPEN_SOURCES, _MOST_SOURCES),
        report_version=REPORT_VERSION,
        most_lines=_MOST_LINES,
        after_head=AFTER_HEAD,
    )


def report_css() -> str:
    """The style sheet of reports."""
    return files("tfod.check.reporters.html").joinpath("templates/report.css").read_text("utf-8")


def render_template(name: str, **values: Any) -> str:
    """Fill in a template of this package; every text is plain and is escaped.

    Raises:
        TfodError: jinja2 is not installed.
    """
    page: str = _templates().get_template(name).render(**values)
    return page


def load_templates() -> None:
    """Load the pages' templates, which takes as long as a small check: once, before processes fork.

    Raises:
        TfodError: jinja2 is not installed.
    """
    for name in _templates().list_templates(["html", "css"]):
        _templates().get_template(name)


@cache
def _templates() -> Environment:
    try:
        import jinja2
    except ImportError:
        raise TfodError(f"the HTML report needs jinja2; {how_to_install('validator')}") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tfod.check.reporters.html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # Control characters are spelled out wherever a text is written.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(
        number="{:,}".format, size=size, plural=plural, unnamed_key=unnamed_key
    )
    return environment


def _entries(
    findings: Sequence[Finding], groups: Sequence[Group], cards: Sequence[Card]
) -> tuple[list[_Entry], list[_Entry], list[_Entry]]:
    """What concerns no image, images with findings (the severest first), images without any."""
    titles = {group.code: group.title for group in groups}
    shown = {(card.sample.place.shard, card.sample.place.record): card for card in cards}
    gathered: dict[tuple[str, int | None], list[Finding]] = {}
    for one in findings:
        gathered.setdefault((one.shard, one.record), []).append(one)
    in_files, images = [], []
    for (shard, record), found in gathered.items():
        by_code: dict[str, list[Finding]] = {}
        for one in sorted(found, key=lambda one: -one.severity.rank):
            by_code.setdefault(one.code, []).append(one)
        lines = [(same[0], titles[code] or same[0].message, len(same))
                 for code, same in by_code.items()]  # fmt: skip
        if record is None:
            in_files.append(_Entry(shard, "", lines))
        else:
            name = next((one.item for one in found if one.item), f"record {record}")
            images.append(_Entry(name, found[0].where, lines, shown.get((shard, record))))
    in_files.sort(key=lambda one: -one.lines[0][0].severity.rank)
    sound = [
        _Entry(card.sample.place.item or "", f"{shard}, record {record}", (), card)
        for (shard, record), card in shown.items()
        if (shard, record) not in gathered
    ]
    return in_files, _rules_in_turn(images), sound


def _rules_in_turn(images: Sequence[_Entry]) -> list[_Entry]:
    """Images of each severity, those with cards first, an image of each rule before the second."""
    before = Counter[str]()
    turns = []
    for one in images:
        first = one.lines[0][0]
        turns.append((-first.severity.rank, one.card is None, before[first.code]))
        before[first.code] += 1
    return [images[at] for at in sorted(range(len(images)), key=turns.__getitem__)]


def _legend(cards: Sequence[Card]) -> list[tuple[str, str]]:
    """What the colours of the boxes say, where there are several: class and text."""
    if any(one.sample.offending for one in cards):
        return [("bad", "box that a finding is about"), ("other", "other boxes of the record")]
    return []


def _sections(groups: Sequence[Group]) -> list[dict[str, object]]:
    """A rule's findings: some that are seen at once, more on demand, the rest counted."""
    sections = []
    for group in groups:
        chosen = group.examples(_OPEN_ROWS)
        others = [one for one in group.findings if not any(one is other for other in chosen)]
        listed = [*chosen, *others[: _MOST_ROWS - len(chosen)]]
        sections.append(
            {
                "group": group,
                "open": chosen,
                "folded": listed[len(chosen) :],
                "rest": group.rest(listed),
                "repair": REPAIRS.get(group.code, ""),
                "shows": {
                    name: any(getattr(one, name) not in (None, "") for one in listed)
                    for name in ("shard", "record", "offset", "item")
                },
            }
        )
    return sections


def _bars(counts: Mapping[str, int]) -> list[tuple[str, int, float]]:
    """The most frequent first: name, count, percent of the longest bar."""
    most = max(counts.values(), default=0) or 1
    return [(name, count, count / most * 100) for name, count in most_first(counts)]


def _folded(things: Sequence[object], first: int, most: int) -> dict[str, object]:
    if len(things) <= first + 2:  # not worth a click
        first = len(things)
    return {
        "open": things[:first],
        "folded": things[first:most],
        "left": max(0, len(things) - most),
        "total": len(things),
    }
