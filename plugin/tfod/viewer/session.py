"""A session of the viewer: it checks shards step by step, and answers the requests of the page.

The page runs in a browser, with a worker that has a session, or is served by
:mod:`tfod.viewer.server`. All answers are JSON objects.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import numpy as np

from tfod.checker.check import Options, check_steps, use_label_map
from tfod.checker.profiles.choice import choose_profile
from tfod.checker.report import Report
from tfod.checker.reporters.drawing import draw
from tfod.checker.reporters.html import Card, list_lines, render_card
from tfod.checker.reporters.samples import Sample
from tfod.checker.reporters.wording import format_record
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.shards.show import make_card
from tfod.sources.resolved import ResolvedSources
from tfod.tfrecord.random_access import RecordReader
from tfod.tfrecord.reader import Record, RecordBatch
from tfod.viewer.catalog import Catalog, Json
from tfod.viewer.index import UNREADABLE, ShardIndex

_MIN_WIDTH, _MAX_WIDTH, _HEIGHT = 16, 80, 44  # of an image on the page, rem
METHODS = ("overview", "shards", "select", "record")
"""The requests of the page."""


class Session:
    """A check of shards, and the index of its records so far.

    :meth:`answer` may be called in other threads than the one that takes the steps.

    Attributes:
        report: the report; None until the last step.
        problem: why the check could not run; empty if it could.
    """

    def __init__(self, sources: ResolvedSources, options: Options) -> None:
        self._sources, self._options = use_label_map(sources, options), options
        self._catalog = Catalog(self._sources)
        self.report: Report | None = None
        self.problem = ""
        self._lock = threading.RLock()
        self._read = 0
        self._reader: tuple[int, RecordReader] | None = None

    def close(self) -> None:
        """Close the shard that is open."""
        with self._lock:
            if self._reader is not None:
                self._reader[1].close()
            self._reader = None

    def steps(self) -> Iterator[tuple[int, int]]:
        """Check a batch of records at a time, and yield the bytes and records so far.

        Afterwards, there is a :attr:`report`. Raises TfodError like a check.
        """
        records = 0
        with closing(check_steps(self._sources, self._options)) as steps:
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    with self._lock:
                        self._catalog.finish(end.value)
                        self.report = end.value
                    return
                except Exception as error:  # otherwise the page would wait forever
                    self.problem = str(error) or type(error).__name__
                    raise
                with self._lock:
                    self._read += step.read
                    records += step.records
                    self._catalog.add(step)
                yield self._read, records

    # Requests

    def answer(self, method: str, arguments: Mapping[str, Any]) -> Json:
        """Answer a request of the page: :meth:`overview`, :meth:`shards` and so on.

        Raises TfodError if the request is invalid.
        """
        function = getattr(self, method) if method in METHODS else None
        parameters = inspect.signature(function).parameters if function else {}
        for name, value in arguments.items():
            type_ = str if name in ("class_name", "subset", "rule") else int
            if name not in parameters or not (value is None or type(value) is type_):
                raise TfodError(f"the viewer does not know the argument {name}; reload the page")
        if function is None:
            raise TfodError("the viewer does not know this request; reload the page")
        result: Json = function(**arguments)
        return result

    def overview(self, shard: int = 0, number: int = 0) -> Json:
        """Return what is known so far, and the number of findings of a record."""
        with self._lock:
            shards, findings = self._catalog.shards, self._catalog.findings
            sizes = [index.shard.size for index in shards]
            shown = sum(map(len, findings.values()))
            listed = len(self.report.findings) if self.report else shown
            return {
                "complete": self.report is not None or bool(self.problem),
                "problem": self.problem,
                "read": self._read,
                "size": None if None in sizes else sum(filter(None, sizes)),
                "shards": len(shards),
                **self._catalog.count(),
                "findings": len(findings.get((shard, number), ())),
                "others": listed - shown,  # findings of files and of all shards
                # Changes when cards may have changed.
                "version": shown + 2 * (self.report is not None),
            }

    def shards(self) -> Json:
        """Return the names of the shards without their common folder, in the order of numbers."""
        names = [index.shard.name for index in self._catalog.shards]
        common = os.path.commonprefix(names)  # noqa: RUF071 - entries of zips contain a colon
        start = 1 + max(common.rfind(mark) for mark in ("/", os.sep, ":"))
        return {"names": [name[start:] for name in names]}

    @wraps(Catalog.select)
    def select(self, **arguments: Any) -> Json:
        with self._lock:
            return self._catalog.select(**arguments)

    def record(self, shard: int = 0, number: int = 0, width: int = 50) -> Json:
        """Return the card of a record as HTML, with an image for a page of this width in rem.

        Raises TfodError if there is no such record, or it is not reached yet.
        """
        shards = self._catalog.shards
        if not 0 <= shard < len(shards) or number < 0:
            raise TfodError("there is no such record; choose one in the index")
        with self._lock:
            known, record = shards[shard], self._read_record(shard, number)
            findings = list(self._catalog.findings.get((shard, number), ()))
            mapping = self._find_mapping(known)
        location = f"{known.shard.name}, " if len(shards) > 1 else ""
        max_width = float(max(_MIN_WIDTH, min(width, _MAX_WIDTH)))
        size: dict[str, Any] = {"max_height": _HEIGHT, "max_width": max_width}
        if record is not None:
            examples = ExampleBatch.of(RecordBatch.from_record(record, known.shard.name))
            detections = Detections(examples, mapping)
            card, render = make_card(detections, 0, known.label_map, location, findings, **size)
        else:
            sample = Sample(known.shard.name, number, None, None, 0, 0, np.empty((0, 4)), ())
            lines = list_lines(findings, with_fixes=True)
            name = format_record(number)
            card = Card("", name, location + name, lines, ["The record cannot be read."])
            render = partial(draw, sample, **size)
        return {
            "shard": shard,
            "number": number,
            "name": card.name,
            "findings": len(findings),
            "html": render_card(replace(card, svg=render())),
        }

    def _read_record(self, shard: int, number: int) -> Record | None:
        """Read a record; None if it is damaged. Find the next one, so that the page can go on."""
        known = self._catalog.shards[shard]
        self._reach(shard, number + 1)
        count = len(known.offsets)
        if number >= count:
            reason = f"the last record is {count - 1}" if count else "there are no records"
            if self.report is None and not self.problem:
                reason = "the check has not reached this record yet; try again later"
            raise TfodError(f"{known.shard.name}, record {number}: {reason}")
        offset, record = known.offsets[number], None
        if offset != UNREADABLE:
            with suppress(OSError, TfodError):  # the shard was removed
                record = self._get_reader(shard).read(offset, number)
        if number == count - 1 and shard + 1 < len(self._catalog.shards):
            self._reach(shard + 1, 0)
        return record

    def _reach(self, shard: int, number: int) -> None:
        """Find a record before the check reaches it, if the shard can be read at any offset."""
        known = self._catalog.shards[shard]
        if number >= len(known.offsets) and self.report is None:
            with suppress(OSError, TfodError):  # the check reports it
                reader = self._get_reader(shard)
                if reader.is_seekable:
                    known.walk(reader.read_length, number)

    def _get_reader(self, shard: int) -> RecordReader:
        if self._reader is None or self._reader[0] != shard:
            self.close()
            open_shard = self._catalog.shards[shard].shard.open
            open_stream = partial(open_shard, read_ahead=False)
            self._reader = shard, RecordReader(open_stream, self._options.max_record_bytes)
        return self._reader[1]

    def _find_mapping(self, known: ShardIndex) -> FieldMapping:
        """Return the keys of a shard, which the check may not have reached."""
        if known.mapping is None:
            options = self._options
            datasets = self._sources.datasets
            shards = next(item.shards for item in datasets if known.shard in item.shards)
            profile, _, _ = choose_profile(options.profile, shards, options.max_record_bytes)
            known.mapping = profile.field_mapping
        return known.mapping
