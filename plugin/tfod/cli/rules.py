"""The command ``tfod rules``."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator

from tfod.checker.finding import FAMILIES, Rule
from tfod.checker.reporters.escaping import WIDTH
from tfod.checker.reporters.wording import describe_rule, group_by_family
from tfod.checker.rules.registry import all_rules, describe_unknown_rule
from tfod.cli.arguments import Parser
from tfod.cli.printing import print_text
from tfod.errors import TfodError


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``rules``."""
    parser.description = (
        "List the rules of `tfod check`, or explain a rule or a family of rules: why it matters, "
        "how to fix it, and the source."
    )
    parser.set_defaults(run=_run)
    parser.add_argument("name", metavar="CODE|FAMILY", help="such as TFR003 or TFR", nargs="?")


def _run(options: argparse.Namespace) -> int:
    rules = all_rules().values()
    if options.name is None:
        print_text("\n".join(_list_rules(rules)) + "\n")
        return 0
    code = options.name.upper()
    matches = [rule for rule in rules if code in (rule.code, rule.family)]
    if not matches:
        raise TfodError(describe_unknown_rule(options.name))
    print_text("\n\n".join(map(_explain, matches)) + "\n")
    return 0


def _list_rules(rules: Iterable[Rule]) -> Iterator[str]:
    for number, (family, members) in enumerate(group_by_family(rules).items()):
        yield from [""] if number else []
        yield f"{family}  {FAMILIES[family]}"
        yield from (f"  {rule.code}  {rule.severity.value:<7}  {rule.title}" for rule in members)


def _explain(rule: Rule) -> str:
    lines = [f"{rule.code}, {rule.severity.value}: {rule.title}"]
    for heading, text in describe_rule(rule):
        lines += textwrap.wrap(
            text,
            WIDTH,
            initial_indent=f"  {heading + ':':<10} ",
            subsequent_indent=" " * 13,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)
