"""Check of new shards before they are published, like ``tfod check --for RECEIVER``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from tfod.checker.advice import fill_in, strip_command
from tfod.checker.check import Options, check
from tfod.checker.finding import Severity, plural
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import RECEIVERS
from tfod.errors import TfodError
from tfod.formats.options import CompleteShard
from tfod.sources.resolved import File
from tfod.sources.resolver import resolve_uploads

_MAX_ERRORS = 10


def verify(
    shards: Sequence[CompleteShard], label_map: str, layout: str, receiver: str | None = None
) -> None:
    """Check shards for a receiver, without decoding their images; raise TfodError if INVALID.

    The message has one error per line, each with the source of its shard.
    ``label_map`` is the text of their label map, and ``layout`` the name of their layout. The
    default receiver is the OD API's trainer, if it reads the keys of the layout.
    """
    if not shards:
        return
    with tempfile.TemporaryDirectory(prefix="tfod-convert-") as folder:
        path = os.path.join(folder, "label_map.pbtxt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(label_map)
        options = Options(
            profile=READY[layout],
            receiver=RECEIVERS[receiver or ("any" if READY[layout].has_custom_boxes else "od-api")],
            label_map=path,
            decode=0,
            max_findings=_MAX_ERRORS,
        )
        files = [File.at(shard.temporary_path, shard.path) for shard in shards]
        report = check(resolve_uploads(files), options)
    if report.valid:
        return
    sources = {shard.path: shard.source for shard in shards}
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    count = report.counts.by_severity[Severity.ERROR]
    lines = [f"nothing was written: the result would be INVALID, {plural(count, 'error')}"]
    for finding in errors:
        location = ", ".join(filter(None, (sources.get(finding.shard), finding.item)))
        location = location or "the label map"
        fix = finding.template.removeprefix("In {script}, ")  # tfod would write the records
        fix = fill_in(fix[:1].upper() + fix[1:], [finding])
        lines.append(f"  {location}: {finding.message} ({finding.code}). {strip_command(fix)}")
    if count > len(errors):
        lines.append(f"  and {count - len(errors):,} more")
    raise TfodError("\n".join(lines))
