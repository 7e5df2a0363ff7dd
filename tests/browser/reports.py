"""Reports of many checks, which are compared with those of another platform."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from tfod.cli.main import main


def print_reports(checks: str) -> None:
    """Run checks in this process, and print a line with the name, status and report of each.

    Each has a name, the folder to run in, changes of the environment, and arguments.
    """
    for name, folder, environment, arguments in json.loads(Path(checks).read_text()):
        os.chdir(folder)
        out, err = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, environment), redirect_stdout(out), redirect_stderr(err):
            status = main(["check", *arguments, "--format", "json", "--jobs", "1"])
        report = json.loads(out.getvalue() or "{}") | {"duration": 0}
        print(json.dumps([name, status, report, err.getvalue()]))
