"""The command ``tfod repair``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from tfod.checker.finding import Finding, Location, Severity, plural, shorten
from tfod.checker.receivers import RECEIVERS
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.groups import group_findings
from tfod.checker.reporters.text import group_lines
from tfod.checker.reporters.wording import format_location
from tfod.checker.rules.registry import all_rules
from tfod.cli.arguments import (
    Parser,
    add_label_map,
    add_output,
    add_profile,
    add_receiver,
    load_named_profile,
    not_empty,
    output_path,
    read_limit,
    rule_names,
)
from tfod.cli.printing import begin_output, existing_files, print_text
from tfod.errors import TfodError
from tfod.formats.options import OddBoxes
from tfod.shards.fixes import ALWAYS_FIXED
from tfod.shards.repair import Options, Outcome, repair

EXIT_REPAIRED = 0
EXIT_REMAINING = 1
REPORT_VERSION = 2


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``repair``."""
    parser.description = (
        "Copy shards and fix the defects that `tfod check` finds and that can be fixed without "
        "guessing. The source is never changed. Exit status: 0 if no problem remains, 1 if some "
        "problems need your decision (nothing is written if no error could be fixed), 2 if the "
        "repair could not run."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a shard, folder, glob or zip", type=not_empty)
    add("target", metavar="DEST", help="the folder to write", type=output_path, nargs="?")
    add("--dry-run", action="store_true", help="show what would be done, but write nothing")
    add_output(add, "write a list of all changes to this file, as JSON")
    add_profile(add)
    add_receiver(add, RECEIVERS)  # the same as of `check`, whose next steps name them
    add_label_map(add)
    for name, text in (
        ("--select", "rules or families to fix, such as BOX,LAB008"),
        ("--ignore", "rules or families not to fix"),
    ):
        add(name, metavar="CODES", help=text, type=rule_names(name), action="extend")
    text = "clip boxes that reach outside the image; or drop the objects of these and of inverted, "
    text += "flat and non-finite boxes (default: leave them)"
    add("--odd-boxes", help=text, choices=("clip", "drop"))
    add("--overwrite", action="store_true", help="replace shards of the same subsets in DEST")


def _run(arguments: argparse.Namespace) -> int:
    outcome = _repair(arguments, _make_options(arguments))
    print_text("\n".join(_format_outcome(outcome)) + "\n")
    return EXIT_REPAIRED if outcome.remaining.valid else EXIT_REMAINING


def _make_options(arguments: argparse.Namespace) -> Options:
    if arguments.target is None and not arguments.dry_run:
        raise TfodError("name the folder to write after SOURCE, or pass --dry-run")
    ignore = frozenset(arguments.ignore or ())
    if always_fixed := sorted(ALWAYS_FIXED & ignore):
        raise TfodError(
            f"--ignore {always_fixed[0]}: unreadable data cannot be kept; omit this code"
        )
    return Options(
        profile=load_named_profile(arguments.profile),
        receiver=arguments.receiver,
        label_map=arguments.label_map,
        select=None if arguments.select is None else frozenset(arguments.select),
        ignore=ignore,
        odd_boxes=arguments.odd_boxes and OddBoxes(arguments.odd_boxes),
        max_record_bytes=read_limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes),
        overwrite=arguments.overwrite,
        report=arguments.output,
    )


def _repair(arguments: argparse.Namespace, options: Options) -> Outcome:
    """Repair, and write all changes to the output before the repaired shards appear."""
    target = None if arguments.dry_run else arguments.target
    if arguments.output is None:
        return repair(arguments.source, target, options)
    inputs = existing_files(arguments.profile, arguments.label_map)
    with begin_output(arguments.output, inputs) as output:
        separator = f'{{"repair_report_version": {REPORT_VERSION},\n"changes": [\n'

        def add(change: Finding) -> None:
            nonlocal separator
            output.write(separator + json.dumps(_change_to_json(change)))
            separator = ",\n"

        def close(outcome: Outcome) -> None:
            head = "" if outcome.by_code else separator[:-1]
            summary = json.dumps(_summary_to_json(outcome), indent=1)[2:]  # without the brace
            output.write(f"{head}\n],\n{summary}\n")
            output.complete()  # raises an error if the disk is full

        return repair(arguments.source, target, options, add, close)


def _change_to_json(change: Finding) -> dict[str, object]:
    assert isinstance(change.value, dict)
    location = {name: getattr(change, name) for name in Location._fields}
    fix = {"code": change.code, "what": shorten(change.message)}
    return {**fix, **location, "feature": change.feature, **change.value}


def _summary_to_json(outcome: Outcome) -> dict[str, object]:
    return {
        "source": outcome.source,
        "output": None if outcome.is_useless else outcome.output,
        "counts": {
            "shards": outcome.shards,
            "records_read": outcome.records,
            "records_written": 0 if outcome.is_useless else outcome.written,
            "records_changed": outcome.changed,
            "records_dropped": outcome.dropped,
            "by_code": dict(sorted(outcome.by_code.items())),
        },
        "label_maps": outcome.label_maps,
        "remaining": outcome.remaining.to_json(),
    }


def _format_outcome(outcome: Outcome) -> Iterator[str]:
    if total := outcome.by_code.total():
        verb = "would be made" if outcome.output is None else "made"
        records = plural(outcome.changed, "record")
        yield f"{plural(total, 'change')} {verb}: {records} changed, {outcome.dropped:,} dropped"
    else:
        yield "Nothing can be repaired." if outcome.is_useless else "Nothing to repair."
    verb = f"written to {outcome.output}" if outcome.output else "would be written"
    counts = f"{plural(outcome.shards, 'shard')}, {plural(outcome.records, 'record')} read"
    amount = "nothing" if outcome.is_useless else f"{outcome.written:,}"
    yield f"{counts}, {amount} {verb}"
    for code, rule in all_rules().items():
        if count := outcome.by_code[code]:
            yield f"\n{code} fixed: {rule.title}" + (f" ({count:,})" if count > 1 else "")
            examples = outcome.examples[code]
            for example in examples:
                # The message names the feature.
                location = format_location(example._replace(feature=None))
                yield f"  {location}:\n    {visible(example.message)}"
            if count > len(examples):
                yield f"  and {count - len(examples):,} more"
    if outcome.remaining.valid:
        yield "\nNothing is left to decide."
        return
    numbers = "source" if outcome.is_useless else "result"
    yield f"\nLeft for you to decide (record numbers of the {numbers}):"
    for group in group_findings(outcome.remaining):
        if group.severity is not Severity.INFO:
            yield from group_lines(group, color=False)
