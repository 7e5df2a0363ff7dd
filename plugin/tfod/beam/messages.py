"""What the process that wants a pipeline run and the process that runs it say to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REQUEST_FILE = "request.pickle"
OUTCOME_FILE = "outcome.pickle"
LOG_FILE = "beam.log"
WORKER_DIED = 86
"""Exit status of the process that runs a pipeline when a worker of it died."""
UNSAID = 87
"""Exit status of that process when it cannot write down what came out."""
A_WORKER_DIED = "a worker process died"


@dataclass(frozen=True)
class Request:
    """The pipeline to run.

    Attributes:
        build: what makes it.
        runner: Beam's name of the runner.
        arguments: Beam's own options.
        folder: the current one, which paths in the options start from.
    """

    build: Callable[[Any], Any]
    runner: str
    arguments: tuple[str, ...]
    folder: str


@dataclass(frozen=True)
class Succeeded:
    """What came out."""

    elements: list[Any]


@dataclass(frozen=True)
class Died:
    """A process ended before its time, and what it did has to be done again."""

    what: str


@dataclass(frozen=True)
class Failed:
    """Why nothing came out, in one line.

    Attributes:
        message: the line.
        unforeseen: whether what Beam had to say may help to understand it.
    """

    message: str
    unforeseen: bool = False
