"""The report as a self-contained HTML page with images.

The page loads nothing, runs no scripts, and escapes all texts from shards. Its body has no inline
styles, so that a page with a strict policy can include it. The page of ``tfod show`` uses the same
template, with only images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from mmap import mmap
from typing import TYPE_CHECKING, Any, NamedTuple

from tfod.checker.advice import fill_in, fit_to_page, split_command
from tfod.checker.finding import FAMILIES, Finding, plural
from tfod.checker.receivers import VERDICT_TEXTS
from tfod.checker.report import REPORT_VERSION, Report, sort_by_count
from tfod.checker.reporters import wording
from tfod.checker.reporters.drawing import choose_class_colour, count_undrawn, draw, get_template
from tfod.checker.reporters.groups import Group, group_findings
from tfod.checker.reporters.samples import Sample
from tfod.checker.reporters.wording import format_headline, format_record
from tfod.checker.rules.registry import all_rules
from tfod.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

AFTER_HEAD = "<!-- after the head -->"
"""Marks the end of the verdict in a body; the service inserts its buttons here."""
_BODY = ("<main>\n", "\n</main>")
"""The text before and after the body of a report; texts from shards cannot contain it."""
_OPEN_CARDS, _OPEN_ROWS, _OPEN_BARS, _OPEN_SOURCES = 4, 5, 25, 10
_MAX_CAUSES = 8
_MAX_SHOWN = 500  # rows, bars or files


class Line(NamedTuple):
    """The findings of a rule about one record; the fix is empty if the page has it elsewhere."""

    title: str
    findings: Sequence[Finding]
    fix: str = ""


@dataclass(frozen=True)
class Card:
    """An image on a page, with its description.

    Attributes:
        where: the record, as text.
        lines: findings by rule, most severe first.
        notes: remarks about the drawing.
        classes: name, colour (or empty) and number of objects of each class.
        record: shard and number of the record, so that findings can link to the card.
        number: number of the card on its page, from 1.
    """

    svg: str
    name: str
    where: str
    lines: Sequence[Line] = ()
    notes: Sequence[str] = ()
    classes: Sequence[tuple[str, str, int]] = ()
    record: tuple[str, int] | None = None
    number: int = 0


@dataclass(frozen=True)
class Step:
    """What to do next, about a group of findings or in general.

    Attributes:
        text, command: what to do; the command may be empty.
        explained: codes of the groups that the group explains.
        cards: the images of the group.
        buttons: labels of the buttons of the service that do it.
    """

    text: str
    command: str = ""
    group: Group | None = None
    explained: Sequence[str] = ()
    cards: Sequence[Card] = ()
    buttons: Sequence[str] = ()


def render_html(
    report: Report,
    samples: Sequence[Sample] = (),
    buttons: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Format a report as an HTML page, to be saved as UTF-8.

    ``buttons`` is for the service, whose users have no command line: the labels of the buttons that
    repair the findings of each rule.
    """
    on_page = buttons is not None
    groups = group_findings(report, on_page=on_page)
    names_shard = report.counts.shards > 1
    by_record: dict[tuple[str, int | None], list[Finding]] = {}
    for finding in report.findings:
        by_record.setdefault((finding.shard, finding.record), []).append(finding)
    cards = [
        _make_card(sample, by_record.get((sample.shard, sample.record), ()), names_shard)
        for sample in samples
    ]
    cards.sort(key=lambda card: -card.lines[0].findings[0].severity.rank if card.lines else 1)
    cards = _number(cards)
    image_sizes = report.image_sizes.items()
    sizes = {f"{width} × {height}": count for (height, width), count in image_sizes}
    source = report.sources[0].name if report.sources else "tfod check"
    return _render(
        title=f"{format_headline(report)} · {source}",
        report=report,
        card_numbers={card.record: card.number for card in cards},
        has_wrong_boxes=any(sample.offending for sample in samples),
        on_page=on_page,
        buttons=buttons or {},
        steps=_list_steps(report, groups, cards, buttons),
        sections=[(group, _fold(group.findings, _OPEN_ROWS, group.total)) for group in groups],
        images=_fold([card for card in cards if card.lines], _OPEN_CARDS),
        without_findings=[card for card in cards if not card.lines],
        charts=[
            ("Objects per class", "class", _make_bars(report.classes)),
            ("Image sizes, width × height in pixels", "size", _make_bars(sizes)),
        ],
        sources=_fold(report.sources, _OPEN_SOURCES),
    )


def find_body(page: mmap | bytes) -> tuple[int, int, int]:
    """Find the body of a page from :func:`render_html`, to include it in another page.

    The body contains the ``<h1>``. The other page needs :func:`report_css`, and ``img-src data:``
    in its policy.

    Returns:
        The byte offsets of the start, of the end of its head (`AFTER_HEAD`), and of the end.
    """
    start, middle = page.find(_BODY[0].encode()), page.find(AFTER_HEAD.encode())
    return start + len(_BODY[0]), middle, page.rfind(_BODY[1].encode())


def render_cards(cards: Sequence[Card], title: str) -> str:
    """Format a page with only images, to be saved as UTF-8."""
    return _render(title=title, report=None, cards=_number(cards))


def render_card(card: Card) -> str:
    """Format a single card for a page that has only this one, as HTML without links."""
    return str(get_template("card.html").module.make_only_card(card))


@cache
def report_css() -> str:
    """Read the style sheet of reports."""
    return files("tfod.checker.reporters").joinpath("templates/report.css").read_text("utf-8")


@cache
def load_template() -> Template:
    """Load the template of the page, like :func:`~tfod.checker.reporters.drawing.get_template`."""
    template = get_template("report.html")
    template.globals.update(
        wording=wording,
        verdict_texts=VERDICT_TEXTS,
        choose_class_colour=choose_class_colour,
        after_head=AFTER_HEAD,
        report_version=REPORT_VERSION,
        version=__version__,
        css=report_css(),
    )
    return template


def _render(**values: Any) -> str:
    return f"{load_template().render(**values).strip()}\n"


def _list_steps(
    report: Report,
    groups: Sequence[Group],
    cards: Sequence[Card],
    buttons: Mapping[str, Sequence[str]] | None,
) -> list[Step]:
    """Return a step for each cause, with its images, and those that are not about findings."""
    causes = [] if report.valid else wording.find_causes(report, groups)
    if not causes:
        return [Step(*line) for line in wording.next_steps(report, groups)]
    steps = []
    for group in causes[:_MAX_CAUSES]:
        records = {(finding.shard, finding.record) for finding in group.findings}
        explained = wording.list_explained(groups, group)
        images = [card for card in cards if card.record in records]
        names = (buttons or {}).get(group.code, ())
        steps.append(Step(*split_command(group.fix), group, explained, images, names))
    if len(causes) > _MAX_CAUSES:
        steps.append(Step(f"Then see the other rules below: {len(causes) - _MAX_CAUSES}."))
    more = wording.suggest_repair(report, groups) if buttons is None else ()
    return [*steps, *(Step(*line) for line in more)]


def _number(cards: Sequence[Card]) -> list[Card]:
    return [replace(card, number=number) for number, card in enumerate(cards, 1)]


def list_lines(findings: Sequence[Finding], *, with_fixes: bool = False) -> list[Line]:
    """Group the findings of a record by rule and cause, most severe first.

    The fixes are for readers who may have no command line.
    """
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.code, finding.cause), []).append(finding)
    lines = []
    for (code, _), members in groups.items():
        rule, first = all_rules()[code], members[0]
        template = fit_to_page(first.template or first.fix, rule) if with_fixes else ""
        lines.append(Line(rule.title, members, fill_in(template, [first])))
    order = list(FAMILIES)

    def sort_key(line: Line) -> tuple[int, int, str]:
        first = line.findings[0]
        return -first.severity.rank, order.index(first.code[:3]), first.code

    return sorted(lines, key=sort_key)


def _make_card(sample: Sample, findings: Sequence[Finding], names_shard: bool) -> Card:
    count, name = count_undrawn(sample), format_record(sample.record)
    return Card(
        svg=draw(sample),
        name=sample.item or name,
        where=f"{sample.shard}, {name}" if names_shard else name,
        lines=list_lines(findings),
        notes=[f"{plural(count, 'box')} not drawn"] if count else [],
        record=(sample.shard, sample.record),
    )


def _make_bars(counts: Mapping[str, int]) -> dict[str, object]:
    """Return name, count and percent of the longest bar, the most frequent first."""
    longest = max(counts.values(), default=0) or 1
    bars = [(name, count, count / longest * 100) for name, count in sort_by_count(counts)]
    return _fold(bars, _OPEN_BARS)


def _fold(items: Sequence[object], first: int, total: int | None = None) -> dict[str, object]:
    """Split items into those that are shown at first, those on demand, and a number of others."""
    if len(items) <= first + 2:  # not worth a click
        first = len(items)
    total = len(items) if total is None else total
    return {
        "open": items[:first],
        "folded": items[first:_MAX_SHOWN],
        "omitted": total - len(items[:_MAX_SHOWN]),
        "total": total,
    }
