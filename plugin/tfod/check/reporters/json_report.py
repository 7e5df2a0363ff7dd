"""The report as JSON; ``docs/report.schema.json`` describes it."""

from __future__ import annotations

import json
import re

from tfod.check.report import Report
from tfod.check.reporters.escaping import escape_json

_NUMBERS = re.compile(r"\[\n\s*(\d+(?:,\n\s*\d+)*)\n\s*\]")
"""A list of counts over many lines. A line break is never part of a JSON string."""


def render_json(report: Report) -> str:
    """Write a report as JSON, indented, to be saved as UTF-8.

    Characters that steer a terminal or turn the direction of text are JSON escapes. Numbers that
    JSON has no word for are the strings ``NaN``, ``Infinity`` and ``-Infinity``.
    """
    document = json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False, indent=2)
    # Rows of the heat maps stay rows.
    document = _NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]", document)
    return escape_json(document) + "\n"
