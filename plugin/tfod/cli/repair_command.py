"""``tfod repair``: its options, its report file, and what it prints."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfod.check.findings.finding import Place, Severity, plural
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.groups import group_findings
from tfod.check.reporters.text import group_lines
from tfod.check.rules.registry import all_rules, require_rule_names
from tfod.check.rules.repairs import INEVITABLE
from tfod.cli.command_line import (
    Commands,
    add_label_map,
    add_receiver,
    begin_file,
    limit,
    named_profile,
    print_text,
)
from tfod.errors import TfodError
from tfod.shards.repair import Options, Outcome, repair
from tfod.shards.repair.record import Change

EXIT_REPAIRED = 0
EXIT_LEFT = 1
_REPORT_VERSION = 2
_SHOWN = 3


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
    add("source", metavar="SOURCE", help="a shard, a folder, a glob or a zip")
    add("target", metavar="DEST", nargs="?", help="the folder of the result")
    add("--dry-run", action="store_true", help="say what would be done, and write nothing")
    text = "write every change here, as JSON"
    add("-o", "--output", dest="report", metavar="FILE", help=text)
    add("--profile", metavar="NAME|FILE", help="as for tfod check; the best fit otherwise")
    add_receiver(parser)
    add_label_map(parser)
    text = "rules or families to fix, as BOX,LAB008"
    add("--only", type=_codes, metavar="CODES", help=text)
    text = "those not to fix"
    add("--skip", type=_codes, default=frozenset(), metavar="CODES", help=text)
    add("--overwrite", action="store_true", help="replace files of DEST, and the report")
    parser.set_defaults(run=_run)


def _codes(text: str) -> frozenset[str]:
    return frozenset(code.strip().upper() for code in text.split(","))


def _run(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    output = None if arguments.dry_run else arguments.target
    with _report(arguments) as (write, close):
        outcome = repair(arguments.source, output, options, write, close)
    print_text("\n".join(_text(outcome)) + "\n")
    return EXIT_REPAIRED if outcome.remaining.valid else EXIT_LEFT


def _options(arguments: argparse.Namespace) -> Options:
    if arguments.target is None and not arguments.dry_run:
        raise TfodError("name the folder of the result behind SOURCE, or pass --dry-run")
    require_rule_names(arguments.only or (), "--only")
    require_rule_names(arguments.skip, "--skip")
    kept = sorted(INEVITABLE & arguments.skip)
    if kept:
        raise TfodError(f"--skip {kept[0]}: what cannot be read cannot be copied")
    return Options(
        profile=named_profile(arguments.profile),
        receiver=arguments.receiver,
        label_map=arguments.label_map,
        only=arguments.only,
        skip=arguments.skip,
        max_record_bytes=limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes),
        overwrite=arguments.overwrite,
        report=arguments.report,
    )


# The report


@contextmanager
def _report(
    arguments: argparse.Namespace,
) -> Iterator[tuple[Callable[[str], object] | None, Callable[[Outcome], object]]]:
    """The report file, which takes changes as they are made; whole or not at all."""
    if arguments.report is None:
        yield None, lambda _: None
        return
    with begin_file(arguments.report, overwrite=arguments.overwrite) as file:
        file.write(f'{{"repair_report_version": {_REPORT_VERSION},\n"changes": ['.encode())
        before = ["\n"]

        def write(line: str) -> None:
            file.write(f"{before[0]}{line}".encode())
            before[0] = ",\n"

        def close(outcome: Outcome) -> None:
            file.write(_rest_of_report(outcome))
            file.complete()  # where a full disk shows, before the result is published

        yield write, close


def _rest_of_report(outcome: Outcome) -> bytes:
    rest: dict[str, Any] = {
        "source": outcome.source,
        "output": outcome.output,
        "counts": {
            "shards": outcome.shards,
            "records_read": outcome.records,
            "records_written": outcome.written,
            "records_changed": outcome.changes.records_changed,
            "records_dropped": outcome.changes.records_dropped,
            "by_code": dict(sorted(outcome.changes.by_code.items())),
        },
        "label_maps": list(outcome.label_maps),
        "remaining": outcome.remaining.to_json(),
    }
    return b"\n],\n" + json.dumps(rest, ensure_ascii=True, indent=1)[2:].encode() + b"\n"


# What is printed


def _text(outcome: Outcome) -> Iterator[str]:
    changes = outcome.changes
    total = sum(changes.by_code.values())
    verb = "would be made" if outcome.output is None else "made"
    if not total:
        yield "Nothing to repair."
    else:
        yield (
            f"{plural(total, 'change')} {verb}: {plural(changes.records_changed, 'record')} "
            f"changed, {changes.records_dropped:,} dropped"
        )
    yield (
        f"{plural(outcome.shards, 'shard')}, {plural(outcome.records, 'record')} read, "
        f"{outcome.written:,} {'written to ' + outcome.output if outcome.output else 'left'}"
    )
    for code, rule in all_rules().items():
        if count := changes.by_code[code]:
            yield f"\n{code} fixed: {rule.title}" + (f" ({count:,})" if count > 1 else "")
            yield from _examples(changes.listed[code][:_SHOWN], count)
    if outcome.remaining.valid:
        yield "\nNothing is left to decide."
        return
    yield "\nLeft for you to decide, by the record numbers of the result:"
    for group in group_findings(outcome.remaining):
        if group.severity is not Severity.INFO:
            yield from group_lines(group, color=False)


def _examples(listed: list[tuple[Place, Change]], count: int) -> Iterator[str]:
    for place, change in listed:
        yield f"  {visible(place.where)}:"
        yield f"    {visible(change.what)}"
    if count > len(listed):
        yield f"  and {count - len(listed):,} more"
