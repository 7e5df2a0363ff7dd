"""``--runner NAME … -- …``: a command on Apache Beam, with Beam's own options behind ``--``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfod.errors import TfodError

if TYPE_CHECKING:
    from tfod.beam import Runner

_OPTION = "--runner"


def add_runner_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--runner`` to a command."""
    group = parser.add_argument_group("on Apache Beam")
    group.add_argument(
        _OPTION,
        metavar="NAME",
        help="let this Beam runner do the work: DirectRunner, PortableRunner, FlinkRunner, "
        "SparkRunner, DataflowRunner, DaskRunner or PySparkRunner; what stands behind -- at the "
        "end are Beam's own options (docs/beam.md)",
    )


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into ours and Beam's, which stands behind the first bare ``--``.

    Without ``--runner`` all of it is ours, and ``--`` means what argparse makes of it.
    """
    ours = list(arguments)
    if "--" not in ours:
        return ours, []
    end = ours.index("--")
    if not any(_is_ours(one.partition("=")[0]) for one in ours[:end]):
        return ours, []
    return ours[:end], ours[end + 1 :]


def _is_ours(option: str) -> bool:
    """Whether it is ``--runner``, or as much of it as argparse takes for it."""
    return option.startswith("--ru") and _OPTION.startswith(option)


def runner_of(arguments: argparse.Namespace) -> Runner | None:
    """The runner that a command is to use; None when the work is to be done by this process.

    Raises:
        TfodError: the runner is unknown, Beam is not installed, or ``--jobs`` is given too.
    """
    if arguments.runner is None:
        return None
    if getattr(arguments, "jobs", None) is not None:
        raise TfodError(
            f"--jobs and {_OPTION} exclude each other; write: {_OPTION} {arguments.runner} … "
            f"-- --direct_running_mode multi_processing --direct_num_workers {arguments.jobs}"
        )
    if not hasattr(os, "killpg"):
        raise TfodError(f"{_OPTION} needs Linux or macOS; leave it out")
    from tfod.beam import Runner

    return Runner(arguments.runner, tuple(arguments.runner_arguments))
