"""Writing of YOLO datasets as Ultralytics reads them: boxes, outlines or poses.

Sources: check_det_dataset and verify_image_label in ultralytics/data/utils.py.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfod.detection.detection import Detection
from tfod.detection.images.mask_images import box_outline
from tfod.detection.images.mask_outlines import trace_mask
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.losses import UNSUPPORTED
from tfod.errors import TfodError, excerpt
from tfod.formats.dataset import Images
from tfod.formats.format_writer import FormatWriter, Mask, get_masks
from tfod.formats.numbers import format_numbers, format_rows, multiply_as_typed
from tfod.formats.options import Options
from tfod.formats.reading.files import list_files
from tfod.formats.yolo.yolo_reader import BOX_NUMBERS, get_label_path
from tfod.tfrecord.shard_sets.shard_names import to_stem

_DECIMALS = 15  # the precision of a double
_DIGITS = 9  # of outlines and keypoints: the precision of a float32
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that YAML does not allow or treats as line ends, and that JSON does not escape."""
_RESERVED_KEYS = (
    *("path", "names", "nc", "channels", "download", "yaml_file"),
    *("kpt_shape", "kpt_names", "flip_idx"),
)
_REQUIRED = ("train", "val")
_VALIDATION = ("valid", "validation")
_NOT_FOR_TRAINING = ("val", *_VALIDATION, "test", "minival")
_OPPOSITE = {"left": "right", "right": "left"}
_SOME_MASKS = "not written, because other objects have no mask; choose --masks"
_BOX_OUTLINES = "objects without a mask, written as the outline of their box"
_OTHER_BOXES = "boxes far from the edges of their mask, replaced by its extent"
_MAX_CUT, _MAX_MOVED, _MAX_GAP = 1.0, 0.5, 4.0
"""Pixels by which a box may cut its mask, extend beyond it, and extend beyond it with a tip. Masks
that were drawn from outlines lack tips that are thinner than a pixel."""
_OUTSIDE = "keypoints outside their image, written as not labelled"


class Writer(FormatWriter):
    """Writes classes in the order of the label map, followed by classes that it lacks.

    Labels are boxes, outlines or poses. Until the last image is read, they may be outlines if all
    objects have masks, and the number of keypoints may grow; earlier labels are then replaced.
    """

    SUPPORTED = frozenset(("masks", "keypoints"))

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        super().__init__(folder, image_folder, options)
        if options.masks and options.keypoints:
            raise TfodError("YOLO stores either masks or keypoints; remove --masks or --keypoints")
        self._numbers: dict[int, int] = {}  # by class id
        self._numbered: LabelMap | None = None
        self._subsets: list[str] = []
        self._counts = Counter[str]()  # of objects with masks and keypoints
        self._has_outlines = not options.keypoints
        self._box_labels: dict[str, bytes] = {}  # of the files with outlines
        self._point_count = 0
        self._written_counts: set[int] = set()  # of keypoints in lines
        self._point_names: Sequence[str] = ()

    def require_name(self, subset: str) -> None:
        super().require_name(subset)
        if subset in _RESERVED_KEYS:
            raise TfodError(
                f"the subset {excerpt(subset)} has a reserved name in data.yaml; rename it"
            )

    def begin(self, subset: str) -> None:
        self._subsets.append(to_stem(subset))

    def add(self, images: Images, label_map: LabelMap) -> None:
        subset = to_stem(images.subset)
        names = self._write_images(images, subset)
        for item in label_map.items if label_map is not self._numbered else ():
            self._numbers.setdefault(item.id, len(self._numbers))
        self._numbered = label_map
        numbers = np.array([self._numbers[class_id] for class_id in images.classes], np.int64)
        left, top, right, bottom = multiply_as_typed(images.boxes, 1).T
        sides = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
        x, y, w, h = (format_numbers(side, _DECIMALS) for side in sides)
        rows = format_rows(format_numbers(numbers), b" ", x, b" ", y, b" ", w, b" ", h, b"\n")
        boxes = rows.splitlines(True)
        self._count_shapes(images)
        lines = self._format_outlines(images, numbers) if self._has_outlines else None
        if lines is None:
            if self._has_outlines:
                self._remove_outlines()
            lines = self._add_keypoints(images, boxes)
        for row, name in enumerate(names):
            path = get_label_path(os.path.join(self.folder, self.IMAGES, subset, name))
            objects = slice(*images.splits[row : row + 2])
            try:
                self._write(path, b"".join(lines[objects]))
            except (FileExistsError, NotADirectoryError):
                raise TfodError(
                    f"image {excerpt(name)} cannot be written, because YOLO would use the same "
                    "label file for another image; rename one of them"
                ) from None
            if self._has_outlines and not self._options.masks:
                self._box_labels[path] = b"".join(boxes[objects])

    def _count_shapes(self, images: Images) -> None:
        """Count objects with masks and keypoints; raise TfodError for both without an option."""
        for detection in () if images.is_plain else images.detections:
            self._counts["masks"] += sum(mask is not None for mask in get_masks(detection))
            if (points := detection.keypoints) is not None and (points.visibility > 0).any():
                self._counts["keypoints"] += int((points.visibility > 0).any(axis=1).sum())
                self._point_count = max(self._point_count, points.xy.shape[1])
                self._point_names = max(self._point_names, points.names, key=len)
        if len(+self._counts) == 2 and not self._options.masks and not self._options.keypoints:
            raise TfodError(
                "the objects have masks and keypoints, but YOLO stores either outlines or poses; "
                "choose --masks or --keypoints"
            )

    def _format_outlines(self, images: Images, numbers: np.ndarray) -> list[bytes] | None:
        """Return a line with the outline of each object; None if an object has no mask."""
        if images.is_plain and len(images.boxes) and not self._options.masks:
            return None
        boxes, lines = multiply_as_typed(images.boxes, 1).clip(0, 1), list[bytes]()
        for row, detection in enumerate(images.detections):
            size = tuple(images.sizes[row].tolist())
            for mask in get_masks(detection):
                box = boxes[len(lines)]
                outline = None if mask is None else self._trace(mask, detection, size, box.tolist())
                if outline is None:
                    if not self._options.masks:
                        return None
                    self.losses[_BOX_OUTLINES][""] += 1
                    outline = np.reshape(box_outline(tuple(box.tolist())), (-1, 2))
                values = " ".join(f"{value:.{_DIGITS}g}" for value in outline.ravel())
                lines.append(f"{numbers[len(lines)]} {values}\n".encode())
        return lines

    def _trace(
        self, mask: Mask, detection: Detection, size: tuple[int, int], box: Sequence[float]
    ) -> np.ndarray | None:
        """Return the normalized outline of a mask, extended to its box; None if it is empty."""
        pixels = self._fit_mask(mask, detection, size)
        outline = trace_mask(pixels) if pixels is not None else np.zeros((0, 2))
        if not len(outline):
            return None
        outline /= size[::-1]
        is_far = False
        for side, value in enumerate(box):  # left, top, right, bottom
            axis, sign = side % 2, 1 if side > 1 else -1
            outward = outline[:, axis] * sign
            index = int(outward.argmax())
            gap = (value * sign - outward[index]) * size[1 - axis]
            if -_MAX_CUT <= gap < _MAX_MOVED:
                outline[outward >= min(outward[index], value * sign), axis] = value
            elif _MAX_MOVED <= gap <= _MAX_GAP:  # by a line of no width, there and back
                tip = outline[index].copy()
                tip[axis] = value
                outline = np.insert(outline, index + 1, [tip, outline[index]], axis=0)
            else:
                is_far = True
        self.losses[_OTHER_BOXES][""] += is_far
        return outline

    def _remove_outlines(self) -> None:
        """Replace the outlines in all files by boxes, because an object has no mask."""
        while self._box_labels:
            self._write(*self._box_labels.popitem(), "wb")
        self._has_outlines = False
        self.losses.pop(_OTHER_BOXES, None)
        self.problems.clear()

    def _add_keypoints(self, images: Images, boxes: list[bytes]) -> list[bytes]:
        """Return the lines of boxes with the keypoints of each object, if there are any."""
        if boxes:
            self._written_counts.add(self._point_count)
        if not self._point_count:
            return boxes
        lines = []
        for row, detection in enumerate(images.detections):
            objects = slice(*images.splits[row : row + 2])
            count, columns = len(boxes[objects]), 3 * self._point_count
            values = np.zeros((count, self._point_count, 3))
            if (points := detection.keypoints) is not None:
                known = values[:, : points.xy.shape[1]]
                xy = multiply_as_typed(points.xy, 1)
                is_inside = (xy.clip(0, 1) == xy).all(axis=2)
                self.losses[_OUTSIDE][""] += int((~is_inside & (points.visibility > 0)).sum())
                is_labelled = is_inside & (points.visibility > 0)
                known[:, :, 2] = points.visibility * is_labelled
                known[:, :, :2] = np.where(is_labelled[:, :, None], xy, 0)
            for box, numbers in zip(boxes[objects], values.reshape(count, columns), strict=True):
                text = "".join(f" {value:.{_DIGITS}g}" for value in numbers.tolist())
                lines.append(b"%b%b\n" % (box[:-1], text.encode()))
        return lines

    def finish(self, label_map: LabelMap) -> None:
        has_poses = self._point_count and not self._options.masks
        if self._options.keypoints and not has_poses:
            raise TfodError("no object has keypoints; remove --keypoints")
        if has_poses and min(self._written_counts, default=0) < self._point_count:
            self._add_missing_keypoints()
        kept = "keypoints" if has_poses else "masks" if self._has_outlines else ""
        for name, count in self._counts.items():
            if name != kept:
                is_choice = not self._options.keypoints and name == "masks"
                self.losses[_SOME_MASKS if is_choice else UNSUPPORTED][name] += count
        for item in label_map.items:
            self._numbers.setdefault(item.id, len(self._numbers))
        self._write(os.path.join(self.folder, "data.yaml"), self._format_yaml(label_map).encode())
        self._write_label_map(label_map)

    def _add_missing_keypoints(self) -> None:
        """Add keypoints that are not labelled to lines that were written before they were known."""
        columns = BOX_NUMBERS + 3 * self._point_count
        for path in list_files(self.folder, (".txt",)):
            lines = Path(path).read_bytes().splitlines()
            missing = (columns - len(line.split()) for line in lines)
            padded = (line + b" 0" * count for line, count in zip(lines, missing, strict=True))
            self._write(path, b"".join(b"%b\n" % line for line in padded), "wb")

    def _format_yaml(self, label_map: LabelMap) -> str:
        # Omit path: without it, Ultralytics uses the folder of the file.
        subsets = self._name_subsets().items()
        lines = [f"{_quote(key)}: {_quote(f'images/{folder}')}\n" for key, folder in subsets]
        if self._point_count and not self._options.masks:
            lines.append(f"kpt_shape: [{self._point_count}, 3]\n")
            names = self._point_names or [
                point.label for item in label_map.items for point in item.keypoints
            ]
            if len(names) == self._point_count:
                mirrored = _find_mirrored(names)
                lines += [f"flip_idx: {mirrored}\n"] if mirrored else []
                quoted = ", ".join(map(_quote, names))
                lines.append("kpt_names:\n")
                lines += (f"  {number}: [{quoted}]\n" for number in self._numbers.values())
        names_by_id = {item.id: item.class_name for item in label_map.items}
        lines.append("names:\n")
        numbers = self._numbers.items()
        lines += (f"  {number}: {_quote(names_by_id[class_id])}\n" for class_id, number in numbers)
        return "".join(lines)

    def _name_subsets(self) -> dict[str, str]:
        """Return the folder of each key of data.yaml, which requires train and val."""
        folders = {name: name for name in self._subsets}
        for name in _VALIDATION:
            if name in folders and "val" not in folders:
                folders = {"val" if key == name else key: folders[key] for key in folders}
        for key in _REQUIRED if folders else ():
            if key not in folders:
                folders[key] = min(folders.values(), key=lambda name: name in _NOT_FOR_TRAINING)
                self.notes.append(
                    f"{key} in data.yaml names the images of {folders[key]}, because Ultralytics "
                    f"requires {key} and SOURCE has no such subset"
                )
        return folders


def _find_mirrored(names: Sequence[str]) -> list[int]:
    """Return the index of the opposite side of each keypoint; empty if their names have none."""
    lower = [name.lower() for name in names]
    mirrored = [re.sub("left|right", lambda side: _OPPOSITE[side[0]], name) for name in lower]
    is_complete = mirrored != lower and sorted(mirrored) == sorted({*lower})
    return [lower.index(name) for name in mirrored] if is_complete else []


def _quote(text: str) -> str:
    # JSON would escape characters above U+FFFF as two, which YAML reads as two characters.
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
