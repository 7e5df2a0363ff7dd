"""Finding detection CSVs in a folder, and naming those that are written."""

from __future__ import annotations

import os

from tfod.convert.detection_csv import COLUMNS, CsvError, is_detection_csv
from tfod.tfrecord.shards import SPLITS, files_below, stem_of_subset, subset_of_stem

_EXTENSION = ".csv"
_ENDING = "_labels"
# Names that say nothing about the subset; Roboflow calls its CSVs _annotations.
_NO_NAMES = frozenset(("labels", "annotations", "_annotations", "detections", ""))


def find_csvs(path: str) -> list[tuple[str, str]]:
    """Subset and path of the detection CSVs that a file or a folder means.

    A folder is searched three levels deep for CSVs with the header; other CSVs in it are left
    alone. ``train_labels.csv`` is the subset ``train``, as split by the raccoon recipe; a file
    whose name says nothing has the name of its folder, if that is one of a split.

    Raises:
        CsvError: there is none.
    """
    if os.path.isfile(path):
        return [(subset_of_csv(path), path)]
    found = [
        one
        for one in files_below(path)
        if one.lower().endswith(_EXTENSION) and is_detection_csv(one)
    ]
    if not found:
        what = "in this folder or the three levels below it" if os.path.isdir(path) else "there"
        raise CsvError(f"{path}: no CSV with the header {','.join(COLUMNS)} {what}")
    return [(subset_of_csv(one), one) for one in found]


def subset_of_csv(path: str) -> str:
    """The subset that a CSV is by its name, or by its folder's."""
    stem = os.path.splitext(os.path.basename(path))[0]
    if stem.lower() not in _NO_NAMES:
        return subset_of_stem(stem.removesuffix(_ENDING))
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return folder if folder.lower() in SPLITS else "default"


def csv_name(subset: str) -> str:
    """File name of a subset's CSV, as the raccoon recipe has it: ``train_labels.csv``."""
    return stem_of_subset(subset) + _ENDING + _EXTENSION


def our_csvs(folder: str) -> dict[str, list[str]]:
    """Absolute path, by subset, of the CSVs in a folder that are named as an export names them."""
    root = os.path.abspath(folder)
    found: dict[str, list[str]] = {}
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        path = os.path.join(root, name)
        if name.endswith(_ENDING + _EXTENSION) and is_detection_csv(path):
            found.setdefault(subset_of_csv(path), []).append(path)
    return found
