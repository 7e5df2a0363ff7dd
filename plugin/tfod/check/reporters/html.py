"""The report as one self-contained page, for people who would rather look than read.

It loads nothing, runs no script, and shows everything that came from a shard as plain text. Its
body has no inline styles, so that another page can show it under a strict policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tfod.check.amounts import plural
from tfod.check.finding import Finding
from tfod.check.report import REPORT_VERSION, Report
from tfod.check.reporters import charts
from tfod.check.reporters.by_image import by_image
from tfod.check.reporters.drawing import make_card
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.groups import Group, group_findings
from tfod.check.reporters.next_steps import next_steps
from tfod.check.reporters.wording import (
    about_dataset,
    besides,
    decoded,
    headline,
    page_advice,
    size,
    unnamed_key,
)
from tfod.check.rules.registry import Rule
from tfod.check.rules.repairs import REPAIRED, handlings
from tfod.check.samples import Sample
from tfod.errors import TfodError, how_to_install

if TYPE_CHECKING:
    from jinja2 import Environment

AFTER_HEAD = "<!-- after the head -->"
"""Stands in a body after the verdict; what a page offers to do next may take its place."""
_OPEN_CARDS = 4
_OPEN_ROWS = 5
_MOST_ROWS = 200
_OPEN_BARS = 25
_MOST_BARS = 500
_OPEN_SOURCES = 10
_MOST_SOURCES = 1000
_MOST_LINES = 3
_MOST_IMAGES = 200


@dataclass(frozen=True)
class _Section:
    """A rule's findings as the page shows them: some at once, more on demand, the rest counted."""

    group: Group
    open: tuple[Finding, ...]
    folded: tuple[Finding, ...]
    rest: str
    repair: str

    @property
    def shows(self) -> dict[str, bool]:
        """The columns that are not empty."""
        names = ("shard", "record", "offset", "item")
        return {
            name: any(getattr(one, name) not in (None, "") for one in (*self.open, *self.folded))
            for name in names
        }


def render_html(
    report: Report,
    samples: Sequence[Sample] = (),
    *,
    rules: Mapping[str, Rule] | None = None,
    on_page: bool = False,
) -> str:
    """Write a report as an HTML page, to be saved as UTF-8.

    Args:
        report: the report.
        samples: images to show.
        rules: where titles, reasons and fixes come from; all rules by default.
        on_page: whether it was made by the service, whose users have no options of a command line.

    Raises:
        TfodError: jinja2, or Pillow for the images, is not installed.
    """
    return _render("report.html", report, group_findings(report, rules), samples, on_page=on_page)


def render_body(
    report: Report,
    samples: Sequence[Sample] = (),
    *,
    rules: Mapping[str, Rule] | None = None,
    links: Sequence[str] = (),
) -> str:
    """Write a report as a part of another page, whose ``<h1>`` it brings.

    That page needs :func:`report_css`, and from its policy only ``img-src data:`` besides.

    Args:
        report: the report.
        samples: images to show.
        rules: see :func:`render_html`.
        links: where larger images of the samples are.

    Raises:
        TfodError: jinja2, or Pillow for the images, is not installed.
    """
    groups = group_findings(report, rules)
    return _render("body.html", report, groups, samples, links, on_page=True)


def report_css() -> str:
    """The style sheet of reports."""
    return files("tfod.check.reporters").joinpath("templates/report.css").read_text("utf-8")


def _render(
    name: str,
    report: Report,
    groups: Sequence[Group],
    samples: Sequence[Sample],
    links: Sequence[str] = (),
    *,
    on_page: bool,
) -> str:
    links = links or [""] * len(samples)
    cards = [make_card(one, link) for one, link in zip(samples, links, strict=True)]
    found = by_image(report.findings, groups, cards)
    return render_template(
        name,
        report=report,
        headline=headline(report),
        besides=besides(report),
        about_dataset=about_dataset,
        decoded=decoded(report),
        next_steps=next_steps(report),
        sections=_sections(groups),
        files=_folded(found.files, _OPEN_ROWS, _MOST_IMAGES),
        images=_folded(found.images, _OPEN_CARDS, _MOST_IMAGES),
        sound=found.sound,
        advice=page_advice if on_page else str,
        charts=_charts(report),
        sources=_folded(report.sources, _OPEN_SOURCES, _MOST_SOURCES),
        report_version=REPORT_VERSION,
        most_lines=_MOST_LINES,
        after_head=AFTER_HEAD,
    )


def render_template(name: str, **values: Any) -> str:
    """Fill in a template of this package; every text is plain and is escaped.

    Raises:
        TfodError: jinja2 is not installed.
    """
    page: str = _templates().get_template(name).render(**values)
    return page


@cache
def _templates() -> Environment:
    try:
        import jinja2
    except ImportError:
        raise TfodError(f"the HTML report needs jinja2; {how_to_install('validator')}") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tfod.check.reporters"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # Control characters are spelled out wherever a text is written.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(number=_number, size=size, plural=plural, unnamed_key=unnamed_key)
    return environment


def _sections(groups: Sequence[Group]) -> list[_Section]:
    repairs = handlings()
    sections = []
    for group in groups:
        chosen = group.examples(_OPEN_ROWS)
        others = [one for one in group.findings if not any(one is other for other in chosen)]
        folded = others[: _MOST_ROWS - len(chosen)]
        sections.append(
            _Section(
                group=group,
                open=tuple(chosen),
                folded=tuple(folded),
                rest=group.rest([*chosen, *folded]),
                repair=repairs[group.code].sentence if group.code in REPAIRED else "",
            )
        )
    return sections


def _charts(report: Report) -> dict[str, object]:
    statistics = report.statistics
    return {
        "classes": _folded(charts.classes(statistics), _OPEN_BARS, _MOST_BARS),
        "image_sizes": _folded(charts.image_sizes(statistics), _OPEN_ROWS * 2, _MOST_BARS),
        "boxes_in_image": charts.boxes_in_image(statistics),
        "centres": charts.centres(statistics),
        "sizes": charts.sizes(statistics),
        "side": charts.SIDE,
    }


def _folded(things: Sequence[object], first: int, most: int) -> dict[str, object]:
    """What is seen at once, what on demand, and how many are left out."""
    if len(things) <= first + 2:  # not worth a click
        first = len(things)
    return {
        "open": things[:first],
        "folded": things[first:most],
        "left": max(0, len(things) - most),
        "total": len(things),
    }


def _number(value: int) -> str:
    return f"{value:,}"
