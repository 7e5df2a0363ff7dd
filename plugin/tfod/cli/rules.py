"""``tfod rules``: what is checked, why, and what to do about it."""

from __future__ import annotations

import argparse

from tfod.check.findings.finding import Rule
from tfod.check.reporters.rules_pages import full_text, markdown_pages, table
from tfod.check.rules.registry import all_rules, no_such_rule
from tfod.cli.arguments import Arguments, Parser, to_write
from tfod.cli.output import print_text
from tfod.errors import TfodError
from tfod.tfrecord.output import OutputFolder


def add_arguments(parser: Parser) -> None:
    """What ``rules`` takes."""
    parser.description = (
        "List the rules of `tfod check`; with a code or a family, say why it matters, "
        "what to do about it and who says so."
    )
    parser.set_defaults(run=_run)
    arguments = Arguments(parser)
    arguments.value("name", "CODE|FAMILY", "such as TFR003, or TFR", nargs="?")
    how = Arguments(parser.add_mutually_exclusive_group())
    how.flag("--markdown", "print Markdown")
    how.value("--write", "DIR", "write the Markdown pages of all rules there", type=to_write)
    arguments.flag("--overwrite", "replace pages that are there")


def _run(options: argparse.Namespace) -> int:
    if options.write is not None:
        if options.name is not None:
            raise TfodError("--write writes the pages of all rules; leave out the code")
        with OutputFolder(options.write, [], options.overwrite) as output:
            for page, text in markdown_pages(all_rules().values()).items():
                output.add_text(page, text.encode())
        return 0
    rules = _chosen(options.name)
    if options.markdown:
        pages = markdown_pages(rules)
        if options.name is not None:
            del pages["README.md"]
        print_text("\n".join(pages.values()))
    elif options.name is None:
        print_text(table(rules) + "\n")
    else:
        print_text("\n\n".join(map(full_text, rules)) + "\n")
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
