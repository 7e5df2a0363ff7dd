"""``tfod rules``: what is checked, why, and what to do about it."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator

from tfod.checker.finding import FAMILIES, Rule
from tfod.checker.reporters.escaping import WIDTH
from tfod.checker.reporters.wording import by_family, parts
from tfod.checker.rules.registry import all_rules, no_such_rule
from tfod.cli.arguments import Parser
from tfod.cli.printing import print_text
from tfod.errors import TfodError


def add_arguments(parser: Parser) -> None:
    """What ``rules`` takes."""
    parser.description = (
        "List the rules of `tfod check`; with a code or a family, say why it matters, "
        "what to do about it and who says so."
    )
    parser.set_defaults(run=_run)
    parser.add_argument("name", metavar="CODE|FAMILY", help="such as TFR003, or TFR", nargs="?")


def _run(options: argparse.Namespace) -> int:
    rules = all_rules().values()
    if options.name is None:
        print_text("\n".join(_table(rules)) + "\n")
        return 0
    code = options.name.upper()
    chosen = [rule for rule in rules if code in (rule.code, rule.family)]
    if not chosen:
        raise TfodError(no_such_rule(options.name))
    print_text("\n\n".join(map(_full_text, chosen)) + "\n")
    return 0


def _table(rules: Iterable[Rule]) -> Iterator[str]:
    """Code, severity and title of each rule, family by family, in 80 columns."""
    for number, (family, members) in enumerate(by_family(rules).items()):
        yield from [""] if number else []
        yield f"{family}  {FAMILIES[family]}"
        yield from (f"  {one.code}  {one.severity.value:<7}  {one.title}" for one in members)


def _full_text(rule: Rule) -> str:
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
