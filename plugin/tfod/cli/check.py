"""The command ``tfod check``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfod.checker.check import Options, check
from tfod.checker.configuration import LEVELS
from tfod.checker.finding import plural
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import ANY, RECEIVERS
from tfod.checker.report import Report
from tfod.cli.arguments import (
    RUNNER,
    Parser,
    add_label_map,
    add_output,
    not_empty,
    read_limit,
    rule_names,
    whole_number,
)
from tfod.cli.printing import (
    begin_output,
    existing_files,
    list_source_files,
    print_note,
    print_text,
)
from tfod.errors import TfodError
from tfod.functions import open_check
from tfod.sources.resolved import ResolvedSources
from tfod.tfrecord.progress import PROGRESS
from tfod.tfrecord.storage.archive import ZipLimits

if TYPE_CHECKING:
    from tfod.beam import Runner
    from tfod.checker.references.cvat_task import Task

FORMATS = ("text", "json", "html", "junit", "github")
_FILES = ("profile", "cvat_labels", "cvat_xml", "pipeline_config", "baseline")


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``check``."""
    parser.description = (
        "Check shards in files, folders, zips, globs, URLs or standard input (-). Exit status: "
        "0 if they are valid, 1 if not, 2 if the check could not run."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "files or folders to check (default: see --pipeline-config)"
    add("sources", metavar="SOURCE", help=text, type=not_empty, nargs="*")

    add = parser.add_argument_group("expectations").add_argument
    text = f"program that will read the shards: {', '.join(RECEIVERS)}"
    add("--for", metavar="NAME", help=text, choices=tuple(RECEIVERS), dest="receiver")
    text = f"expected features of records: {', '.join(READY)}, or a file"
    add("--profile", metavar="NAME|FILE", help=text)
    add_label_map(add)
    for name, text in (
        ("--select", "check only these rules or families (comma-separated)"),
        ("--ignore", "skip these; a code takes precedence over its family"),
    ):
        add(name, metavar="CODES", help=text, type=rule_names(name), action="extend", default=[])
    text = f"level of a rule or family: {', '.join(LEVELS)}"
    add("--severity", metavar="CODE=LEVEL", help=text, type=_severity, action="append", default=[])
    text = "level that makes shards invalid: error or warning"
    add("--fail-on", metavar="LEVEL", help=text, choices=LEVELS[:2])
    text = "use this tfod.toml, not the nearest one in the parent folders"
    add("--config", metavar="FILE", help=text, type=not_empty)

    add = parser.add_argument_group("references to compare the shards with").add_argument
    text = "a task, job or project on the server CVAT_HOST"
    add("--cvat", nargs=2, metavar=("KIND", "ID"), help=text)
    add("--cvat-labels", metavar="FILE", help="labels of the CVAT task, as JSON")
    add("--cvat-xml", metavar="FILE", help="annotations.xml of the CVAT task")
    add("--images", metavar="DIR", help="folder with the original images")
    add("--pipeline-config", metavar="FILE", help="training configuration of the OD API")

    add = parser.add_argument_group("processing").add_argument
    text = "images of each shard (default: all up to 200 MB)"
    add("--decode", metavar="all|none|N", help=text, default="auto")
    text = "number of processes (default: all cores)"
    add("--jobs", metavar="N", help=text, type=whole_number(1))
    add(RUNNER, metavar="NAME", help="Apache Beam runner; its options follow after --")

    add = parser.add_argument_group("report").add_argument
    add_output(add, formats=FORMATS)
    text = "maximum number of findings to list (default: 1000)"
    add("--max-findings", metavar="N", help=text, type=whole_number(1), default=1000)
    text = "print only findings, and nothing for valid shards"
    add("-q", "--quiet", action="store_true", help=text)
    text = "omit findings that are in this earlier JSON report"
    add("--baseline", metavar="FILE", help=text, type=not_empty)


def _severity(text: str) -> tuple[str, str]:
    code, equals, level = (part.strip() for part in text.partition("="))
    if not equals:
        raise TfodError(f"--severity {text}: expected CODE={', '.join(LEVELS)}")
    return code, level


def _run(arguments: argparse.Namespace) -> int:
    runner = None if arguments.runner is None else _make_runner(arguments)
    task = _fetch_task(arguments) if arguments.cvat else None
    arguments.jobs = arguments.jobs or os.cpu_count() or 1
    limits = ZipLimits()
    limits = ZipLimits(
        total_bytes=read_limit("TFOD_MAX_ARCHIVE_BYTES", limits.total_bytes),
        entries=read_limit("TFOD_MAX_ARCHIVE_ENTRIES", limits.entries),
    )
    max_record_bytes = read_limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes)
    more = {"runner": runner, "task": task, "archive_limits": limits}
    with open_check(arguments, max_record_bytes=max_record_bytes, **more) as opened:
        options, configuration, sources, all_sources, excluded = opened
        if excluded and not arguments.quiet:
            reason = f"{configuration.file} excludes {'it' if len(excluded) == 1 else 'them'}"
            print_note(f"{plural(len(excluded), 'file')} not checked: {reason}")
        inputs = [*existing_files(*(getattr(arguments, name) for name in _FILES)), arguments.images]
        inputs += existing_files(configuration.file, configuration.profile, options.label_map)
        inputs += list_source_files(all_sources)
        with begin_output(arguments.output, inputs) as output:
            PROGRESS.total_bytes = sum(file.size or 0 for file in sources.files)
            report = check(sources, options)
            if arguments.format == "github" and arguments.output is not None:
                # GitHub reads the screen only; later steps read the file.
                print_text(_render(report, options, arguments, sources))
                arguments.format = "json"
            output.write(_render(report, options, arguments, sources))
    return 0 if report.valid else 1


def _make_runner(arguments: argparse.Namespace) -> Runner:
    name, jobs = arguments.runner, arguments.jobs
    if jobs is not None:
        raise TfodError(
            f"--jobs and {RUNNER} exclude each other; write: {RUNNER} {name} … "
            f"-- --direct_running_mode multi_processing --direct_num_workers {jobs}"
        )
    if not hasattr(os, "killpg"):
        raise TfodError(f"{RUNNER} needs Linux or macOS; omit it")
    from tfod.beam import Runner

    return Runner(name, tuple(arguments.runner_arguments))


def _fetch_task(arguments: argparse.Namespace) -> Task:
    if arguments.cvat_labels or arguments.cvat_xml or arguments.images:
        raise TfodError("--cvat excludes --cvat-xml, --cvat-labels and --images; omit these")
    from tfod.cvat.client.connection import Target, connect
    from tfod.cvat.client.live_task import fetch_task

    target = Target.parse(*arguments.cvat)
    with connect() as server:
        return fetch_task(server, target).task


def _render(
    report: Report, options: Options, arguments: argparse.Namespace, sources: ResolvedSources
) -> str:
    if arguments.format == "text":
        from tfod.checker.reporters.text import render_text

        # https://no-color.org, https://force-color.org
        color, stdout = bool(os.environ.get("FORCE_COLOR")), sys.stdout
        color |= stdout is not None and stdout.isatty() and not os.environ.get("NO_COLOR")
        return render_text(
            report,
            color=color and arguments.output is None,
            receivers=options.receiver is ANY,
            quiet=arguments.quiet,
        )
    module = importlib.import_module(f"tfod.checker.reporters.{arguments.format}")
    renderer: Callable[..., str] = getattr(module, f"render_{arguments.format}")
    if arguments.format == "html":
        from tfod.checker.reporters.samples import choose_samples

        return renderer(report, choose_samples(report, sources.shards, options.profile))
    return renderer(report)
