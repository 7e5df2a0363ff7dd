"""``tfod check``: its options, the progress bar, and what is printed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tfod.check.check import Options, check
from tfod.check.findings.baseline import Baseline, baseline_to_json, read_baseline
from tfod.check.findings.finding import Severity
from tfod.check.findings.report import Report
from tfod.check.receivers import ANY, RECEIVERS
from tfod.check.records.images.decoding import MOST_DECODED, read_most_decoded
from tfod.check.sources.archive import ArchiveLimits
from tfod.check.sources.inventory import Inventory
from tfod.check.sources.search import take_inventory
from tfod.cli.command_line import (
    Commands,
    add_number,
    add_runner_options,
    named_profile,
    print_note,
    runner_of,
)
from tfod.cli.config_command import add_configured_options, configure
from tfod.cli.outputs import (
    REPORT_FORMATS,
    Output,
    add_output_options,
    annotated,
    begin_outputs,
    outputs_of,
    render_report,
)
from tfod.cvat.client.connection import add_connection_options, connect
from tfod.cvat.client.task import KINDS, Target, fetch_task
from tfod.errors import TfodError
from tfod.tfrecord.storage.remote_timeout import REMOTE_TIMEOUT, set_remote_timeout

if TYPE_CHECKING:
    from tfod.check.engine.inputs import Progress
    from tfod.check.references.cvat_task.task import Task

BASELINE = "tfod-baseline.json"
EXIT_VALID = 0
EXIT_FINDINGS = 1


def add_parser(commands: Commands) -> None:
    """Add ``check`` to the commands."""
    parser = commands.add_parser(
        "check",
        help="find every defect of shards and annotation zips",
        description="Check shards, sets, globs, folders, zips, URLs or standard input (-): every "
        "defect with the file, the record, the byte and the fix. Exit status 0: nothing at or "
        "above the level of --fail-on; 1: findings; 2: the check could not run.",
    )
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="*",
        help="a shard, a set or a glob of shards, a folder, a zip, an fsspec URL, or -; without "
        "any the shards that --pipeline-config names",
    )
    _add_reading_options(parser)
    group = parser.add_argument_group("what the shards are held against")
    add = group.add_argument
    add("--cvat-labels", metavar="FILE", help="labels of the CVAT task, as JSON")
    add("--cvat-xml", metavar="FILE", help="annotations.xml of the CVAT task")
    for kind in KINDS:
        text = f"labels and frames of this {kind} as they are on the server now"
        add_number(group, f"--cvat-{kind}", text, metavar="ID")
    add("--images", metavar="DIR", help="the images that the shards are about")
    text = "the trainer's configuration: pipeline.config of the TF Object Detection API"
    add("--pipeline-config", metavar="FILE", help=text)

    group = parser.add_argument_group("what comes out")
    add = group.add_argument
    add_output_options(group, REPORT_FORMATS)
    text = "list at most so many; all are counted (default: 1000)"
    add_number(group, "--max-findings", text, 1000)
    text = "print the findings alone, and nothing where the shards are valid"
    add("-q", "--quiet", action="store_true", help=text)
    text = "print how many findings there are of each rule, in place of the findings"
    add("--statistics", action="store_true", help=text)
    text = f"write all findings into the --baseline (default: {BASELINE})"
    add("--update-baseline", action="store_true", help=text)
    _add_samples(group)
    add_connection_options(parser)
    parser.set_defaults(run=_check)


def _add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add what is expected of shards, and how they are read."""
    add_configured_options(parser)
    group = parser.add_argument_group("how the shards are read")
    add = group.add_argument
    text = "decode all images, none, or at most N, evenly chosen (default: 1000)"
    add("--decode", type=_most_decoded, default=MOST_DECODED, metavar="all|none|N", help=text)
    add_number(group, "--jobs", "processes (default: all cores)")
    text = "larger records are not read (default: 256 MiB)"
    add_number(group, "--max-record-bytes", text, 256 << 20)
    limits = ArchiveLimits()
    text = "a zip may unpack to so many bytes (default: 64 GiB)"
    add_number(group, "--max-archive-bytes", text, limits.total_bytes)
    text = "a zip may have so many entries (default: 100000)"
    add_number(group, "--max-archive-entries", text, limits.entries)
    add("--no-sha256", action="store_true", help="do not hash the sources for the report")
    text = "stop waiting for a silent server after so long (default: 60)"
    add_number(group, "--remote-timeout", text, int(REMOTE_TIMEOUT), metavar="SECONDS")
    add_runner_options(parser)


def _add_samples(group: argparse._ActionsContainer) -> None:
    add_number(group, "--samples", "images in the HTML report (default: 12)", 12, least=0)


def _most_decoded(text: str) -> int | None:
    try:
        return read_most_decoded(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _check(arguments: argparse.Namespace) -> int:
    def text(report: Report, output: Output) -> str:
        from tfod.check.reporters.text import render_text

        text = render_text(
            report,
            color=output.color,
            receivers=arguments.receiver == ANY.name,
            quiet=arguments.quiet,
            statistics=arguments.statistics,
        )
        return annotated(text, report) if text and output.is_on_github else text

    report = _report(arguments, _options(arguments), text, quiet=arguments.quiet)
    return EXIT_VALID if report.valid else EXIT_FINDINGS


def _report(
    arguments: argparse.Namespace,
    options: Options,
    text: Callable[[Report, Output], str],
    *,
    quiet: bool = False,
) -> Report:
    """Check the sources, and write the report to all outputs; ``text`` writes it as text."""
    outputs = outputs_of(arguments)
    if options.baseline and options.baseline.is_updated:
        place = os.path.realpath(options.baseline.name)
        if any(one.path and os.path.realpath(one.path) == place for one in outputs):
            raise TfodError(f"{options.baseline.name}: is the baseline; name another --format file")
        outputs.append(Output("baseline", options.baseline.name))
    with (
        _inventory(arguments.sources, options) as inventory,
        begin_outputs(outputs, _files_read(arguments, inventory)) as write,
    ):
        has_bar = options.runner is None and sys.stderr.isatty() and not quiet
        with _progress_bar(inventory) if has_bar else nullcontext() as progress:
            report = check(inventory, options, progress)
        write(lambda output: _rendered(output, report, options, arguments, inventory, text))
    if options.baseline and options.baseline.is_updated and report.baseline:
        print_note(report.baseline.changes())
    return report


def _inventory(sources: Sequence[str], options: Options) -> AbstractContextManager[Inventory]:
    """What is to be checked: without sources the shards that the configuration names."""
    if not sources:
        if options.training_config is None:
            raise TfodError("name what is to be checked: shards, a folder or a zip")
        sources = options.training_config.sources()
        if not sources:
            return nullcontext(Inventory((), ()))  # which is what there is to say
    return take_inventory(sources, options.label_map is not None)


def _options(arguments: argparse.Namespace) -> Options:
    options = replace(
        _reading_options(arguments),
        task=_task(arguments),
        max_findings=arguments.max_findings,
    )
    if arguments.pipeline_config is not None:  # few checks need it
        from tfod.check.references.pipeline import TrainingConfig

        options = replace(options, training_config=TrainingConfig(arguments.pipeline_config))
    return options


def _reading_options(arguments: argparse.Namespace) -> Options:
    set_remote_timeout(arguments.remote_timeout)
    configuration, selections = configure(arguments)
    return Options(
        profile=named_profile(arguments.profile),
        receiver=RECEIVERS[arguments.receiver] if arguments.receiver else None,
        severities=selections.severities(),
        by_path=selections if selections.by_path else None,
        configuration=configuration.file,
        fail_on=Severity(arguments.fail_on or "error"),
        label_map=arguments.label_map,
        decode=arguments.decode,
        max_record_bytes=arguments.max_record_bytes,
        jobs=arguments.jobs or os.cpu_count() or 1,
        runner=runner_of(arguments),
        hash_sources=not arguments.no_sha256,
        archive_limits=ArchiveLimits(
            total_bytes=arguments.max_archive_bytes, entries=arguments.max_archive_entries
        ),
        baseline=_baseline(arguments),
    )


def _baseline(arguments: argparse.Namespace) -> Baseline | None:
    is_updated = getattr(arguments, "update_baseline", False)
    if arguments.baseline is None and not is_updated:
        return None
    return read_baseline(arguments.baseline or BASELINE, is_updated=is_updated)


def _task(arguments: argparse.Namespace) -> Task | None:
    """What is known of the CVAT task: live from its server, or from files."""
    described = (arguments.cvat_labels, arguments.cvat_xml, arguments.images)
    numbers = {kind: getattr(arguments, f"cvat_{kind}") for kind in KINDS}
    targets = [Target(kind, number) for kind, number in numbers.items() if number is not None]
    if not targets and any(described):
        from tfod.check.references.cvat_task.task import load_task  # few checks need it

        return load_task(*described)
    if not targets:
        return None
    if len(targets) > 1 or any(described):
        raise TfodError(
            "--cvat-task, --cvat-job and --cvat-project stand alone: leave out the others, "
            "--cvat-xml, --cvat-labels and --images"
        )
    with connect(arguments) as server:
        return fetch_task(server, targets[0]).task


def _files_read(arguments: argparse.Namespace, inventory: Inventory) -> Iterator[str]:
    """Paths of what the check reads, none of which a report may replace."""
    yield from (one.path for one in inventory.locations if not one.remote)
    label_maps = {one.label_map for one in inventory.shards} | {inventory.label_map}
    names = (
        "config",
        "label_map",
        "profile",
        "cvat_labels",
        "cvat_xml",
        "pipeline_config",
    )
    paths = (getattr(arguments, name, None) for name in names)
    is_written = getattr(arguments, "update_baseline", False)
    baseline = None if is_written else getattr(arguments, "baseline", None)
    yield from filter(None, (*label_maps, *paths, baseline))


def _rendered(
    output: Output,
    report: Report,
    options: Options,
    arguments: argparse.Namespace,
    inventory: Inventory,
    text: Callable[[Report, Output], str],
) -> str:
    if output.format == "baseline" and report.baseline:
        return baseline_to_json(report.baseline.found)
    if output.format == "html":
        from tfod.check.reporters.html.page import render_html
        from tfod.check.reporters.html.samples import choose_samples

        samples = choose_samples(report, inventory, options.profile, arguments.samples)
        return render_html(report, samples)
    return text(report, output) if output.format == "text" else render_report(output.format, report)


@contextmanager
def _progress_bar(inventory: Inventory) -> Iterator[Progress | None]:
    try:
        from tqdm import tqdm
    except ImportError:
        yield None
        return
    total = None
    with suppress(OSError):
        total = sum(location.size() or 0 for location in inventory.locations) or None
    how = {"unit": "B", "unit_scale": True, "leave": False, "dynamic_ncols": True}
    with tqdm(total=total, desc="checking", file=sys.stderr, **how) as bar:
        yield lambda read, _: bar.update(read)
