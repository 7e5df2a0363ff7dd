"""``P_metadata.yaml`` beside the shards of a cache of MediaPipe Model Maker: classes and size.

Source: mediapipe_model_maker/python/core/data/cache_files.py, TFRecordCacheFiles;
vision/object_detector/dataset_util.py, write_files, and dataset.py, from_cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tfod.errors import LabelMapError, how_to_install

BACKGROUND = "background"
_MOST_IDS = 1 << 16
_LONGEST_LIST = 10


def metadata_text(names: Mapping[int, str], size: int) -> tuple[str, list[str]]:
    """The file for classes, by id, and the number of records.

    Returns:
        The text, and what was added, as sentences (usually nothing): Model Maker counts the names
        to know the largest id, so that an id that is not used needs one.

    Raises:
        LabelMapError: id 0 is another class than the background, or an id is negative or too large.
    """
    if names.get(0, BACKGROUND) != BACKGROUND:
        raise LabelMapError(
            f"Model Maker keeps id 0 for the background, here it is {names[0]!r}; count classes "
            "from 1"
        )
    largest = max(names, default=0)
    if min(names, default=0) < 0 or largest >= _MOST_IDS:
        raise LabelMapError(f"Model Maker reads class ids from 1 to {_MOST_IDS - 1:,}")
    unused = [label for label in range(1, largest + 1) if label not in names]
    every = {0: BACKGROUND, **{label: f"unused_{label}" for label in unused}, **names}
    lines = [
        f"  {label}: {json.dumps(every[label], ensure_ascii=False)}" for label in sorted(every)
    ]
    notes = []
    if unused:
        listed = ", ".join(map(str, unused[:_LONGEST_LIST]))
        more = f" and {len(unused) - _LONGEST_LIST} more" if len(unused) > _LONGEST_LIST else ""
        notes.append(f"no class has the ids {listed}{more}; they are named unused_{unused[0]}, …")
    return "\n".join(("label_map:", *lines, f"size: {size}", "")), notes


def parse_metadata(text: str, name: str) -> tuple[dict[int, str], object]:
    """The classes by id, in the order of the ids, and what the file says is the number of records.

    Raises:
        LabelMapError: it is no such file, or PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise LabelMapError(f"{name} needs PyYAML; {how_to_install('validator')}") from None
    try:
        found = yaml.safe_load(text)
        names = {label: found["label_map"][label] for label in sorted(found["label_map"])}
        size = found.get("size")
    except (yaml.YAMLError, RecursionError, TypeError, LookupError, ValueError, AttributeError):
        names = None
    if not names or not all(type(x) is int and isinstance(y, str) for x, y in names.items()):
        raise LabelMapError(
            f"{name} has no classes; expected lines such as label_map: and below it 1: cat"
        )
    return names, size
