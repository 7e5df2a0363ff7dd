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

from tfod.errors import TfodError, how_to_install

from tfod_validator.amounts import plural
from tfod_validator.finding import Finding
from tfod_validator.render import charts
from tfod_validator.render.groups import Group, group_findings
from tfod_validator.render.pictures import Card, make_card
from tfod_validator.render.visible import visible
from tfod_validator.render.wording import amounts, size, tally, unnamed_key, verdict_as_title
from tfod_validator.report import REPORT_VERSION, Report
from tfod_validator.rules.registry import Rule
from tfod_validator.samples import Sample

if TYPE_CHECKING:
    from jinja2 import Environment

AFTER_HEAD = "<!-- after the head -->"
"""Stands in a body after verdict and totals; what a page offers to do may take its place."""
_OPEN_ROWS = 5
_MOST_ROWS = 200
_OPEN_BARS = 25
_MOST_BARS = 500
_OPEN_SOURCES = 10
_MOST_SOURCES = 1000
_SHORT_MESSAGES = 3


@dataclass(frozen=True)
class _Section:
    """A rule's findings as the page shows them: some at once, more on demand, the rest counted."""

    group: Group
    cards: tuple[Card, ...]
    open: tuple[Finding, ...]
    folded: tuple[Finding, ...]
    rest: str

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
) -> str:
    """Write a report as an HTML page, to be saved as UTF-8.

    Args:
        report: the report.
        samples: pictures to show; each is shown once, below the severest of its rules.
        rules: where titles, reasons and remedies come from; all rules by default.

    Raises:
        TfodError: jinja2, or Pillow for the pictures, is not installed.
    """
    return _render("report.html", report, _sections(group_findings(report, rules), samples))


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
        samples: pictures to show.
        rules: see :func:`render_html`.
        links: where larger pictures of the samples are.

    Raises:
        TfodError: jinja2, or Pillow for the pictures, is not installed.
    """
    return _render("body.html", report, _sections(group_findings(report, rules), samples, links))


def report_css() -> str:
    """The style sheet of reports."""
    return files("tfod_validator.render").joinpath("templates/report.css").read_text("utf-8")


def _render(name: str, report: Report, sections: Sequence[_Section]) -> str:
    return render_template(
        name,
        report=report,
        verdict=verdict_as_title(report),
        tally=tally(report),
        amounts=amounts(report),
        sections=sections,
        charts=_charts(report),
        sources=_folded(report.sources, _OPEN_SOURCES, _MOST_SOURCES),
        report_version=REPORT_VERSION,
        short_messages=_SHORT_MESSAGES,
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
        loader=jinja2.PackageLoader("tfod_validator.render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # Control characters are spelled out wherever a text is written.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(number=_number, size=size, plural=plural, unnamed_key=unnamed_key)
    return environment


def _sections(
    groups: Sequence[Group], samples: Sequence[Sample], links: Sequence[str] = ()
) -> list[_Section]:
    cards: dict[str, list[Card]] = {group.code: [] for group in groups}
    for sample, link in zip(samples, links or [""] * len(samples), strict=True):
        code = next((code for code in cards if code in sample.codes), None)
        if code is not None:
            cards[code].append(make_card(sample, link))
    sections = []
    for group in groups:
        chosen = group.examples(_OPEN_ROWS)
        others = [one for one in group.findings if not any(one is other for other in chosen)]
        folded = others[: _MOST_ROWS - len(chosen)]
        sections.append(
            _Section(
                group=group,
                cards=tuple(cards[group.code]),
                open=tuple(chosen),
                folded=tuple(folded),
                rest=group.rest([*chosen, *folded]),
            )
        )
    return sections


def _charts(report: Report) -> dict[str, object]:
    statistics = report.statistics
    return {
        "classes": _folded(charts.classes(statistics), _OPEN_BARS, _MOST_BARS),
        "picture_sizes": _folded(charts.picture_sizes(statistics), _OPEN_ROWS * 2, _MOST_BARS),
        "boxes_in_picture": charts.boxes_in_picture(statistics),
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
