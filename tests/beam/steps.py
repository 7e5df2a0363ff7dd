"""Steps of pipelines that are tried: modules of workers, which have to find them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfod.errors import ShardError

if TYPE_CHECKING:
    import apache_beam as beam


def sums_by_remainder(numbers: int, pipeline: beam.Pipeline) -> beam.PCollection[Any]:
    """The numbers by what is left when they are divided by 3: how many, and their sum."""
    import apache_beam as beam

    return _dealt(pipeline, numbers) | beam.Map(_keyed) | beam.GroupByKey() | beam.Map(_summed)


def nothing(pipeline: beam.Pipeline) -> beam.PCollection[Any]:
    """No elements."""
    import apache_beam as beam

    return _dealt(pipeline, 3) | beam.FlatMap(_none)


def failing(what: str, pipeline: beam.Pipeline) -> beam.PCollection[Any]:
    """One step of several fails."""
    import apache_beam as beam

    return _dealt(pipeline, 4) | beam.Map(partial(_fail_at_two, what))


def dying(pipeline: beam.Pipeline) -> beam.PCollection[Any]:
    """One step kills its process."""
    import apache_beam as beam

    return _dealt(pipeline, 1) | beam.Map(_die)


def leaving(pipeline: beam.Pipeline) -> beam.PCollection[Any]:
    """No steps: the program shall end."""
    raise SystemExit("enough")


def noted(folder: Path, numbers: int, seconds: float, pipeline: beam.Pipeline) -> Any:
    """Each number, after some time, in which a file says which process is at it."""
    import apache_beam as beam

    return _dealt(pipeline, numbers) | beam.Map(partial(_note, folder, seconds))


def large(size: int, pipeline: beam.Pipeline) -> beam.PCollection[Any]:
    """One element of so many bytes."""
    import apache_beam as beam

    return _dealt(pipeline, 1) | beam.Map(partial(_bytes, size))


def _dealt(pipeline: beam.Pipeline, numbers: int) -> beam.PCollection[int]:
    import apache_beam as beam

    return pipeline | beam.Create(range(numbers)) | beam.Reshuffle()


def _keyed(number: int) -> tuple[str, int]:
    return f"remainder {number % 3}", number


def _summed(group: tuple[str, Iterable[int]]) -> tuple[str, int, int]:
    numbers = list(group[1])
    return group[0], len(numbers), sum(numbers)


def _none(_: int) -> Iterator[int]:
    return iter(())


def _fail_at_two(what: str, number: int) -> int:
    if number == 2:
        if what == "shard":
            raise ShardError("is damaged", shard="a.record", record=2, fix="repair it")
        raise ZeroDivisionError("two")
    return number


def _die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _note(folder: Path, seconds: float, number: int) -> int:
    (folder / f"{os.getpid()} {number} {time.monotonic_ns()}").touch()
    time.sleep(seconds)
    return number


def _bytes(size: int, _: int) -> bytes:
    return os.urandom(size)
