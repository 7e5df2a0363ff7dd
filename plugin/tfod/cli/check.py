"""The command ``tfod check``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from tfod.checker.analysis.encoded_images import MAX_DECODED, parse_max_decoded
from tfod.checker.check import Options, check
from tfod.checker.configuration import (
    LEVELS,
    Configuration,
    find_configuration,
    load_configuration,
    make_options,
)
from tfod.checker.finding import plural
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import ANY, RECEIVERS
from tfod.checker.report import Report
from tfod.checker.rules.registry import require_rule_names
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
from tfod.cli.printing import begin_output, existing_files, list_source_files, print_note
from tfod.errors import TfodError
from tfod.sources.resolved import ResolvedSources
from tfod.sources.resolver import resolve
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
        add(name, metavar="CODES", help=text, type=rule_names(name), action="extend")
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
    text = f"images to decode per shard (default: {MAX_DECODED})"
    add("--decode", metavar="all|none|N", help=text, type=_max_decoded, default=MAX_DECODED)
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


def _max_decoded(text: str) -> int | None:
    try:
        return parse_max_decoded(text.lower())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _severity(text: str) -> tuple[str, str]:
    code, _, level = (part.strip() for part in text.partition("="))
    require_rule_names([code.upper()], f"--severity {text}")
    if level.lower() not in LEVELS:
        raise TfodError(f"--severity {text}: expected CODE={', '.join(LEVELS)}")
    return code.upper(), level.lower()


def _run(arguments: argparse.Namespace) -> int:
    path = arguments.config
    configuration = load_configuration(path) if path else find_configuration()
    options = _make_options(arguments, configuration)
    with _resolve(arguments.sources, options) as all_sources:
        sources = all_sources
        if configuration.exclude:
            sources = _exclude(all_sources, configuration, arguments.quiet)
        inputs = [*existing_files(*(getattr(arguments, name) for name in _FILES)), arguments.images]
        inputs += existing_files(configuration.file, configuration.profile, options.label_map)
        inputs += list_source_files(all_sources)
        with begin_output(arguments.output, inputs) as output:
            PROGRESS.total_bytes = sum(file.size or 0 for file in sources.files)
            report = check(sources, options)
            output.write(_render(report, options, arguments, sources))
    return 0 if report.valid else 1


def _resolve(sources: list[str], options: Options) -> AbstractContextManager[ResolvedSources]:
    """Resolve the sources, by default those in the pipeline configuration."""
    if not sources and options.training_config is not None:
        sources = options.training_config.sources()
        if not sources:
            return nullcontext(ResolvedSources())  # the report says that the config names no shards
    if not sources:
        raise TfodError("nothing to check; pass shards, a folder or a zip")
    return resolve(sources, options.label_map, options.archive_limits)


def _exclude(sources: ResolvedSources, config: Configuration, quiet: bool) -> ResolvedSources:
    remaining, excluded = sources.exclude(config.excludes)
    if excluded and not remaining.datasets:
        raise TfodError(f"{config.file} excludes all files; name others, or change its exclude")
    if excluded and not quiet:
        reason = f"{config.file} excludes {'it' if len(excluded) == 1 else 'them'}"
        print_note(f"{plural(len(excluded), 'file')} not checked: {reason}")
    return remaining


def _make_options(arguments: argparse.Namespace, configuration: Configuration) -> Options:
    command_line = Configuration(
        receiver=arguments.receiver,
        profile=arguments.profile,
        label_map=arguments.label_map,
        select=arguments.select,
        ignore=arguments.ignore or (),
        severity=dict(arguments.severity),
        fail_on=arguments.fail_on,
    )
    references = (arguments.cvat, arguments.cvat_labels, arguments.cvat_xml, arguments.images)
    training_config = baseline = None
    if arguments.pipeline_config is not None:
        from tfod.checker.references.pipeline_config import TrainingConfig

        training_config = TrainingConfig(arguments.pipeline_config)
    if arguments.baseline:
        from tfod.checker.baseline import read_baseline

        baseline = read_baseline(arguments.baseline)
    limits = ZipLimits()
    return make_options(
        command_line,
        configuration,
        task=_load_task(*references) if any(references) else None,
        training_config=training_config,
        decode=arguments.decode,
        max_findings=arguments.max_findings,
        max_record_bytes=read_limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes),
        jobs=arguments.jobs or os.cpu_count() or 1,
        runner=None if arguments.runner is None else _make_runner(arguments),
        archive_limits=ZipLimits(
            total_bytes=read_limit("TFOD_MAX_ARCHIVE_BYTES", limits.total_bytes),
            entries=read_limit("TFOD_MAX_ARCHIVE_ENTRIES", limits.entries),
        ),
        baseline=baseline,
    )


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


def _load_task(kind_and_id: list[str] | None, *files: str | None) -> Task:
    if kind_and_id is None:
        from tfod.checker.references.cvat_task import load_task

        return load_task(*files)
    if any(files):
        raise TfodError("--cvat excludes --cvat-xml, --cvat-labels and --images; omit these")
    from tfod.cvat.client.connection import Target, connect
    from tfod.cvat.client.live_task import fetch_task

    target = Target.parse(*kind_and_id)
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
