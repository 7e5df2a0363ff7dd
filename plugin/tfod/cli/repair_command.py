"""``tfod repair``: its options."""

from __future__ import annotations

import argparse

from tfod.check.rules.registry import require_rule_names
from tfod.check.rules.repairs import INEVITABLE
from tfod.cli.command_line import (
    Commands,
    add_label_map,
    add_receiver,
    codes,
    file_name,
    limit,
    named_profile,
    print_text,
)
from tfod.cli.outputs import begin_output, files_among
from tfod.errors import TfodError
from tfod.shards.repair import Options, Outcome, repair
from tfod.shards.repair.report import JsonReport, render_text

EXIT_REPAIRED = 0
EXIT_LEFT = 1


def add_parser(commands: Commands) -> None:
    """Add ``repair`` to the commands."""
    parser = commands.add_parser(
        "repair",
        help="fix what can be fixed without guessing, into another folder",
        description="Write shards anew without the defects that `tfod check` finds and that can be "
        "fixed without guessing; the source is never touched. Exit status 0: nothing is left; "
        "1: something is left that only a person can decide; 2: the repair could not run.",
    )
    add = parser.add_argument
    add("source", type=file_name, metavar="SOURCE", help="a shard, a folder, a glob or a zip")
    add("target", metavar="DEST", nargs="?", help="the folder of the result")
    add("--dry-run", action="store_true", help="say what would be done, and write nothing")
    text = "write every change here, as JSON"
    add("-o", "--output", dest="report", metavar="FILE", help=text)
    add("--profile", metavar="NAME|FILE", help="as for tfod check; the best fit otherwise")
    add_receiver(parser)
    add_label_map(parser)
    text = "rules or families to fix, as BOX,LAB008"
    add("--only", type=codes, metavar="CODES", help=text)
    text = "those not to fix"
    add("--skip", type=codes, default=(), metavar="CODES", help=text)
    add("--overwrite", action="store_true", help="replace shards of the same subsets in DEST")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    outcome = _repair(arguments, _options(arguments))
    print_text(render_text(outcome))
    return EXIT_REPAIRED if outcome.remaining.valid else EXIT_LEFT


def _repair(arguments: argparse.Namespace, options: Options) -> Outcome:
    """Repair; the report is complete before the result is published."""
    target = None if arguments.dry_run else arguments.target
    if arguments.report is None:
        return repair(arguments.source, target, options)
    read = files_among(arguments.profile, arguments.label_map)
    with begin_output(arguments.report, read) as output:
        report = JsonReport(output.write)

        def close(outcome: Outcome) -> None:
            report.end(outcome)
            output.complete()  # where a full disk shows

        return repair(arguments.source, target, options, report.add, close)


def _options(arguments: argparse.Namespace) -> Options:
    if arguments.target is None and not arguments.dry_run:
        raise TfodError("name the folder of the result behind SOURCE, or pass --dry-run")
    require_rule_names(arguments.only or (), "--only")
    require_rule_names(arguments.skip, "--skip")
    kept = sorted(INEVITABLE & set(arguments.skip))
    if kept:
        raise TfodError(f"--skip {kept[0]}: what cannot be read cannot be copied")
    return Options(
        profile=named_profile(arguments.profile),
        receiver=arguments.receiver,
        label_map=arguments.label_map,
        only=None if arguments.only is None else frozenset(arguments.only),
        skip=frozenset(arguments.skip),
        max_record_bytes=limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes),
        overwrite=arguments.overwrite,
        report=arguments.report,
    )
