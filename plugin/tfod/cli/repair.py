"""``tfod repair``: its options, and what it says of what it has done."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from tfod.checker.finding import Finding, Place, Severity, plural, shortened
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.text import group_lines
from tfod.checker.reporters.wording import group_findings, place_of
from tfod.checker.rules.registry import all_rules
from tfod.cli.arguments import (
    Parser,
    add_label_map,
    add_output,
    add_profile,
    add_receiver,
    limit,
    named_profile,
    not_empty,
    rule_names,
    to_write,
)
from tfod.cli.printing import begin_output, files_among, print_text
from tfod.errors import TfodError
from tfod.shards.fixes import INEVITABLE
from tfod.shards.repair import Options, Outcome, repair

EXIT_REPAIRED = 0
EXIT_LEFT = 1
REPORT_VERSION = 2


def add_arguments(parser: Parser) -> None:
    """What ``repair`` takes."""
    parser.description = (
        "Write shards anew without the defects that `tfod check` finds and that can be "
        "fixed without guessing; the source is never touched. Exit status 0: nothing is left; "
        "1: something is left that only a person can decide; 2: the repair could not run."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a shard, a folder, a glob or a zip", type=not_empty)
    add("target", metavar="DEST", help="the folder of the result", type=to_write, nargs="?")
    add("--dry-run", action="store_true", help="say what would be done, and write nothing")
    add_output(add, "write every change here, as JSON")
    add_profile(add)
    add_receiver(add)
    add_label_map(add)
    for name, text in (
        ("--only", "rules or families to fix, as BOX,LAB008"),
        ("--skip", "those not to fix"),
    ):
        add(name, metavar="CODES", help=text, type=rule_names(name), action="extend")
    add("--overwrite", action="store_true", help="replace shards of the same subsets in DEST")


def _run(arguments: argparse.Namespace) -> int:
    outcome = _repair(arguments, _options(arguments))
    print_text("\n".join(_lines(outcome)) + "\n")
    return EXIT_REPAIRED if outcome.remaining.valid else EXIT_LEFT


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


def _repair(arguments: argparse.Namespace, options: Options) -> Outcome:
    """Repair, and write each change as it is made; all is there before the result is published."""
    target = None if arguments.dry_run else arguments.target
    if arguments.output is None:
        return repair(arguments.source, target, options)
    read = files_among(arguments.profile, arguments.label_map)
    with begin_output(arguments.output, read) as output:
        separator = f'{{"repair_report_version": {REPORT_VERSION},\n"changes": [\n'

        def add(change: Finding) -> None:
            nonlocal separator
            output.write(separator + json.dumps(_change(change)))
            separator = ",\n"

        def close(outcome: Outcome) -> None:
            head = "" if outcome.by_code else separator[:-1]
            output.write(f"{head}\n],\n{json.dumps(_rest(outcome), indent=1)[2:]}\n")
            output.complete()  # where a full disk shows

        return repair(arguments.source, target, options, add, close)


def _change(change: Finding) -> dict[str, object]:
    assert isinstance(change.value, dict)
    place = {name: getattr(change, name) for name in Place._fields}
    what = {"code": change.code, "what": shortened(change.message)}
    return {**what, **place, "feature": change.feature, **change.value}


def _rest(outcome: Outcome) -> dict[str, object]:
    """The report without its changes."""
    return {
        "source": outcome.source,
        "output": outcome.output,
        "counts": {
            "shards": outcome.shards,
            "records_read": outcome.records,
            "records_written": outcome.written,
            "records_changed": outcome.changed,
            "records_dropped": outcome.dropped,
            "by_code": dict(sorted(outcome.by_code.items())),
        },
        "label_maps": outcome.label_maps,
        "remaining": outcome.remaining.to_json(),
    }


def _lines(outcome: Outcome) -> Iterator[str]:
    """What was changed, by rule, and what is left to decide."""
    if total := outcome.by_code.total():
        verb = "would be made" if outcome.output is None else "made"
        records = plural(outcome.changed, "record")
        yield f"{plural(total, 'change')} {verb}: {records} changed, {outcome.dropped:,} dropped"
    else:
        yield "Nothing to repair."
    where = f"written to {outcome.output}" if outcome.output else "left"
    amounts = f"{plural(outcome.shards, 'shard')}, {plural(outcome.records, 'record')} read"
    yield f"{amounts}, {outcome.written:,} {where}"
    for code, rule in all_rules().items():
        if count := outcome.by_code[code]:
            yield f"\n{code} fixed: {rule.title}" + (f" ({count:,})" if count > 1 else "")
            examples = outcome.examples[code]
            for one in examples:
                place = one._replace(feature=None)  # which the message names
                yield f"  {place_of(place)}:\n    {visible(one.message)}"
            if count > len(examples):
                yield f"  and {count - len(examples):,} more"
    if outcome.remaining.valid:
        yield "\nNothing is left to decide."
        return
    yield "\nLeft for you to decide, by the record numbers of the result:"
    for group in group_findings(outcome.remaining):
        if group.severity is not Severity.INFO:
            yield from group_lines(group, color=False)
