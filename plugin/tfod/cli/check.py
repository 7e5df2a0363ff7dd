"""``tfod check``: its options, the progress bar, and what is printed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from tfod.checker.analysis.encoded_images import MOST_DECODED, read_most_decoded
from tfod.checker.check import Options, check
from tfod.checker.configuration import (
    LEVELS,
    Configuration,
    find_configuration,
    load_configuration,
    options_of,
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
    limit,
    not_empty,
    rule_names,
    whole_number,
)
from tfod.cli.printing import begin_output, files_among, files_of, print_note
from tfod.errors import TfodError
from tfod.sources.resolved import ResolvedSources
from tfod.sources.resolver import resolve
from tfod.tfrecord.storage.archive import ZipLimits

if TYPE_CHECKING:
    from tfod.beam import Runner
    from tfod.checker.analysis.examine import Progress
    from tfod.checker.references.cvat_task import Task

FORMATS = ("text", "json", "html", "junit", "github")
_FILES = ("profile", "cvat_labels", "cvat_xml", "pipeline_config", "baseline")


def add_arguments(parser: Parser) -> None:
    """What ``check`` takes."""
    parser.description = (
        "Check shards, folders, zips, globs, URLs or standard input (-). Exit status: "
        "0 valid, 1 not, 2 the check could not run."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "by default what --pipeline-config names"
    add("sources", metavar="SOURCE", help=text, type=not_empty, nargs="*")

    add = parser.add_argument_group("what is expected").add_argument
    text = f"who reads the shards next: {', '.join(RECEIVERS)}"
    add("--for", metavar="NAME", help=text, choices=tuple(RECEIVERS), dest="receiver")
    text = f"what a record has: {', '.join(READY)}, or a file"
    add("--profile", metavar="NAME|FILE", help=text)
    add_label_map(add)
    for name, text in (
        ("--select", "only these rules: codes and families, with commas"),
        ("--ignore", "not these; a code is stronger than its family"),
    ):
        add(name, metavar="CODES", help=text, type=rule_names(name), action="extend")
    text = f"of a rule or a family: {', '.join(LEVELS)}"
    add("--severity", metavar="CODE=LEVEL", help=text, type=_severity, action="append", default=[])
    text = "error or warning: what makes shards invalid"
    add("--fail-on", metavar="LEVEL", help=text, choices=LEVELS[:2])
    text = "a tfod.toml, in place of the nearest one upward"
    add("--config", metavar="FILE", help=text, type=not_empty)

    add = parser.add_argument_group("what the shards are held against").add_argument
    text = "a task, job, project of the server CVAT_HOST"
    add("--cvat", nargs=2, metavar=("KIND", "ID"), help=text)
    add("--cvat-labels", metavar="FILE", help="labels of the CVAT task, as JSON")
    add("--cvat-xml", metavar="FILE", help="annotations.xml of the CVAT task")
    add("--images", metavar="DIR", help="the images that the shards are about")
    add("--pipeline-config", metavar="FILE", help="the OD API's configuration of a training")

    add = parser.add_argument_group("how the shards are read").add_argument
    text = f"images to decode of each shard (default: {MOST_DECODED})"
    add("--decode", metavar="all|none|N", help=text, type=_most_decoded, default=MOST_DECODED)
    add("--jobs", metavar="N", help="processes (default: all cores)", type=whole_number(1))
    add(RUNNER, metavar="NAME", help="an Apache Beam runner; -- and its own options last")

    add = parser.add_argument_group("what comes out").add_argument
    add_output(add, formats=FORMATS)
    text = "how many are listed (default: 1000)"
    add("--max-findings", metavar="N", help=text, type=whole_number(1), default=1000)
    text = "the findings alone, and of valid shards nothing"
    add("-q", "--quiet", action="store_true", help=text)
    text = "report only what is not in this JSON report"
    add("--baseline", metavar="FILE", help=text, type=not_empty)


def _most_decoded(text: str) -> int | None:
    try:
        return read_most_decoded(text)
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
    options = _options(arguments, configuration)
    with _found(arguments.sources, options) as everything:
        found = everything
        if configuration.exclude:
            found = _without_excluded(everything, configuration, arguments.quiet)
        read = [*files_among(*(getattr(arguments, name) for name in _FILES)), arguments.images]
        read += files_among(configuration.file, configuration.profile, options.label_map)
        read += files_of(everything)
        with begin_output(arguments.output, read) as out:
            has_bar = options.runner is None and sys.stderr.isatty() and not arguments.quiet
            with _progress_bar(found) if has_bar else nullcontext() as progress:
                report = check(found, options, progress or (lambda *_: None))
            out.write(_rendered(report, options, arguments, found))
    return 0 if report.valid else 1


def _found(sources: list[str], options: Options) -> AbstractContextManager[ResolvedSources]:
    """What is to be checked: without sources the shards that a trainer's configuration names."""
    if not sources and options.training_config is not None:
        sources = options.training_config.sources()
        if not sources:
            return nullcontext(ResolvedSources())  # which is what there is to say
    if not sources:
        raise TfodError("name what is to be checked: shards, a folder or a zip")
    return resolve(sources, options.label_map, options.archive_limits)


def _without_excluded(
    everything: ResolvedSources, configuration: Configuration, quiet: bool
) -> ResolvedSources:
    found, excluded = everything.without(configuration.excludes)
    if excluded and not found.datasets:
        raise TfodError(f"{configuration.file} excludes all that is to be checked")
    if excluded and not quiet:
        what = f"{configuration.file} excludes {'it' if len(excluded) == 1 else 'them'}"
        print_note(f"{plural(len(excluded), 'file')} not checked: {what}")
    return found


def _options(arguments: argparse.Namespace, configuration: Configuration) -> Options:
    typed = Configuration(
        receiver=arguments.receiver,
        profile=arguments.profile,
        label_map=arguments.label_map,
        select=arguments.select,
        ignore=arguments.ignore or (),
        severity=dict(arguments.severity),
        fail_on=arguments.fail_on,
    )
    of_cvat = (arguments.cvat, arguments.cvat_labels, arguments.cvat_xml, arguments.images)
    training_config = baseline = None
    if arguments.pipeline_config is not None:
        from tfod.checker.references.pipeline_config import TrainingConfig

        training_config = TrainingConfig(arguments.pipeline_config)
    if arguments.baseline:
        from tfod.checker.baseline import read_baseline

        baseline = read_baseline(arguments.baseline)
    limits = ZipLimits()
    return options_of(
        typed,
        configuration,
        task=_task(*of_cvat) if any(of_cvat) else None,
        training_config=training_config,
        decode=arguments.decode,
        max_findings=arguments.max_findings,
        max_record_bytes=limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes),
        jobs=arguments.jobs or os.cpu_count() or 1,
        runner=None if arguments.runner is None else _runner(arguments),
        archive_limits=ZipLimits(
            total_bytes=limit("TFOD_MAX_ARCHIVE_BYTES", limits.total_bytes),
            entries=limit("TFOD_MAX_ARCHIVE_ENTRIES", limits.entries),
        ),
        baseline=baseline,
    )


def _runner(arguments: argparse.Namespace) -> Runner:
    """What is to do the work in place of this process."""
    name, jobs = arguments.runner, arguments.jobs
    if jobs is not None:
        raise TfodError(
            f"--jobs and {RUNNER} exclude each other; write: {RUNNER} {name} … "
            f"-- --direct_running_mode multi_processing --direct_num_workers {jobs}"
        )
    if not hasattr(os, "killpg"):
        raise TfodError(f"{RUNNER} needs Linux or macOS; leave it out")
    from tfod.beam import Runner

    return Runner(name, tuple(arguments.runner_arguments))


def _task(kind_and_id: list[str] | None, *described: str | None) -> Task:
    """What is known of the CVAT task: live from its server, or from files."""
    if kind_and_id is None:
        from tfod.checker.references.cvat_task import load_task

        return load_task(*described)
    if any(described):
        raise TfodError("--cvat stands alone: leave out --cvat-xml, --cvat-labels and --images")
    from tfod.cvat.client.connection import Target, connect
    from tfod.cvat.client.live_task import fetch_task

    target = Target.typed(*kind_and_id)
    with connect() as server:
        return fetch_task(server, target).task


def _rendered(
    report: Report, options: Options, arguments: argparse.Namespace, found: ResolvedSources
) -> str:
    if arguments.format == "text":
        from tfod.checker.reporters.text import render_text

        # https://no-color.org, https://force-color.org
        color, out = bool(os.environ.get("FORCE_COLOR")), sys.stdout
        color |= out is not None and out.isatty() and not os.environ.get("NO_COLOR")
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

        return renderer(report, choose_samples(report, found.shards, options.profile))
    return renderer(report)


@contextmanager
def _progress_bar(found: ResolvedSources) -> Iterator[Progress | None]:
    try:
        from tqdm import tqdm
    except ImportError:
        yield None
        return
    total = sum(one.size or 0 for one in found.files) or None
    how = {"unit": "B", "unit_scale": True, "leave": False, "dynamic_ncols": True}
    with tqdm(total=total, desc="checking", file=sys.stderr, **how) as bar:
        yield lambda read, _: bar.update(read)
