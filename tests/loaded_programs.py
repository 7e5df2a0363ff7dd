"""Imports what ``tfod`` and ``datum`` import, for processes that are forked from this one.

The formats of Datumaro are imported by its first command; some bring pandas and Torch, which
takes seconds.
"""

import contextlib
import io

import tfod.cli.main  # noqa: F401

with contextlib.suppress(ImportError, SystemExit), contextlib.redirect_stdout(io.StringIO()):
    from datumaro.cli.__main__ import main

    main(["convert", "-h"])
