"""Write the pages of ``docs/rules`` from what the rules declare; ``make docs`` runs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tfod.checker.finding import FAMILIES, Rule
from tfod.checker.reporters.wording import by_family, parts
from tfod.checker.rules.registry import all_rules

FOLDER = Path(__file__).parent / "rules"
_NOTE = "<!-- Written by `make docs` from what the rules declare; edit the rules. -->"


def pages() -> dict[str, str]:
    """The pages of ``docs/rules``, by file name: README.md, the index, and one a family."""
    families = by_family(all_rules().values())
    by_name = {f"{family}.md": _family_page(family, rules) for family, rules in families.items()}
    return {"README.md": _index(families), **by_name}


def _index(families: Mapping[str, Iterable[Rule]]) -> str:
    lines = [
        "# The rules of `tfod check`",
        _NOTE,
        "A code is its family and three digits, and never means anything else again. "
        "`tfod rules CODE` prints what is here; `--severity CODE=LEVEL` and the `rules` of a "
        "[profile](../../plugin/tfod/checker/profiles/profile.schema.json) change how severe a "
        "rule is, or turn it off.",
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


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
