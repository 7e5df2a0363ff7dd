"""What was made is checked before it gets its names, as ``tfod check --for`` its receiver would."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from tfod.checker.check import Options, check
from tfod.checker.finding import Severity, plural
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import RECEIVERS
from tfod.errors import TfodError
from tfod.formats.options import CompleteShard
from tfod.sources.resolved import File
from tfod.sources.resolver import resolve_uploads

_MOST_ERRORS = 10


class InvalidError(TfodError):
    """What was made would be INVALID; the text has an error a line, each with its source."""


def verify(
    shards: Sequence[CompleteShard], label_map: str, layout: str, receiver: str | None = None
) -> None:
    """Check shards for their receiver without decoding their images.

    ``label_map`` is the text of their label map, ``layout`` the name of their layout. By default
    the receiver is the OD API's trainer, if it reads their keys.

    Raises:
        InvalidError: they are INVALID.
    """
    if not shards:
        return
    with tempfile.TemporaryDirectory(prefix="tfod-convert-") as folder:
        path = os.path.join(folder, "label_map.pbtxt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(label_map)
        options = Options(
            profile=READY[layout],
            receiver=RECEIVERS[receiver or ("any" if READY[layout].has_other_boxes else "od-api")],
            label_map=path,
            decode=0,
            max_findings=_MOST_ERRORS,
        )
        report = check(
            resolve_uploads([File.at(one.temporary_path, one.path) for one in shards]), options
        )
    if report.valid:
        return
    sources = {one.path: one.source for one in shards}
    errors = [one for one in report.findings if one.severity is Severity.ERROR]
    count = report.counts.by_severity[Severity.ERROR]
    lines = [f"nothing is written: it would be INVALID, {plural(count, 'error')}"]
    for one in errors:
        where = ", ".join(part for part in (sources.get(one.shard), one.item) if part)
        lines.append(f"  {where or 'the label map'}: {one.message} ({one.code}). {one.fix}")
    if count > len(errors):
        lines.append(f"  and {count - len(errors):,} more")
    raise InvalidError("\n".join(lines))
