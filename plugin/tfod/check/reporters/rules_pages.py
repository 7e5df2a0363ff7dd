"""The rules as people read them: tables and texts for the terminal, Markdown pages for ``docs``.

All of it comes from what the rules declare.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from tfod.check.findings.finding import FAMILIES, Rule
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import READY
from tfod.check.receivers import RECEIVERS
from tfod.check.reporters.escaping import WIDTH
from tfod.check.rules.repairs import REPAIRS

_REPAIR = "tfod repair:"
_NOTE = "<!-- Written by `make docs` from what the rules declare; edit the rules. -->"


def table(rules: Iterable[Rule]) -> str:
    """Code, severity and title of each rule, family by family, in 80 columns."""
    return "\n".join(_table_lines(list(rules)))


def _table_lines(rules: list[Rule]) -> Iterator[str]:
    for position, (family, members) in enumerate(by_family(rules)):
        if position:
            yield ""
        yield f"{family}  {FAMILIES[family]}"
        for rule in members:
            head = f"  {rule.code}  {rule.severity.value:<7}  "
            yield from textwrap.wrap(
                rule.title, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)
            )


def full_text(rule: Rule) -> str:
    """All that is known about a rule, in 80 columns."""
    lines = [f"{rule.code}, {rule.severity.value}: {rule.title}"]
    parts = [("Why", rule.why), ("Fix", rule.fix), ("Source", rule.source)]
    if rule.code in REPAIRS:
        parts.insert(2, ("Repair", f"{_REPAIR} {REPAIRS[rule.code]}"))
    if changes := profile_changes(rule):
        parts.append(("Profiles", ", ".join(f"{said} in {name}" for name, said in changes)))
    if changes := receiver_changes(rule):
        parts.append(("For", ", ".join(f"{said} for {name}" for name, said in changes)))
    for title, said in parts:
        lines += textwrap.wrap(
            said,
            WIDTH,
            initial_indent=f"  {title + ':':<9} ",
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def profile_changes(rule: Rule) -> list[tuple[str, str]]:
    """The ready profiles that give a rule another severity, and which, or ``off``."""
    return _changes(rule, {one.name: Policy(one.severities) for one in READY.values()})


def receiver_changes(rule: Rule) -> list[tuple[str, str]]:
    """The receivers that do, likewise; CVAT's where no task is known."""
    policies = {one.name: Policy(receiver=one.severities(None)) for one in RECEIVERS.values()}
    return _changes(rule, policies)


def _changes(rule: Rule, policies: Mapping[str, Policy]) -> list[tuple[str, str]]:
    found = [(name, policy.severity(rule.code)) for name, policy in policies.items()]
    return [(name, one.value if one else "off") for name, one in found if one is not rule.severity]


def markdown_pages(rules: Iterable[Rule]) -> dict[str, str]:
    """The pages of ``docs/rules``, by file name: one a family, and README.md, the index."""
    families = by_family(list(rules))
    pages = {"README.md": _index(families)}
    for family, members in families:
        pages[f"{family}.md"] = _family_page(family, members)
    return pages


def _index(families: list[tuple[str, list[Rule]]]) -> str:
    lines = [
        "# The rules of `tfod check`",
        _NOTE,
        "A code is its family and three digits, and never means anything else again. "
        "`tfod rules CODE` prints what is here; `--severity CODE=LEVEL` and the `rules` of a "
        "[profile](../../plugin/tfod/check/profiles/profile.schema.json) change how severe a rule "
        "is, or turn it off.",
    ]
    for family, members in families:
        lines.append(f"## [{family}]({family}.md): {FAMILIES[family]}")
        rows = [
            f"| [{rule.code}]({family}.md#{rule.code.lower()}) | {rule.severity.value} "
            f"| {_markdown(rule.title)} |"
            for rule in members
        ]
        lines.append("\n".join(["| code | severity | what is wrong |", "|---|---|---|", *rows]))
    return "\n\n".join(lines) + "\n"


def _family_page(family: str, rules: list[Rule]) -> str:
    lines = [f"# {family}: {FAMILIES[family]}", _NOTE, "[All rules](README.md)"]
    for rule in rules:
        # A heading of the code alone keeps links to it alive when a title improves.
        lines.append(f"## {rule.code}")
        lines.append(f"**{_markdown(rule.title)}** ({rule.severity.value})")
        lines.append(_markdown(rule.why))
        lines.append(f"What to do: {_markdown(rule.fix)}")
        if rule.code in REPAIRS:
            lines.append(f"`{_REPAIR[:-1]}`: {_markdown(REPAIRS[rule.code])}")
        if changes := profile_changes(rule):
            listed = ", ".join(f"{said} in `{name}`" for name, said in changes)
            lines.append(f"Profiles: {listed}.")
        if changes := receiver_changes(rule):
            listed = ", ".join(f"{said} with `--for {name}`" for name, said in changes)
            lines.append(f"Receivers: {listed}.")
        lines.append(f"Source: {_markdown(rule.source)}")
    return "\n\n".join(lines) + "\n"


def by_family(rules: list[Rule]) -> list[tuple[str, list[Rule]]]:
    """The rules of each family that has any, in the order of the families."""
    found = [(family, [rule for rule in rules if rule.family == family]) for family in FAMILIES]
    return [(family, members) for family, members in found if members]


def _markdown(text: str) -> str:
    """Plain text, with what Markdown would take for markup escaped."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", text)
