"""The report as JSON, which ``docs/report.schema.json`` describes."""

from __future__ import annotations

import json

from tfod.checker.report import Report
from tfod.checker.reporters.escaping import escape_json


def render_json(report: Report) -> str:
    """Write a report as JSON, indented, to be saved as UTF-8.

    Characters that steer a terminal or turn the direction of text are JSON escapes. Numbers that
    JSON has no word for are the strings ``NaN``, ``Infinity`` and ``-Infinity``.
    """
    text = json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False, indent=2)
    return escape_json(text) + "\n"
