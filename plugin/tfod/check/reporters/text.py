"""The report as text for a terminal: the verdict, then what to fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tfod.check.findings.finding import Finding, Severity, plural
from tfod.check.findings.report import Report
from tfod.check.receivers import ANY
from tfod.check.reporters.escaping import WIDTH, columns, visible
from tfod.check.reporters.wording import (
    Group,
    about_dataset,
    amounts,
    decoded,
    group_findings,
    next_steps,
    place_parts,
    totals,
    verdict,
)

_EXAMPLES = 3  # findings that are shown of each rule; the others are counted
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_RED, _YELLOW, _CYAN, _GREEN = "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;36m", "\x1b[1;32m"
_COLORS = {Severity.ERROR: _RED, Severity.WARNING: _YELLOW, Severity.INFO: _CYAN}


def render_text(
    report: Report,
    *,
    color: bool,
    receivers: bool = False,
    quiet: bool = False,
) -> str:
    """Write a report as text.

    ANSI sequences of shards are never passed on: what is of a shard goes through ``visible``, here
    or in ``wording``. ``receivers`` lists what each makes of the shards, for a check for any of
    them; ``quiet`` leaves the findings alone, and of what is valid nothing.
    """
    if quiet and report.valid:
        return ""
    groups = group_findings(report)
    lines = [] if quiet else [*_head(report, color)]
    lines += _receivers(report) if receivers and not quiet else ()
    for group in groups:
        lines += ["", *group_lines(group, color)]
    if not quiet:
        lines += _next(report, groups)
    if not quiet and groups:
        hint = f"More about a rule: tfod rules {groups[0].code}"
        lines += ["", _paint(hint, hint, _DIM) if color else hint]
    # Alone, the findings begin without a line between them and the head.
    return "\n".join(lines[1:] if quiet else lines) + "\n"


def _next(report: Report, groups: Sequence[Group]) -> Iterator[str]:
    """What to do next: with what is valid for a receiver, or about what fails.

    A fix that is the only one is said above, and so are warnings.
    """
    steps = list(next_steps(report, groups))
    if report.valid:
        steps = steps[:1] if report.receiver != ANY.name else []
    elif len(groups) == 1:
        steps = steps[1:]
    yield from [""] if steps else ()
    for number, (sentence, command) in enumerate(steps):
        word = "Then:" if number else "Next:"
        yield from _wrap([word, *visible(sentence).split(" ")], 0, 2)
        if command:
            yield f"  {command}"


def _head(report: Report, color: bool) -> Iterator[str]:
    profile = report.profile
    reason = f" ({profile.reason})" if profile.reason else ""
    head = [
        f"{verdict(report)}: {totals(report)}",
        f"Checked: {amounts(report.counts)}",
        f"Decoded: {decoded(report)}",
        f"Profile: {visible(profile.name + reason)}",
    ]
    if report.configuration is not None:
        head.append(f"Configuration: {visible(report.configuration)}")
    lines = [line for one in head for line in _wrap(one.split(" "), 0, 2)]
    if color:
        lines[0] = _paint(lines[0], verdict(report), _GREEN if report.valid else _RED)
    yield from lines
    if len(report.datasets) > 1:
        yield "Datasets:"
    for one in report.datasets if len(report.datasets) > 1 else ():
        word = "VALID" if one.valid else "INVALID"
        words = [word, f"{visible(one.name)}:", *about_dataset(one).split(" ")]
        first, *others = _wrap(words, 2, 4)
        yield _paint(first, word, _GREEN if one.valid else _RED) if color else first
        yield from others


def group_lines(group: Group, color: bool) -> Iterator[str]:
    """The findings of a rule below its title, some of them as examples."""
    mark = f"{group.code} {group.severity.value}"
    extent = f" ({group.total:,} in {plural(group.files, 'file')})" if group.total > 1 else ""
    heading = list(_wrap(f"{mark}: {group.rule.title}{extent}".split(" "), 0, 2))
    fix = list(_wrap(["Fix:", *visible(group.fix).split(" ")], 2, 4) if group.fix else ())
    if color:
        heading[0] = _paint(heading[0], mark, _COLORS[group.severity])
        fix[:1] = [_paint(line, "Fix:", _BOLD) for line in fix[:1]]
    yield from (*heading, *_examples(group), *fix)


def _receivers(report: Report) -> Iterator[str]:
    yield "Receivers:"
    longest = max(len(one.receiver.name) for one in report.verdicts)
    for one in report.verdicts:
        why = f": {'; '.join(one.reasons)}" if one.reasons else ""
        words = [f"{one.receiver.name:<{longest}} ", *f"{one.verdict.value}{why}".split(" ")]
        yield from _wrap(words, 2, longest + 4)


def _examples(group: Group) -> Iterator[str]:
    """Examples of a rule's findings: where, and below it what. The same words are said once."""
    shown = group.examples_first(_EXAMPLES)[:_EXAMPLES]
    by_words: dict[tuple[str, str], list[Finding]] = {}
    for finding in shown:
        by_words.setdefault((visible(finding.message), finding.fix), []).append(finding)
    for (message, fix), findings in by_words.items():
        for finding in findings:
            place = list(place_parts(finding))
            if place and finding is findings[-1]:
                place[-1] += ":"
            yield from _wrap(place, 2, 6)
        indent = 4 if place else 2  # nothing to be below of
        yield from _wrap(message.split(" "), indent, indent + 2)
        if fix and fix != group.fix:
            yield from _wrap(["Fix", "here:", *visible(fix).split(" ")], 4, 6)
    if group.total > len(shown):
        yield f"  and {group.total - len(shown):,} more"


def _wrap(words: Iterable[str], indent: int, hanging: int) -> Iterator[str]:
    """Set words in lines. No word is broken; one that is too long gets a line of its own.

    ``textwrap`` counts characters, of which some take two cells of a terminal and some none.
    """
    line: list[str] = []
    used = indent - 1
    for word in words:
        size = columns(word)
        if line and used + 1 + size > WIDTH:
            yield " " * indent + " ".join(line)
            line, indent, used = [], hanging, hanging - 1
        line.append(word)
        used += 1 + size
    if line:
        yield " " * indent + " ".join(line)


def _paint(line: str, part: str, paint: str) -> str:
    return line.replace(part, f"{paint}{part}{_RESET}", 1)
