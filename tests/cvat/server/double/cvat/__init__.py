"""A double of the package ``cvat``, with our code for all that a format can notice.

The environment variable CVAT_DOUBLE selects one of two servers:

* ``2.15`` (2024-07): Django imports the registry of formats when it starts. The extractor builds
  all items at once, with lists of annotations. Extensions keep their case. Needs Datumaro 0.3; with
  1.x, it is a server between 2.25 and 2.31.
* ``2.73`` (2026-08): a request for the formats imports the registry. The extractor is a stream, and
  computes annotations on demand. Extensions are in lower case, without a dot. ``CvatExportError``
  exists. Needs Datumaro 1.x.

The default is the server of the installed Datumaro. Each module lists the facts that it copies.
Their sources are in FACTS_CVAT.md and FACTS.md, section G.
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
