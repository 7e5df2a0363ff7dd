"""``labels.txt``: the names of the classes of classification shards, counted from 0.

Two spellings are in use: ``0:daisy`` a line, as tf-slim's scripts write it
(research/slim/datasets/dataset_utils.py of tensorflow/models), and a bare name a line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tfod.detection.labels.label_map import (
    LabelMap,
    LabelMapItem,
    load_label_map,
    read_label_map,
    read_text_file,
)
from tfod.errors import LabelMapError

_LONGEST = 16 << 20
_NUMBERED = re.compile(r"(\d{1,9}):(.*)\Z")


def read_labels(path: str | os.PathLike[str]) -> tuple[LabelMap, list[str]]:
    """Read the classes of a ``labels.txt``.

    Returns:
        The classes with their ids, and an empty list: reading such a file takes no liberties, which
        :func:`read_label_map` returns there.

    Raises:
        LabelMapError: it cannot be read, is no text, or has no name.
    """
    name = os.fspath(path)
    data = read_text_file(name, _LONGEST)
    if len(data) > _LONGEST:
        raise LabelMapError(f"{name} is too long for names of classes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabelMapError(
            f"{name} has no names of classes (byte {error.start} is not UTF-8); save it as UTF-8"
        ) from None
    lines = [line.rstrip("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise LabelMapError(f"{name} has no names of classes; expected a line such as: 0:daisy")
    numbered = [_NUMBERED.match(line) for line in lines if line.strip()]
    pairs = [(int(one[1]), one[2]) for one in numbered if one]
    if len(pairs) < len(numbered):  # bare names, whatever one of them looks like
        pairs = list(enumerate(lines))
    return LabelMap(tuple(LabelMapItem(number, label) for number, label in pairs)), []


def read_classes(path: str | os.PathLike[str]) -> tuple[LabelMap, list[str]]:
    """Read classes from a file: a ``.txt`` as :func:`read_labels`, any other as a label map.

    An id that several classes have, or a class that has several ids, is one of the liberties.

    Raises:
        LabelMapError: it is none.
    """
    read = read_labels if is_labels_file(path) else read_label_map
    label_map, notes = read(path)
    return label_map, [*notes, *notes_of_shared_ids(path, label_map)]


def load_classes(file_or_name: str | os.PathLike[str]) -> tuple[LabelMap, list[str]]:
    """The same, also by the name of a label map that tfod ships (``coco``, …).

    Raises:
        LabelMapError: there is neither such a file nor such a name.
    """
    read = read_labels if is_labels_file(file_or_name) else load_label_map
    label_map, notes = read(file_or_name)
    return label_map, [*notes, *notes_of_shared_ids(file_or_name, label_map)]


def notes_of_shared_ids(name: str | os.PathLike[str], label_map: LabelMap) -> list[str]:
    """Return a sentence if classes share an id, and one if a class has several ids."""
    deviations: list[str] = []
    shared = label_map.names_of_shared_ids
    if shared:
        number, names = next(iter(shared.items()))
        more = f", and so are {len(shared) - 1:,} other ids to several" if len(shared) > 1 else ""
        deviations.append(
            f"{os.fspath(name)}: id {number} is given to {names[0]!r:.81} and "
            f"{names[1]!r:.81}{more}; without a class text it means the first; give every class "
        )
    first: dict[str, int] = {}
    for item in label_map.items:
        if first.setdefault(item.class_name, item.id) != item.id:
            deviations.append(
                f"{os.fspath(name)}: {item.class_name!r:.81} has the ids "
                f"{first[item.class_name]} and {item.id}, which are read as one class; give "
            )
            break
    return deviations


def is_labels_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file is named as a ``labels.txt``, not as a label map."""
    return os.fspath(path).lower().endswith(".txt")


def labels_text(items: Iterable[LabelMapItem]) -> str:
    """The classes as tf-slim's ``labels.txt``.

    Raises:
        LabelMapError: a name has a line break.
    """
    lines = []
    for item in items:
        if len(item.class_name.splitlines()) > 1 or item.class_name.endswith("\n"):
            raise LabelMapError(
                f"the class {item.class_name!r:.81} has a line break, which labels.txt cannot "
                "hold; rename it"
            )
        lines.append(f"{item.id}:{item.class_name}\n")
    return "".join(lines)
