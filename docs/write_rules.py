"""Write the pages of ``docs/rules`` from the declarations of the rules, for ``make docs``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tfod.checker.finding import FAMILIES, Rule
from tfod.checker.reporters.wording import describe_rule, group_by_family
from tfod.checker.rules.registry import all_rules

FOLDER = Path(__file__).parent / "rules"
_NOTE = "<!-- Written by `make docs` from the declarations of the rules; edit the rules. -->"


def pages() -> dict[str, str]:
    """Return the pages by file name: README.md, the index, and a page for each family."""
    families = group_by_family(all_rules().values())
    by_name = {f"{family}.md": _family_page(family, rules) for family, rules in families.items()}
    return {"README.md": _index(families), **by_name}


def _index(families: Mapping[str, Iterable[Rule]]) -> str:
    lines = [
        "# The rules of `tfod check`",
        _NOTE,
        "A code consists of a family and three digits. Its meaning never changes. "
        "`tfod rules CODE` prints the same text. `--severity CODE=LEVEL`, or `rules` in a "
        "[profile](../../plugin/tfod/checker/profiles/profile.schema.json), changes the severity "
        "of a rule, or disables the rule.",
    ]
    for family, members in families.items():
        lines.append(f"## [{family}]({family}.md): {FAMILIES[family]}")
        rows = [
            f"| [{rule.code}]({family}.md#{rule.code.lower()}) | {rule.severity.value} "
            f"| {_markdown(rule.title)} |"
            for rule in members
        ]
        lines.append("\n".join(["| code | severity | problem |", "|---|---|---|", *rows]))
    return "\n\n".join(lines) + "\n"


def _family_page(family: str, rules: Iterable[Rule]) -> str:
    lines = [f"# {family}: {FAMILIES[family]}", _NOTE, "[All rules](README.md)"]
    for rule in rules:
        # The heading is only the code, so that links still work when the title changes.
        lines += [f"## {rule.code}", f"**{_markdown(rule.title)}** ({rule.severity.value})"]
        lines += [f"{heading}: {_markdown(text)}" for heading, text in describe_rule(rule)]
    return "\n\n".join(lines) + "\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", text)


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
