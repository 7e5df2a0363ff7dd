"""Standard output, for the commands."""

from __future__ import annotations

import sys

from tfod.errors import TfodError


def print_text(text: str) -> None:
    """Write to standard output as UTF-8, whatever the locale says: JSON, XML and HTML are that."""
    if sys.stdout is None:
        raise TfodError("standard output is closed; use --output")
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
        return
    sys.stdout.flush()
    binary.write(text.encode("utf-8", "replace"))
    binary.flush()
