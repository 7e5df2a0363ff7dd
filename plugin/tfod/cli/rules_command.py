"""``tfod rules``: what is checked, why, and what to do about it."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfod.check.reporters.rules_pages import full_text, markdown_pages, table
from tfod.check.rules.registry import FAMILIES, Rule, all_rules, no_such_rule
from tfod.cli.command_line import Commands
from tfod.errors import TfodError


def add_parser(commands: Commands) -> None:
    """Add ``rules`` to the commands."""
    parser = commands.add_parser(
        "rules",
        help="list the rules of the checker, or explain one",
        description="List the rules of `tfod check`; with a code or a family, say why it matters, "
        "what to do about it and who says so.",
    )
    parser.add_argument("name", metavar="CODE|FAMILY", nargs="?", help="such as TFR003, or TFR")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--markdown", action="store_true", help="print Markdown")
    how.add_argument("--write", metavar="DIR", help="write the Markdown pages of all rules there")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.write is not None:
        if options.name is not None:
            raise TfodError("--write writes the pages of all rules; leave out the code")
        _write(Path(options.write))
        return 0
    rules = _chosen(options.name)
    if options.markdown:
        pages = markdown_pages(rules)
        if options.name is not None:
            del pages["README.md"]
        print("\n".join(pages.values()), end="")
    elif options.name is None:
        print(table(rules))
    else:
        print("\n\n".join(map(full_text, rules)))
    return 0


def _chosen(name: str | None) -> list[Rule]:
    rules = all_rules()
    if name is None:
        return list(rules.values())
    code = name.upper()
    chosen = [rule for rule in rules.values() if code in (rule.code, rule.family)]
    if not chosen:
        raise TfodError(no_such_rule(name))
    return chosen


def _write(folder: Path) -> None:
    """Write the pages, and remove those of families that have no rules any more."""
    pages = markdown_pages(all_rules().values())
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    for family in FAMILIES:
        if f"{family}.md" not in pages:
            (folder / f"{family}.md").unlink(missing_ok=True)
