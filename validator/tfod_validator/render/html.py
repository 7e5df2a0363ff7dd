"""The report as one self-contained page, for people who would rather look than read.

It loads nothing, runs no script, and shows everything that came from a shard as plain text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tfod.errors import TfodError

from tfod_validator.finding import Finding
from tfod_validator.render import charts
from tfod_validator.render.groups import Group, group_findings
from tfod_validator.render.pictures import Card, make_card
from tfod_validator.render.visible import visible
from tfod_validator.render.wording import (
    SEVEREST_FIRST,
    amounts,
    plural,
    tally,
    unnamed_key,
    verdict,
)
from tfod_validator.report import REPORT_VERSION, Report
from tfod_validator.rules.registry import Rule
from tfod_validator.samples import Sample

if TYPE_CHECKING:
    from jinja2 import Template

_OPEN_ROWS = 5
_MOST_ROWS = 200
_OPEN_BARS = 25
_MOST_BARS = 500
_OPEN_SOURCES = 10
_MOST_SOURCES = 1000
_SHORT_MESSAGES = 3
_UNITS = ("kB", "MB", "GB", "TB")


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
    template = _template()
    sections = _sections(group_findings(report, rules), samples)
    # The texts are plain: the template escapes every one of them.
    page: str = template.render(
        report=report,
        verdict=verdict(report),
        tally=tally(report),
        amounts=amounts(report),
        severities=SEVEREST_FIRST,
        sections=sections,
        charts=_charts(report),
        sources=_folded(report.sources, _OPEN_SOURCES, _MOST_SOURCES),
        report_version=REPORT_VERSION,
        short_messages=_SHORT_MESSAGES,
    )
    return page


@cache
def _template() -> Template:
    try:
        import jinja2
    except ImportError:
        raise TfodError("the HTML report needs jinja2; pip install 'tfod[validator]'") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tfod_validator.render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # Control characters are spelled out wherever a text is written.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(number=_number, size=_size, plural=plural, unnamed_key=unnamed_key)
    return environment.get_template("report.html")


def _sections(groups: Sequence[Group], samples: Sequence[Sample]) -> list[_Section]:
    cards: dict[str, list[Card]] = {group.code: [] for group in groups}
    for sample in samples:
        code = next((code for code in cards if code in sample.codes), None)
        if code is not None:
            cards[code].append(make_card(sample))
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


def _size(count: int | None) -> str:
    """Bytes as people say them."""
    if count is None:
        return ""
    if count < 1000:
        return f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"
