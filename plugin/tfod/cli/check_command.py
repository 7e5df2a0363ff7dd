"""``tfod check``: its options, the progress bar, and what is printed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tfod.check.check import Options, check
from tfod.check.configuration import (
    LEVELS,
    Configuration,
    find_configuration,
    load_configuration,
    severities_in,
)
from tfod.check.findings.baseline import Baseline, baseline_to_json, read_baseline
from tfod.check.findings.finding import Severity, plural
from tfod.check.findings.report import Report
from tfod.check.profiles.policy import severities_of
from tfod.check.profiles.profile import READY
from tfod.check.receivers import ANY, RECEIVERS
from tfod.check.records.images.decoding import MOST_DECODED, read_most_decoded
from tfod.check.rules.registry import require_rule_names
from tfod.check.sources.archive import ArchiveLimits
from tfod.check.sources.inventory import Inventory
from tfod.check.sources.search import take_inventory
from tfod.cli.command_line import (
    Commands,
    add_label_map,
    add_number,
    add_runner_options,
    file_name,
    limit,
    named_profile,
    print_note,
    runner_of,
)
from tfod.cli.outputs import add_output_options, begin_output
from tfod.cvat.client.connection import connect
from tfod.cvat.client.task import KINDS, Target, fetch_task
from tfod.errors import TfodError

if TYPE_CHECKING:
    from tfod.check.engine.inputs import Progress
    from tfod.check.references.cvat_task.task import Task

FORMATS = ("text", "json", "html", "junit", "github")
BASELINE = "tfod-baseline.json"
EXIT_VALID = 0
EXIT_FINDINGS = 1


def add_parser(commands: Commands) -> None:
    """Add ``check`` to the commands."""
    parser = commands.add_parser(
        "check",
        help="find every defect of shards and annotation zips",
        description="Check shards, folders, zips, globs, URLs or standard input (-). Exit status: "
        "0 valid, 1 not, 2 the check could not run.",
    )
    text = "by default what --pipeline-config names"
    parser.add_argument("sources", metavar="SOURCE", nargs="*", help=text)
    _add_expectations(parser.add_argument_group("what is expected"))
    add = parser.add_argument_group("what the shards are held against").add_argument
    text = f"a {', '.join(KINDS)} of the server CVAT_HOST"
    add("--cvat", nargs=2, metavar=("KIND", "ID"), help=text)
    add("--cvat-labels", metavar="FILE", help="labels of the CVAT task, as JSON")
    add("--cvat-xml", metavar="FILE", help="annotations.xml of the CVAT task")
    add("--images", metavar="DIR", help="the images that the shards are about")
    add("--pipeline-config", metavar="FILE", help="the OD API's configuration of a training")
    group = parser.add_argument_group("how the shards are read")
    add = group.add_argument
    text = f"images to decode at most (default: {MOST_DECODED})"
    add("--decode", type=_most_decoded, default=MOST_DECODED, metavar="all|none|N", help=text)
    add_number(group, "--jobs", "processes (default: all cores)")
    add("--no-sha256", action="store_true", help="do not hash the sources")
    add_runner_options(group)
    group = parser.add_argument_group("what comes out")
    add = group.add_argument
    add_output_options(group, FORMATS)
    add_number(group, "--max-findings", "how many are listed (default: 1000)", 1000)
    text = "the findings alone, and of valid shards nothing"
    add("-q", "--quiet", action="store_true", help=text)
    add("--baseline", type=file_name, metavar="FILE", help="report only what is not in this one")
    text = f"write all into it (default: {BASELINE})"
    add("--update-baseline", action="store_true", help=text)
    parser.set_defaults(run=_check)


def _add_expectations(group: argparse._ActionsContainer) -> None:
    """Add the options that have a key in the configuration, and the one that names it."""
    add = group.add_argument
    text = f"who reads the shards next: {', '.join(RECEIVERS)}"
    add("--for", dest="receiver", choices=tuple(RECEIVERS), metavar="NAME", help=text)
    text = f"what a record has: {', '.join(READY)}, or a file"
    add("--profile", metavar="NAME|FILE", help=text)
    add_label_map(group)
    text = "only these rules: codes and families, with commas"
    add("--select", type=_split, action="extend", metavar="CODES", help=text)
    text = "not these; a code is stronger than its family"
    add("--ignore", type=_split, action="extend", metavar="CODES", help=text)
    text = f"of a rule or a family: {', '.join(LEVELS)}"
    add("--severity", action="append", default=[], metavar="CODE=LEVEL", help=text)
    text = "error or warning: what makes shards invalid"
    add("--fail-on", choices=LEVELS[:2], metavar="LEVEL", help=text)
    text = "a tfod.toml, in place of the nearest one upward"
    add("--config", type=file_name, metavar="FILE", help=text)


def _most_decoded(text: str) -> int | None:
    try:
        return read_most_decoded(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _split(text: str) -> Sequence[str]:
    codes = [code for one in text.split(",") if (code := one.strip().upper())]
    if not codes:
        raise argparse.ArgumentTypeError(f"{text!r} names no rule")
    return codes


def _severity(text: str) -> tuple[str, str]:
    code, _, level = (part.strip() for part in text.partition("="))
    require_rule_names([code.upper()], f"--severity {text}")
    if level.lower() not in LEVELS:
        raise TfodError(f"--severity {text}: expected CODE={', '.join(LEVELS)}")
    return code.upper(), level.lower()


def _check(arguments: argparse.Namespace) -> int:
    configuration = (
        load_configuration(arguments.config) if arguments.config else find_configuration()
    )
    options = _options(arguments, configuration)
    baseline, output = options.baseline, arguments.output
    is_updated = baseline is not None and baseline.is_updated
    if baseline and output and os.path.realpath(baseline.name) == os.path.realpath(output):
        raise TfodError(f"{output}: is the baseline; name another --output")
    with _inventory(arguments.sources, options) as everything:
        excluded = {one.name for one in everything.locations if configuration.excludes(one.name)}
        if excluded and not arguments.quiet:
            them = "it" if len(excluded) == 1 else "them"
            what = f"{configuration.file} excludes {them}"
            print_note(f"{plural(len(excluded), 'file')} not checked: {what}")
        inventory = everything.without(excluded)
        sources = list(_files_read(arguments, configuration, options, everything))
        new_baseline = baseline.name if baseline and is_updated else None
        with (
            begin_output(output, sources) as write,
            begin_output(new_baseline, sources) if new_baseline else nullcontext() as write_known,
        ):
            has_bar = options.runner is None and sys.stderr.isatty() and not arguments.quiet
            with _progress_bar(inventory) if has_bar else nullcontext() as progress:
                report = check(inventory, options, progress)
            write(_rendered(report, options, arguments, inventory))
            if write_known is not None and report.baseline is not None:
                write_known(baseline_to_json(report.baseline.found))
    if is_updated and report.baseline is not None:
        print_note(f"{new_baseline}: {plural(report.baseline.known, 'finding')} known")
    return EXIT_VALID if report.valid else EXIT_FINDINGS


def _inventory(sources: Sequence[str], options: Options) -> AbstractContextManager[Inventory]:
    """What is to be checked: without sources the shards that a trainer's configuration names."""
    if not sources:
        if options.training_config is None:
            raise TfodError("name what is to be checked: shards, a folder or a zip")
        sources = options.training_config.sources()
        if not sources:
            return nullcontext(Inventory((), ()))  # which is what there is to say
    return take_inventory(sources, options.label_map is not None)


def _options(arguments: argparse.Namespace, configuration: Configuration) -> Options:
    """What is typed, or else what the configuration says."""
    select = arguments.select or configuration.select
    ignore = arguments.ignore or configuration.ignore
    typed = dict(map(_severity, arguments.severity))
    for option, names in (("select", select), ("ignore", ignore)):
        require_rule_names(names or (), f"--{option}")
    receiver = arguments.receiver or configuration.receiver
    limits = ArchiveLimits()
    options = Options(
        profile=named_profile(arguments.profile or configuration.profile),
        receiver=RECEIVERS[receiver] if receiver else None,
        task=_task(arguments),
        severities=severities_of(
            select, ignore, severities_in(configuration.severity), severities_in(typed)
        ),
        configuration=configuration.file,
        fail_on=Severity(arguments.fail_on or configuration.fail_on or "error"),
        label_map=arguments.label_map or configuration.label_map,
        decode=arguments.decode,
        max_findings=arguments.max_findings,
        max_record_bytes=limit("TFOD_MAX_RECORD_BYTES", Options.max_record_bytes),
        jobs=arguments.jobs or os.cpu_count() or 1,
        runner=runner_of(arguments),
        hash_sources=not arguments.no_sha256,
        archive_limits=ArchiveLimits(
            total_bytes=limit("TFOD_MAX_ARCHIVE_BYTES", limits.total_bytes),
            entries=limit("TFOD_MAX_ARCHIVE_ENTRIES", limits.entries),
        ),
        baseline=_baseline(arguments),
    )
    if arguments.pipeline_config is not None:  # few checks need it
        from tfod.check.references.pipeline import TrainingConfig

        options = replace(options, training_config=TrainingConfig(arguments.pipeline_config))
    return options


def _baseline(arguments: argparse.Namespace) -> Baseline | None:
    is_updated = arguments.update_baseline
    if arguments.baseline is None and not is_updated:
        return None
    return read_baseline(arguments.baseline or BASELINE, is_updated=is_updated)


def _task(arguments: argparse.Namespace) -> Task | None:
    """What is known of the CVAT task: live from its server, or from files."""
    described = (arguments.cvat_labels, arguments.cvat_xml, arguments.images)
    if arguments.cvat is None:
        if not any(described):
            return None
        from tfod.check.references.cvat_task.task import load_task  # few checks need it

        return load_task(*described)
    if any(described):
        raise TfodError("--cvat stands alone: leave out --cvat-xml, --cvat-labels and --images")
    kind, number = arguments.cvat
    if kind not in KINDS or not number.isascii() or not number.isdigit():
        raise TfodError(f"--cvat {kind} {number}: name {', '.join(KINDS)}, then its number")
    with connect() as server:
        return fetch_task(server, Target(kind, int(number))).task


def _files_read(
    arguments: argparse.Namespace,
    configuration: Configuration,
    options: Options,
    inventory: Inventory,
) -> Iterator[str]:
    """Paths of what the check reads, none of which a report may replace."""
    yield from (one.path for one in inventory.locations if not one.remote)
    label_maps = {one.label_map for one in inventory.shards} | {inventory.label_map}
    names = ("profile", "cvat_labels", "cvat_xml", "pipeline_config")
    paths = (getattr(arguments, name) for name in names)
    others = (options.label_map, configuration.file, configuration.profile)
    is_read = options.baseline is not None and not options.baseline.is_updated
    baseline = options.baseline.name if options.baseline and is_read else None
    yield from filter(None, (*label_maps, *paths, *others, baseline))


def _rendered(
    report: Report, options: Options, arguments: argparse.Namespace, inventory: Inventory
) -> str:
    if arguments.format == "text":
        from tfod.check.reporters.text import render_text

        color = arguments.output is None and _wants_color()
        listed = options.receiver is ANY
        return render_text(report, color=color, receivers=listed, quiet=arguments.quiet)
    if arguments.format == "html":
        from tfod.check.reporters.html.page import render_html
        from tfod.check.reporters.html.samples import choose_samples

        samples = choose_samples(report, inventory, options.profile)
        return render_html(report, samples)
    modules = {"json": "json_and_junit", "junit": "json_and_junit", "github": "github"}
    module = importlib.import_module(f"tfod.check.reporters.{modules[arguments.format]}")
    renderer: Callable[[Report], str] = getattr(module, f"render_{arguments.format}")
    return renderer(report)


def _wants_color() -> bool:
    """Whether to colour what is printed, by https://no-color.org and https://force-color.org."""
    if sys.stdout is None or os.environ.get("FORCE_COLOR"):
        return sys.stdout is not None
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


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
