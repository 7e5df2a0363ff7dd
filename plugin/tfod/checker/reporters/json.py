"""The report as JSON, described by ``docs/report.schema.json``."""

from __future__ import annotations

import json

from tfod.checker.report import Report
from tfod.checker.reporters.escaping import escape_json


def render_json(report: Report) -> str:
    """Format a report as indented JSON, to be saved as UTF-8.

    Characters that control a terminal or change the direction of text are escaped. Numbers that
    are not finite become the strings ``NaN``, ``Infinity`` and ``-Infinity``.
    """
    text = json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False, indent=2)
    return escape_json(text) + "\n"
