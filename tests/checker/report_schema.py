"""The schema of reports."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
