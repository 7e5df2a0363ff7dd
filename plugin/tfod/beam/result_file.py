"""What is added to every pipeline: a last step that writes the result.

The elements go into one file, which this machine reads. It has its name only when it is complete,
and a step that is done twice writes it twice. It is written with Beam's own FileSystems: what a
runner's ``--temp_location`` may be, workers can reach with those.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from tfod.errors import TfodError

_NAME = "result.pickle"
_ALL = b"all"
_NONE = b""  # keeps the group from being empty, when there are no elements
_Keyed = tuple[bytes, bytes]


class ResultFile:
    """A file in a folder, which may be a URL.

    Raises:
        TfodError: Beam cannot write there.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        try:
            if not FileSystems.exists(folder):
                FileSystems.mkdirs(folder)
        except Exception as error:  # each file system has its own
            raise TfodError(f"--temp_location: {folder} cannot be made ({error})") from None
        self._path = FileSystems.join(folder, _NAME)

    def take(self, elements: beam.PCollection[Any]) -> None:
        """Add the steps that write all elements."""
        none = elements.pipeline | "tfod/nothing" >> beam.Create([(_ALL, _NONE)])
        pickled = beam.Map(lambda one: (_ALL, pickle.dumps(one))).with_output_types(_Keyed)
        keyed = elements | "tfod/pickle" >> pickled
        (
            (keyed, none)
            | "tfod/with nothing" >> beam.Flatten()
            | "tfod/together" >> beam.GroupByKey()
            | "tfod/write" >> beam.Map(_write, self._path)
        )

    def read(self) -> list[Any]:
        """The elements that were written.

        Raises:
            TfodError: the file is not there.
        """
        try:
            stream = FileSystems.open(self._path)
        except Exception:  # each file system has its own
            raise TfodError(
                f"the pipeline ended and its result is not in {self._folder}; name a folder that "
                "the workers can reach with --temp_location"
            ) from None
        with stream:
            return [pickle.loads(one) for one in pickle.load(stream)]

    def remove(self) -> None:
        """Remove the folder."""
        FileSystems.delete([self._folder])


def _write(group: tuple[bytes, Iterable[bytes]], path: str) -> None:
    aside = f"{path}.{uuid.uuid4().hex}"
    try:
        with FileSystems.create(aside, "application/octet-stream") as stream:
            pickle.dump([one for one in group[1] if one != _NONE], stream)
        FileSystems.rename([aside], [path])
    except OSError as error:
        raise TfodError(
            f"{path}: the result cannot be written ({error.strerror or error}); make room there, "
            "or name another folder with --temp_location"
        ) from None
