"""``tfod check``: its options, the progress bar, and what is printed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from tfod.check.check import Options, check
from tfod.check.configuration import (
    LEVELS,
    Configuration,
    find_configuration,
    load_configuration,
    options_of,
)
from tfod.check.dataset import Found
from tfod.check.find import find
from tfod.check.findings.finding import plural
from tfod.check.findings.report import Report
from tfod.check.profiles.profile import READY
from tfod.check.receivers import ANY, RECEIVERS
from tfod.check.records.images import MOST_DECODED, read_most_decoded
from tfod.check.rules.registry import require_rule_names
from tfod.cli.arguments import (
    RUNNER,
    Arguments,
    Parser,
    file_name,
    limit,
    rule_names,
    whole_number,
)
from tfod.cli.output import begin_output, files_among, files_of, print_note
from tfod.errors import TfodError
from tfod.tfrecord.storage.archive import ZipLimits

if TYPE_CHECKING:
    from tfod.beam import Runner
    from tfod.check.findings.baseline import Baseline
    from tfod.check.records.examine import Progress
    from tfod.check.references.cvat_task import Task
    from tfod.check.references.pipeline import TrainingConfig

FORMATS = ("text", "json", "html", "junit", "github")
BASELINE = "tfod-baseline.json"
EXIT_VALID = 0
EXIT_FINDINGS = 1
_FILES = ("profile", "cvat_labels", "cvat_xml", "pipeline_config")


def add_arguments(parser: Parser) -> None:
    """What ``check`` takes."""
    parser.description = (
        "Check shards, folders, zips, globs, URLs or standard input (-). Exit status: "
        "0 valid, 1 not, 2 the check could not run."
    )
    parser.set_defaults(run=_run)
    text = "by default what --pipeline-config names"
    Arguments(parser).value("sources", "SOURCE", text, type=file_name, nargs="*")

    expected = Arguments(parser.add_argument_group("what is expected"))
    text = f"who reads the shards next: {', '.join(RECEIVERS)}"
    expected.value("--for", "NAME", text, choices=tuple(RECEIVERS), dest="receiver")
    text = f"what a record has: {', '.join(READY)}, or a file"
    expected.value("--profile", "NAME|FILE", text)
    expected.label_map()
    for name, text in (
        ("--select", "only these rules: codes and families, with commas"),
        ("--ignore", "not these; a code is stronger than its family"),
    ):
        expected.value(name, "CODES", text, type=rule_names(name), action="extend")
    text = f"of a rule or a family: {', '.join(LEVELS)}"
    expected.value("--severity", "CODE=LEVEL", text, type=_severity, action="append", default=[])
    text = "error or warning: what makes shards invalid"
    expected.value("--fail-on", "LEVEL", text, choices=LEVELS[:2])
    text = "a tfod.toml, in place of the nearest one upward"
    expected.value("--config", "FILE", text, type=file_name)

    against = Arguments(parser.add_argument_group("what the shards are held against"))
    text = "a task, job, project of the server CVAT_HOST"
    against.add("--cvat", nargs=2, metavar=("KIND", "ID"), help=text)
    against.value("--cvat-labels", "FILE", "labels of the CVAT task, as JSON")
    against.value("--cvat-xml", "FILE", "annotations.xml of the CVAT task")
    against.value("--images", "DIR", "the images that the shards are about")
    against.value("--pipeline-config", "FILE", "the OD API's configuration of a training")

    reading = Arguments(parser.add_argument_group("how the shards are read"))
    text = f"images to decode of each shard (default: {MOST_DECODED})"
    reading.value("--decode", "all|none|N", text, type=_most_decoded, default=MOST_DECODED)
    reading.value("--jobs", "N", "processes (default: all cores)", type=whole_number(1))
    reading.flag("--no-sha256", "do not hash the sources")
    reading.value(RUNNER, "NAME", "an Apache Beam runner; -- and its own options last")

    output = Arguments(parser.add_argument_group("what comes out"))
    output.output(formats=FORMATS)
    text = "how many are listed (default: 1000)"
    output.value("--max-findings", "N", text, type=whole_number(1), default=1000)
    text = "the findings alone, and of valid shards nothing"
    output.add("-q", "--quiet", action="store_true", help=text)
    output.value("--baseline", "FILE", "report only what is not in this one", type=file_name)
    output.flag("--update-baseline", f"write all into it (default: {BASELINE})")


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
        found = _without_excluded(everything, configuration, arguments.quiet)
        read = [*files_among(*(getattr(arguments, name) for name in _FILES)), arguments.images]
        read += files_among(configuration.file, configuration.profile, options.label_map)
        read += files_of(everything)
        baseline = options.baseline.name if options.baseline else None
        updated = baseline if arguments.update_baseline else None
        with (
            begin_output(arguments.output, [*read, baseline]) as out,
            begin_output(updated, read) if updated else nullcontext() as known,
        ):
            has_bar = options.runner is None and sys.stderr.isatty() and not arguments.quiet
            with _progress_bar(found) if has_bar else nullcontext() as progress:
                report = check(found, options, progress or (lambda *_: None))
            out.write(_rendered(report, options, arguments, found))
            if known is not None and report.baseline is not None:
                from tfod.check.findings.baseline import baseline_to_json

                known.write(baseline_to_json(report.baseline.found))
    if updated and report.baseline is not None:
        print_note(f"{updated}: {plural(report.baseline.hidden, 'finding')} known")
    return EXIT_VALID if report.valid else EXIT_FINDINGS


def _found(sources: list[str], options: Options) -> AbstractContextManager[Found]:
    """What is to be checked: without sources the shards that a trainer's configuration names."""
    if not sources and options.training_config is not None:
        sources = options.training_config.sources()
        if not sources:
            return nullcontext(Found())  # which is what there is to say
    if not sources:
        raise TfodError("name what is to be checked: shards, a folder or a zip")
    return find(sources, options.label_map, options.archive_limits)


def _without_excluded(everything: Found, configuration: Configuration, quiet: bool) -> Found:
    found, excluded = everything.without(configuration.excludes)
    if excluded and not found.datasets:
        raise TfodError(f"{configuration.file} excludes all that is to be checked")
    if excluded and not quiet:
        what = f"{configuration.file} excludes {'it' if len(excluded) == 1 else 'them'}"
        print_note(f"{plural(len(excluded), 'file')} not checked: {what}")
    return found


def _options(arguments: argparse.Namespace, configuration: Configuration) -> Options:
    limits = ZipLimits()
    of_cvat = (arguments.cvat, arguments.cvat_labels, arguments.cvat_xml, arguments.images)
    has_baseline = arguments.baseline or arguments.update_baseline
    typed = Configuration(
        receiver=arguments.receiver,
        profile=arguments.profile,
        label_map=arguments.label_map,
        select=arguments.select,
        ignore=arguments.ignore or (),
        severity=dict(arguments.severity),
        fail_on=arguments.fail_on,
    )
    return options_of(
        typed,
        configuration,
        task=_task(*of_cvat) if any(of_cvat) else None,
        training_config=None if arguments.pipeline_config is None else _training_config(arguments),
        decode=arguments.decode,
        max_findings=arguments.max_findings,
        max_record_bytes=limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes),
        jobs=arguments.jobs or os.cpu_count() or 1,
        runner=None if arguments.runner is None else _runner(arguments),
        hash_sources=not arguments.no_sha256,
        archive_limits=ZipLimits(
            total_bytes=limit("TFOD_MAX_ARCHIVE_BYTES", limits.total_bytes),
            entries=limit("TFOD_MAX_ARCHIVE_ENTRIES", limits.entries),
        ),
        baseline=_baseline(arguments) if has_baseline else None,
    )


# What few checks are asked for, and what it needs


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


def _baseline(arguments: argparse.Namespace) -> Baseline:
    from tfod.check.findings.baseline import read_baseline

    return read_baseline(arguments.baseline or BASELINE, is_updated=arguments.update_baseline)


def _training_config(arguments: argparse.Namespace) -> TrainingConfig:
    from tfod.check.references.pipeline import TrainingConfig

    return TrainingConfig(arguments.pipeline_config)


def _task(kind_and_id: list[str] | None, *described: str | None) -> Task:
    """What is known of the CVAT task: live from its server, or from files."""
    if kind_and_id is None:
        from tfod.check.references.cvat_task import load_task

        return load_task(*described)
    if any(described):
        raise TfodError("--cvat stands alone: leave out --cvat-xml, --cvat-labels and --images")
    from tfod.cvat.client.connection import Target, connect
    from tfod.cvat.client.task import fetch_task

    target = Target.typed(*kind_and_id)
    with connect() as server:
        return fetch_task(server, target).task


def _rendered(report: Report, options: Options, arguments: argparse.Namespace, found: Found) -> str:
    if arguments.format == "text":
        from tfod.check.reporters.text import render_text

        color = arguments.output is None and _wants_color()
        listed = options.receiver is ANY
        return render_text(report, color=color, receivers=listed, quiet=arguments.quiet)
    module = importlib.import_module(f"tfod.check.reporters.{arguments.format}")
    renderer: Callable[..., str] = getattr(module, f"render_{arguments.format}")
    if arguments.format == "html":
        from tfod.check.reporters.samples import choose_samples

        return renderer(report, choose_samples(report, found.shards, options.profile))
    return renderer(report)


def _wants_color() -> bool:
    """Whether to colour what is printed, by https://no-color.org and https://force-color.org."""
    if sys.stdout is None or os.environ.get("FORCE_COLOR"):
        return sys.stdout is not None
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@contextmanager
def _progress_bar(found: Found) -> Iterator[Progress | None]:
    try:
        from tqdm import tqdm
    except ImportError:
        yield None
        return
    total = sum(one.size or 0 for one in found.files) or None
    how = {"unit": "B", "unit_scale": True, "leave": False, "dynamic_ncols": True}
    with tqdm(total=total, desc="checking", file=sys.stderr, **how) as bar:
        yield lambda read, _: bar.update(read)
