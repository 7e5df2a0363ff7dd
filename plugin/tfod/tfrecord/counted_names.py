"""File names that say how many records are in a file: ``file_00-4096.tfrec``.

That is how the Keras recipe calls its files. Google's codelabs for TPUs and the data sets of Kaggle
do it too: ``flowers00-230.tfrec``, ``train/00-512x512-798.tfrec`` (the number of the file, the size
of the images, the number of records).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tfod.errors import TfodError
from tfod.tfrecord.shards import stem_of_subset, subset_of_stem

EXTENSION = ".tfrec"
_FILE = re.compile(
    r"(?P<stem>.*?)_?(?P<number>\d{2,})(-\d+x\d+)?-(?P<records>\d+)\.tfrec\Z", re.DOTALL
)
# As Datumaro and the recipe call what has no subset.
_NO_SUBSET, _NO_STEM = "default", "file"


@dataclass(frozen=True)
class FileName:
    """What a file's name says.

    Attributes:
        subset: what it is a part of.
        number: of the file, from 0.
        records: how many it has.
    """

    subset: str
    number: int
    records: int


def parse_file_name(path: str) -> FileName | None:
    """Take such a name apart; None when it is none."""
    match = _FILE.match(os.path.basename(path))
    if match is None:
        return None
    stem = match["stem"]
    subset = _NO_SUBSET if stem in ("", _NO_STEM) else subset_of_stem(stem)
    return FileName(subset, int(match["number"]), int(match["records"]))


def file_names(subset: str, records: Sequence[int]) -> list[str]:
    """Names for the files of a subset with so many records each.

    The recipe knows no subsets and calls its files ``file_00-4096.tfrec``; those of a subset have
    its name in front instead: ``train_00-4096.tfrec``.

    Raises:
        TfodError: the subset is called as the files without one are.
    """
    if subset == _NO_STEM:
        raise TfodError(f"a subset called {subset!r} looks like none here; give it another name")
    return [_file_name(FileName(subset, number, count)) for number, count in enumerate(records)]


def _file_name(name: FileName) -> str:
    stem = stem_of_subset(name.subset) if name.subset != _NO_SUBSET else _NO_STEM
    return f"{stem}_{name.number:02d}-{name.records}{EXTENSION}"


def find_files(folder: str) -> dict[str, list[str]]:
    """Absolute paths, by subset, of the files in a folder that :func:`file_names` has named."""
    found: dict[str, list[str]] = {}
    pattern = os.path.join(glob.escape(os.path.abspath(folder)), f"*{EXTENSION}")
    for path in sorted(glob.glob(pattern)):
        name = parse_file_name(path)
        if name is not None and _file_name(name) == os.path.basename(path):
            found.setdefault(name.subset, []).append(path)
    return found
