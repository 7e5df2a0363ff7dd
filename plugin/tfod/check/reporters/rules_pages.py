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

_NOTE = "<!-- Written by `make docs` from what the rules declare; edit the rules. -->"


def by_family(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """The rules of each family that has any, in the order of the families."""
    families: dict[str, list[Rule]] = {family: [] for family in FAMILIES}
    for rule in rules:
        families[rule.family].append(rule)
    return {family: members for family, members in families.items() if members}


def parts(rule: Rule) -> Iterator[tuple[str, str]]:
    """All that is said about a rule below its title: a heading, and the text."""
    yield "Why", rule.why
    yield "Fix", rule.fix
    if rule.code in REPAIRS:
        yield "Repair", f"tfod repair: {REPAIRS[rule.code]}"
    yield "Source", rule.source
    yield from changes(rule)


def changes(rule: Rule) -> Iterator[tuple[str, str]]:
    """Who gives a rule another severity, or turns it off: ``Profiles``, ``off in cvat``.

    CVAT is the one of which no task is known.
    """
    ready = {one.name: Policy(one.severities) for one in READY.values()}
    receivers = {one.name: Policy(receiver=one.severities(None)) for one in RECEIVERS.values()}
    for heading, word, policies in (("Profiles", "in", ready), ("Receivers", "for", receivers)):
        found = {name: policy.severity(rule.code) for name, policy in policies.items()}
        said = [
            f"{one.value if one else 'off'} {word} {name}"
            for name, one in found.items()
            if one is not rule.severity
        ]
        if said:
            yield heading, ", ".join(said)


def table(rules: Iterable[Rule]) -> str:
    """Code, severity and title of each rule, family by family, in 80 columns."""
    blocks = []
    for family, members in by_family(rules).items():
        rows = [f"  {one.code}  {one.severity.value:<7}  {one.title}" for one in members]
        blocks.append("\n".join([f"{family}  {FAMILIES[family]}", *rows]))
    return "\n\n".join(blocks)


def full_text(rule: Rule) -> str:
    """All that is known about a rule, in 80 columns."""
    lines = [f"{rule.code}, {rule.severity.value}: {rule.title}"]
    for heading, said in parts(rule):
        lines += textwrap.wrap(
            said,
            WIDTH,
            initial_indent=f"  {heading + ':':<10} ",
            subsequent_indent=" " * 13,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def markdown_pages(rules: Iterable[Rule]) -> dict[str, str]:
    """The pages of ``docs/rules``, by file name: README.md, the index, and one a family."""
    families = by_family(rules)
    pages = {f"{family}.md": _family_page(family, families[family]) for family in families}
    return {"README.md": _index(families), **pages}


def _index(families: Mapping[str, Iterable[Rule]]) -> str:
    lines = [
        "# The rules of `tfod check`",
        _NOTE,
        "A code is its family and three digits, and never means anything else again. "
        "`tfod rules CODE` prints what is here; `--severity CODE=LEVEL` and the `rules` of a "
        "[profile](../../plugin/tfod/check/profiles/profile.schema.json) change how severe a rule "
        "is, or turn it off.",
    ]
    for family, members in families.items():
        lines.append(f"## [{family}]({family}.md): {FAMILIES[family]}")
        rows = [
            f"| [{rule.code}]({family}.md#{rule.code.lower()}) | {rule.severity.value} "
            f"| {_markdown(rule.title)} |"
            for rule in members
        ]
        lines.append("\n".join(["| code | severity | what is wrong |", "|---|---|---|", *rows]))
    return "\n\n".join(lines) + "\n"


def _family_page(family: str, rules: Iterable[Rule]) -> str:
    lines = [f"# {family}: {FAMILIES[family]}", _NOTE, "[All rules](README.md)"]
    for rule in rules:
        # A heading of the code alone keeps links to it alive when a title improves.
        lines += [f"## {rule.code}", f"**{_markdown(rule.title)}** ({rule.severity.value})"]
        lines += [f"{heading}: {_markdown(said)}" for heading, said in parts(rule)]
    return "\n\n".join(lines) + "\n"


def _markdown(text: str) -> str:
    """Plain text, with what Markdown would take for markup escaped."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", text)
