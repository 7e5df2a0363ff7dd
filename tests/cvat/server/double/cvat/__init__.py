"""A contract double of the ``cvat`` package: what a format module can notice, in our own code.

It stands for two servers, chosen by the environment variable CVAT_DOUBLE:

* ``2.15`` (2024-07): the registry of formats is imported while Django starts; the extractor builds
  all items at once, their annotations are lists, extensions keep their case. With the 0.3 line of
  Datumaro; on 1.x it stands for the servers between (2.25 to 2.31).
* ``2.73`` (2026-08): the registry is imported when a format is asked for; the extractor streams,
  annotations are computed when they are looked at, extensions are in lower case and without a
  dot; there is ``CvatExportError``. Needs Datumaro 1.x.

By default it is the one that the installed Datumaro belongs to. Each module says which facts it
stands for; where they come from is in FACTS_CVAT.md and FACTS.md, section G.
"""

from __future__ import annotations

import os
from importlib import metadata


def _choose() -> str:
    old_datumaro = metadata.version("datumaro").startswith("0.")
    chosen = os.environ.get("CVAT_DOUBLE") or ("2.15" if old_datumaro else "2.73")
    if chosen not in ("2.15", "2.73") or (chosen == "2.73" and old_datumaro):
        raise ImportError(f"CVAT_DOUBLE={chosen} with Datumaro {metadata.version('datumaro')}")
    return chosen


LINE = _choose()
IS_NEW = LINE == "2.73"
VERSION = (2, int(LINE.split(".")[1]), 0, "final", 0)
