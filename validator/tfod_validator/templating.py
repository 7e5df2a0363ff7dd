"""The template environment of the service's pages, and of the page that checks in the browser."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment
from tfod.checker.advice import fill_in
from tfod.checker.analysis.decoding import MAX_BYTES_TO_DECODE
from tfod.checker.finding import plural, size
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import RECEIVERS
from tfod.checker.reporters.escaping import visible
from tfod.version import __version__

_FIRST_CHOICES = ("cvat", "od-api", "any")
"""The receivers that the pages always show; the others are among the options."""

BROWSER_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; "
    "connect-src 'self'; style-src 'self'; img-src 'self' data: blob:; form-action 'none'; "
    "base-uri 'none'"
)
"""The policy of the page that checks in the browser. It is in the page, for any static host."""


def prepare(environment: Environment) -> None:
    """Set up an environment; ``finalize`` makes control characters visible."""
    environment.finalize = lambda value: visible(value) if type(value) is str else value
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters.update(
        size=size, plural=plural, sentence=lambda text: text[:1].upper() + text[1:], fill_in=fill_in
    )
    environment.globals.update(version=__version__)


def list_choices() -> dict[str, Any]:
    """Return what ``choices.html`` shows: receivers, profiles and the limit of decoding."""
    return {
        "receivers": [item for name, item in RECEIVERS.items() if name not in _FIRST_CHOICES],
        "profiles": READY.values(),
        "max_bytes_to_decode": MAX_BYTES_TO_DECODE,
    }
