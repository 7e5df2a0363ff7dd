"""TSK rules: the shards, compared with the CVAT task that they will be imported into.

CVAT finds the frame of an image with ``match_dm_item`` and ``find_dataset_root`` in its
``dataset_manager/bindings.py``; :mod:`tfod.checker.references.frames` reimplements them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, join_names, plural
from tfod.checker.rules.registry import dataset_rule
from tfod.detection import keys
from tfod.detection.labels.fuzzy_names import index_labels
from tfod.detection.losses import format_counts
from tfod.errors import excerpt

if TYPE_CHECKING:
    from tfod.checker.references.cvat_task import Frame
    from tfod.checker.references.frames import Attachment

_BINDINGS = "cvat/apps/dataset_manager/bindings.py"
_MAX_NAMES_SHOWN = 5
HONEYPOTS = " (honeypots get the boxes of the ground truth)"
_ALL = "all shards"


def _get_frames(result: DatasetResult) -> Sequence[Frame]:
    return (result.task.frames if result.task else None) or ()


def _find_attached(result: DatasetResult) -> Iterator[tuple[Attachment, Frame]]:
    """Yield the records that match a frame, with the frame."""
    for attachment in result.attachments:
        if attachment.frame_index is not None:
            yield attachment, _get_frames(result)[attachment.frame_index]


@dataset_rule(
    "TSK001 error: class is not a label of the task",
    why="CVAT stops the whole import at the first annotation whose label is not in the task.",
    fix="In CVAT, add the label to the task, or rename the class in the shard.",
    source=f"{_BINDINGS}, _get_label_id; cvat-ai/cvat#6304",
)
def _check_labels(result: DatasetResult) -> Iterator[Finding]:
    labels = result.task.labels if result.task else None
    if labels is None:
        return
    classes = _count_by_label(result, result.classes, labels)
    tags = _count_by_label(result, result.tags, labels)
    listed_labels = join_names([*map(repr, sorted(labels))], _MAX_NAMES_SHOWN)
    # LAB014 reports boxes without a class.
    for text in sorted((classes.keys() - {""} | tags.keys()) - labels):
        near = index_labels(labels).find_nearest(text)
        boxes = [plural(classes[text], "box")] if text in classes else []
        images = [plural(tags[text], "image")] if text in tags else []
        message = f"class {excerpt(text)} of {' and '.join(boxes + images)} is not a label of the "
        message += f"task, which has {listed_labels}"
        message += f"; did you mean {excerpt(near)}?" if near else ""
        fix = (
            f"Rename the class to {excerpt(near)}, or in CVAT, add {excerpt(text)} to the task."
            if near
            else ""
        )
        key = result.profile.key_for(keys.CLASS_TEXT if boxes else keys.IMAGE_CLASS_TEXT)
        yield Finding(message=message, shard=_ALL, item=text, feature=key, value=text, fix=fix)


def _count_by_label(
    result: DatasetResult, classes: Counter[str], labels: frozenset[str]
) -> Counter[str]:
    """Rename classes to the display name if that is a label of the task, as in Open Images."""
    counts: Counter[str] = Counter()
    maps = [file.label_map for file in result.dataset.label_maps.values() if file.label_map]
    for name, count in classes.items():
        items = (label_map.find(name) for label_map in maps)
        display_names = {item.display_name for item in items if item is not None} & labels
        is_unclear = name in labels or len(display_names) != 1
        counts[name if is_unclear else display_names.pop()] += count
    return counts


_WRONG_TASK = (
    "Compare with the task or the images of this dataset: none of its images matches these. If "
    "they are the right ones, name each image as its frame, including folders."
)


@dataset_rule(
    "TSK002 error: image matches no frame of the task",
    why="CVAT stops the whole import at the first image that it cannot match with a frame.",
    fix="In {script}, name the image as its frame, including folders, or omit the record.",
    source=f"{_BINDINGS}, match_dm_item; cvat-ai/cvat#9307, #4433",
)
def _check_frame(result: DatasetResult) -> Iterator[Finding]:
    has_match = any(item.frame_index is not None for item in result.attachments)
    fix = "" if has_match else _WRONG_TASK
    for attachment in result.attachments:
        row = attachment.row
        if attachment.frame_index is None and row.filename:
            similar = attachment.similar_name
            hint = f"; the nearest is {excerpt(similar)}" if similar else ""
            message = f"image {excerpt(row.filename)} matches no frame of the task{hint}"
            yield _report_name(result, attachment, message)._replace(fix=fix)
        elif attachment.frame_index is None:
            message = "the record has no file name, so it matches no frame"
            yield Finding(message, result.profile.key_for(keys.FILENAME)).at(row.location)


def _report_name(result: DatasetResult, attachment: Attachment, message: str) -> Finding:
    key, row = result.profile.key_for(keys.FILENAME), attachment.row
    return Finding(message, key, row.filename).at(row.location)


@dataset_rule(
    "TSK003 warning: name is read as a frame number",
    why="No frame has this name, so CVAT interprets the number in it as a frame number and "
    "silently attaches the annotations to that frame, which may be the wrong image.",
    fix="In {script}, rename the image to the name of the correct frame.",
    source=f"{_BINDINGS}, match_dm_item; cvat-ai/cvat#8410",
)
def _check_frame_number(result: DatasetResult) -> Iterator[Finding]:
    """Report names that CVAT matches by number or, in a video, by the digits after 6 letters."""
    for attachment, frame in _find_attached(result):
        if attachment.matched_by.value != "name":
            is_digits = attachment.matched_by.value == "digits"
            reason = " because of the digits after its sixth letter" if is_digits else ""
            image, name = excerpt(attachment.row.filename), excerpt(frame.name)
            message = f"no frame has the name of image {image}, which is attached to frame "
            yield _report_name(result, attachment, f"{message}{frame.number}, {name}{reason}")


@dataset_rule(
    "TSK004 error: image size differs from the frame",
    why="CVAT scales boxes by the size in the record without comparing it with the frame, so the "
    "boxes end up in the wrong place.",
    fix="In {script}, write the shard with the images of the task.",
    source=f"{_BINDINGS}, import_dm_annotations",
)
def _check_frame_size(result: DatasetResult) -> Iterator[Finding]:
    for attachment, frame in _find_attached(result):
        row = attachment.row
        size, frame_size = (row.height, row.width), (frame.height, frame.width)
        if None in (*size, *frame_size) or size == frame_size:
            continue
        message = f"image is {row.width}x{row.height}, frame {excerpt(frame.name)} is "
        message += f"{frame.width}x{frame.height}"
        if size == frame_size[::-1]:
            message += ": one of them is rotated, as by an EXIF orientation"
        is_height = row.width == frame.width
        key, value = (keys.HEIGHT, row.height) if is_height else (keys.WIDTH, row.width)
        yield Finding(message, result.profile.key_for(key), value).at(row.location)


@dataset_rule(
    "TSK005 info: frames without annotations",
    why="An import replaces the annotations of the task, so these frames end up empty.",
    fix="Check that the shard is complete, if these frames should have annotations.",
    source="cvat-sdk 2.80, import_annotations: import_mode is replace by default",
)
def _check_bare_frames(result: DatasetResult) -> Iterator[Finding]:
    frames = _get_frames(result)
    boxes = {attachment.frame_index: 0 for attachment in result.attachments}
    for attachment in result.attachments:
        boxes[attachment.frame_index] += attachment.row.boxes
    parts, total = [], 0
    for title, count in (("without a record", None), ("with a record without boxes", 0)):
        names = [frame.name for index, frame in enumerate(frames) if boxes.get(index) == count]
        total += len(names)
        if names:
            parts.append(f"{len(names)} {title} ({join_names(names, _MAX_NAMES_SHOWN)})")
    if total:
        message = f"{total} of the task's {len(frames)} frames get no annotations"
        yield Finding(message=f"{message}: {', '.join(parts)}", value=total)


@dataset_rule(
    "TSK006 error: two images match the same frame",
    why="CVAT attaches the annotations of both images to this frame.",
    fix="In {script}, omit one of the records, or give its image the name of the correct frame.",
    source=f"{_BINDINGS}, match_dm_item",
)
def _check_shared_frames(result: DatasetResult) -> Iterator[Finding]:
    for attachment, frame in _find_attached(result):
        earlier = attachment.earlier
        if earlier is not None:
            record = "" if earlier.record is None else f"record {earlier.record}"
            location = ", ".join(filter(None, (earlier.shard, record)))
            image, name = excerpt(attachment.row.filename), excerpt(frame.name)
            message = f"image {image} matches frame {name}, as does {excerpt(earlier.item)}"
            message += f" ({location})" if location else ""
            yield _report_name(result, attachment, message)


@dataset_rule(
    "TSK007 info: description of the task has no frame names",
    why="CVAT for video 1.1 of a task of images stores no names, and an export may be empty; the "
    "images were not compared with the task.",
    fix="Export the task as CVAT for images 1.1, or pass its images with --images.",
    on_page="Export the task as CVAT for images 1.1.",
    source="cvat/apps/dataset_manager/formats/cvat.py, dump_as_cvat_interpolation",
)
def _check_frame_names(result: DatasetResult) -> Iterator[Finding]:
    source = result.task.without_frames if result.task else None
    if source is not None:
        yield Finding(f"{source} has no frame names, so images were not compared with the task")


@dataset_rule(
    "TSK008 error: import deletes shapes that shards cannot store",
    why="An import replaces all annotations of the task. Annotations other than boxes, masks and "
    "tags are lost permanently.",
    fix="To keep them, import with import_mode=append (CVAT 2.65 or later); tfod cvat import has "
    "--mode append. To delete them, do so in the task first; tfod cvat import has --force.",
    on_page="To keep them, import with import_mode=append (CVAT 2.65 or later). To delete them, do "
    "so in the task first.",
    source="cvat-sdk 2.80, import_annotations: import_mode is replace by default",
)
def _check_deleted_shapes(result: DatasetResult) -> Iterator[Finding]:
    lost = Counter(result.task.unsupported_shapes) if result.task else Counter()
    if lost:
        message = f"import deletes {format_counts(lost)}, which shards cannot store"
        yield Finding(message=message, value=lost.total())


@dataset_rule(
    "TSK009 error: import empties frames that have annotations",
    why="An import replaces the annotations on all frames, even those without a record: shards of "
    "a job, imported into the task, delete the annotations of the other jobs.",
    fix="Import the shards into their job, or export the whole task again. To keep existing "
    "annotations, import with import_mode=append (CVAT 2.65 or later); tfod cvat import has --mode "
    "append. To empty the frames, add records without boxes; tfod cvat import has --force.",
    on_page="Import the shards into their job, or export the whole task again. To keep existing "
    "annotations, import with import_mode=append (CVAT 2.65 or later).",
    source="cvat/apps/dataset_manager/task.py, import_task_annotations",
)
def _check_emptied_frames(result: DatasetResult) -> Iterator[Finding]:
    """Report annotated frames without a record; a record without boxes empties one on purpose."""
    task = result.task
    recorded = {frame.number for _, frame in _find_attached(result)}
    if task is None or not (recorded if task.job_frames is None else recorded & task.job_frames):
        return
    emptied = task.annotated - recorded
    # CVAT's placeholders share the names of validation frames, but never have a record.
    recorded_names = {frame.name for _, frame in _find_attached(result)}
    names = [
        frame.name
        for frame in _get_frames(result)
        if frame.number in emptied and frame.name not in recorded_names
    ]
    if names:
        message = f"import deletes the annotations of {plural(len(names), 'frame')} "
        message += f"without a record: {join_names(names, _MAX_NAMES_SHOWN)}"
        yield Finding(message=message, value=len(names))


@dataset_rule(
    "TSK010 warning: labels lack attributes",
    why="An import silently drops the values of attributes that a label does not have.",
    fix="In CVAT, add the attributes to the labels of the task before the import.",
    source=f"{_BINDINGS}, _import_attribute",
)
def _check_attributes(result: DatasetResult) -> Iterator[Finding]:
    """Report attributes that labels lack, except for those that CVAT needs no definition for."""
    if result.task is None:
        return
    from tfod.formats.cvat.frame_detections import OCCLUDED, TRACK  # few checks have a task

    attributes = result.task.attributes
    lacking: Counter[str] = Counter()
    counts = sum((shard.attributes for shard in result.shards), Counter())
    for (text, name), count in counts.items():
        (label,) = _count_by_label(result, Counter([text]), frozenset(attributes))
        if label in attributes and name not in (*attributes[label], OCCLUDED, TRACK):
            lacking[name] += count
    if lacking:
        message = "the labels lack attributes of the shards, whose values are lost: "
        yield Finding(message=message + format_counts(lacking), value=lacking.total())


@dataset_rule(
    "TSK011 warning: import changes or drops existing annotations",
    why="An import replaces all annotations of the task. No export contains those on deleted "
    "frames and honeypots, and TFRecord 1.0 stores masks, polygons and ellipses as rectangles.",
    fix="In CVAT, restore deleted frames before the export, and export TFRecord Masks 1.0.",
    source="cvat/apps/dataset_manager/task.py, _preprocess_input_annotations_for_gt_pool_task",
)
def _check_replaced_annotations(result: DatasetResult) -> Iterator[Finding]:
    task = result.task
    if task is None:
        return
    has_masks = any(result.profile.key_for(keys.MASK) in shard.keys for shard in result.shards)
    hidden, outlines = Counter(task.hidden), Counter({} if has_masks else task.outlines)
    if hidden:
        message = f"import deletes the annotations on hidden frames: {format_counts(hidden)}"
        message += HONEYPOTS if "honeypots" in hidden else ""
        yield Finding(message, value=hidden.total())
    if outlines:
        message = f"shapes become rectangles: {format_counts(outlines)}"
        yield Finding(message, value=outlines.total())
