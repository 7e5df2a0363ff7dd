"""``tfod repair``: its options."""

from __future__ import annotations

import argparse

from tfod.check.rules.repairs import INEVITABLE
from tfod.cli.arguments import (
    Arguments,
    Parser,
    file_name,
    limit,
    named_profile,
    rule_names,
    to_write,
)
from tfod.cli.output import begin_output, files_among, print_text
from tfod.errors import TfodError
from tfod.shards.repair import Options, Outcome, repair
from tfod.shards.repair.report import JsonReport, render_text

EXIT_REPAIRED = 0
EXIT_LEFT = 1


def add_arguments(parser: Parser) -> None:
    """What ``repair`` takes."""
    parser.description = (
        "Write shards anew without the defects that `tfod check` finds and that can be "
        "fixed without guessing; the source is never touched. Exit status 0: nothing is left; "
        "1: something is left that only a person can decide; 2: the repair could not run."
    )
    parser.set_defaults(run=_run)
    arguments = Arguments(parser)
    arguments.value("source", "SOURCE", "a shard, a folder, a glob or a zip", type=file_name)
    arguments.value("target", "DEST", "the folder of the result", type=to_write, nargs="?")
    arguments.flag("--dry-run", "say what would be done, and write nothing")
    arguments.output("write every change here, as JSON")
    arguments.profile()
    arguments.receiver()
    arguments.label_map()
    for name, text in (
        ("--only", "rules or families to fix, as BOX,LAB008"),
        ("--skip", "those not to fix"),
    ):
        arguments.value(name, "CODES", text, type=rule_names(name), action="extend")
    arguments.flag("--overwrite", "replace shards of the same subsets in DEST")


def _run(arguments: argparse.Namespace) -> int:
    outcome = _repair(arguments, _options(arguments))
    print_text(render_text(outcome))
    return EXIT_REPAIRED if outcome.remaining.valid else EXIT_LEFT


def _repair(arguments: argparse.Namespace, options: Options) -> Outcome:
    """Repair; the report is complete before the result is published."""
    target = None if arguments.dry_run else arguments.target
    if arguments.output is None:
        return repair(arguments.source, target, options)
    read = files_among(arguments.profile, arguments.label_map)
    with begin_output(arguments.output, read) as output:
        report = JsonReport(output.write)

        def close(outcome: Outcome) -> None:
            report.end(outcome)
            output.complete()  # where a full disk shows

        return repair(arguments.source, target, options, report.add, close)


def _options(arguments: argparse.Namespace) -> Options:
    if arguments.target is None and not arguments.dry_run:
        raise TfodError("name the folder of the result behind SOURCE, or pass --dry-run")
    skip = frozenset(arguments.skip or ())
    if kept := sorted(INEVITABLE & skip):
        raise TfodError(f"--skip {kept[0]}: what cannot be read cannot be copied")
    return Options(
        profile=named_profile(arguments.profile),
        receiver=arguments.receiver,
        label_map=arguments.label_map,
        only=None if arguments.only is None else frozenset(arguments.only),
        skip=skip,
        max_record_bytes=limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes),
        overwrite=arguments.overwrite,
        report=arguments.output,
    )
