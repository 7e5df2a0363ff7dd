"""``labels.txt``: the class names of classification shards, counted from 0.

A line is ``0:daisy``, as in tensorflow/models' research/slim/datasets/dataset_utils.py, or a name.
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
from tfod.errors import LabelMapError, excerpt

_MAX_BYTES = 16 << 20
_NUMBERED = re.compile(r"(\d{1,9}):(.*)\Z")


def read_labels(path: str | os.PathLike[str]) -> tuple[LabelMap, list[str]]:
    """Read the classes of a ``labels.txt``, or raise LabelMapError.

    Returns:
        The classes, and an empty list instead of the deviations of :func:`read_label_map`.
    """
    name = os.fspath(path)
    data = read_text_file(name, _MAX_BYTES)
    if len(data) > _MAX_BYTES:
        raise LabelMapError(f"{name} is too long for a list of class names")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabelMapError(
            f"{name} has no class names (byte {error.start} is not UTF-8); save it as UTF-8"
        ) from None
    lines = [line.rstrip("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise LabelMapError(f"{name} has no class names; expected a line such as: 0:daisy")
    numbered = [_NUMBERED.match(line) for line in lines if line.strip()]
    pairs = [(int(match[1]), match[2]) for match in numbered if match]
    if len(pairs) < len(numbered):  # only names, even if some begin with a number
        pairs = list(enumerate(lines))
    return LabelMap(tuple(LabelMapItem(number, label) for number, label in pairs)), []


def read_classes(path: str | os.PathLike[str]) -> tuple[LabelMap, list[str]]:
    """Read classes from a ``labels.txt`` or label map; deviations include ambiguous ids."""
    read = read_labels if is_labels_file(path) else read_label_map
    label_map, notes = read(path)
    return label_map, [*notes, *describe_shared_ids(path, label_map)]


def load_classes(file_or_name: str | os.PathLike[str]) -> tuple[LabelMap, list[str]]:
    """Read classes like :func:`read_classes`, or a shipped label map by name (``coco``, …)."""
    read = read_labels if is_labels_file(file_or_name) else load_label_map
    label_map, notes = read(file_or_name)
    return label_map, [*notes, *describe_shared_ids(file_or_name, label_map)]


def describe_shared_ids(name: str | os.PathLike[str], label_map: LabelMap) -> list[str]:
    """Return a sentence if classes share an id, and one if a class has several ids."""
    deviations: list[str] = []
    shared = label_map.names_of_shared_ids
    if shared:
        number, names = next(iter(shared.items()))
        count = len(shared) - 1
        more = f"; {count:,} more ids are shared by several classes" if count else ""
        deviations.append(
            f"{os.fspath(name)}: id {number} is shared by {excerpt(names[0])} and "
            f"{excerpt(names[1])}{more}; without a class text, an id means its first class; give "
            "every class a unique id"
        )
    first: dict[str, int] = {}
    for item in label_map.items:
        if first.setdefault(item.class_name, item.id) != item.id:
            deviations.append(
                f"{os.fspath(name)}: {excerpt(item.class_name)} has the ids "
                f"{first[item.class_name]} and {item.id}, which are read as one class; give "
                "every class one id"
            )
            break
    return deviations


def is_labels_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is named like a ``labels.txt``, not like a label map."""
    return os.fspath(path).lower().endswith(".txt")


def format_labels(items: Iterable[LabelMapItem]) -> str:
    """Format classes as a ``labels.txt``; LabelMapError if a name has a line break."""
    lines = []
    for item in items:
        if len(item.class_name.splitlines()) > 1 or item.class_name.endswith("\n"):
            raise LabelMapError(
                f"the class {excerpt(item.class_name)} has a line break, which labels.txt cannot "
                "contain; rename it"
            )
        lines.append(f"{item.id}:{item.class_name}\n")
    return "".join(lines)
