"""TSK: the CVAT task that shards are meant for.

How CVAT finds the frame of an image: ``match_dm_item`` and ``find_dataset_root`` in its
``dataset_manager/bindings.py``; :mod:`tfod.checker.references.frames` does the same.
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

if TYPE_CHECKING:
    from tfod.checker.references.cvat_task import Frame
    from tfod.checker.references.frames import Attachment

_BINDINGS = "cvat/apps/dataset_manager/bindings.py"
_NAMES_SHOWN = 5
HONEYPOTS = " (honeypots get the boxes of the ground truth)"
_ALL = "all shards"


def _frames(result: DatasetResult) -> Sequence[Frame]:
    return (result.task.frames if result.task else None) or ()


def _attached(result: DatasetResult) -> Iterator[tuple[Attachment, Frame]]:
    """The records that go to a frame, and the frame."""
    for one in result.attachments:
        if one.place is not None:
            yield one, _frames(result)[one.place]


@dataset_rule(
    "TSK001 error: class is not a label of the task",
    why="CVAT stops the whole import at the first annotation whose label the task lacks.",
    fix="Add the label to the task, or rename the class in the shard.",
    source=f"{_BINDINGS}, _get_label_id; cvat-ai/cvat#6304",
)
def unknown_label(result: DatasetResult) -> Iterator[Finding]:
    """The class of boxes, or of a whole image, is none of the labels; case and spaces count."""
    labels = result.task.labels if result.task else None
    if labels is None:
        return
    classes = _as_labelled(result, result.classes, labels)
    tags = _as_labelled(result, result.tags, labels)
    some = join_names([*map(repr, sorted(labels))], _NAMES_SHOWN)
    for text in sorted((classes.keys() - {""} | tags.keys()) - labels):  # LAB014 says "" of boxes
        near = index_labels(labels).find_nearest(text)
        boxes = [plural(classes[text], "box")] * (text in classes)
        uses = " and ".join([*boxes, *[plural(tags[text], "image")] * (text in tags)])
        message = f"class {text!r:.81} of {uses} is not a label of the "
        message += f"task, which has {some}"
        message += f"; did you mean {near!r:.81}?" if near else ""
        fix = f"Rename the class to {near!r:.81}, or add {text!r:.81} to the task." if near else ""
        key = result.profile.key_for(keys.CLASS_TEXT if boxes else keys.IMAGE_CLASS_TEXT)
        yield Finding(message=message, shard=_ALL, item=text, feature=key, value=text, fix=fix)


def _as_labelled(
    result: DatasetResult, classes: Counter[str], labels: frozenset[str]
) -> Counter[str]:
    """The classes by the names that the task has for them: Open Images' are the display names."""
    found: Counter[str] = Counter()
    maps = [one.label_map for one in result.dataset.label_maps.values() if one.label_map]
    for name, count in classes.items():
        items = (one.find(name) for one in maps)
        shown = {item.display_name for item in items if item is not None} & labels
        found[name if name in labels or len(shown) != 1 else shown.pop()] += count
    return found


@dataset_rule(
    "TSK002 error: image matches no frame of the task",
    why="CVAT stops the whole import at the first image that it cannot match with a frame.",
    fix="Rename the image to its frame's name with folders, or leave the record out.",
    source=f"{_BINDINGS}, match_dm_item; cvat-ai/cvat#9307, #4433",
)
def no_frame(result: DatasetResult) -> Iterator[Finding]:
    """Folders count, extensions do not."""
    for one in result.attachments:
        if one.place is None and one.row.filename:
            near = f"; the nearest is {one.nearest!r:.81}" if one.nearest else ""
            message = f"image {one.row.filename!r:.81} matches no frame of the task{near}"
            yield _of_name(result, one, message)
        elif one.place is None:
            message = "record has no file name, so that it matches no frame"
            yield Finding(message, result.profile.key_for(keys.FILENAME)).at(one.row.place)


def _of_name(result: DatasetResult, one: Attachment, message: str) -> Finding:
    return Finding(message, result.profile.key_for(keys.FILENAME), one.row.filename).at(
        one.row.place
    )


@dataset_rule(
    "TSK003 warning: name is read as a frame number",
    why="No frame has this name, so CVAT takes the number in it for a frame and attaches the "
    "annotations there without a word, to another image maybe.",
    fix="Rename the image to the name of the frame that is meant.",
    source=f"{_BINDINGS}, match_dm_item; cvat-ai/cvat#8410",
)
def read_as_number(result: DatasetResult) -> Iterator[Finding]:
    """A name that is a number, or in a video has digits from its seventh letter on."""
    for one, frame in _attached(result):
        if one.by.value != "name":
            how = " for the digits after its sixth letter" * (one.by.value == "digits")
            message = f"image {one.row.filename!r:.81} is the name of no frame and goes to frame "
            message += f"{frame.number}, {frame.name!r:.81}{how}"
            yield _of_name(result, one, message)


@dataset_rule(
    "TSK004 error: size differs from the frame's",
    why="CVAT scales boxes by the size in the record and draws them on its own frame, where they "
    "are off; it does not compare the sizes.",
    fix="Make the shard from the images that the task has.",
    source=f"{_BINDINGS}, import_dm_annotations",
)
def other_size(result: DatasetResult) -> Iterator[Finding]:
    """Width and height as the record says, not as the encoded image has them."""
    for one, frame in _attached(result):
        size, its = (one.row.height, one.row.width), (frame.height, frame.width)
        if None in (*size, *its) or size == its:
            continue
        message = f"image is {size[1]}x{size[0]}, frame {frame.name!r:.81} is {its[1]}x{its[0]}"
        if size == its[::-1]:
            message += ": one of them is turned, as EXIF orientation does"
        key, value = (keys.HEIGHT, size[0]) if size[1] == its[1] else (keys.WIDTH, size[1])
        yield Finding(message, result.profile.key_for(key), value).at(one.row.place)


@dataset_rule(
    "TSK005 info: frames without annotation",
    why="An import replaces what the task has: these frames end up empty.",
    fix="Check that the shard is complete, if these frames should have annotations.",
    source="cvat-sdk 2.80, import_annotations: import_mode is replace by default",
)
def bare_frames(result: DatasetResult) -> Iterator[Finding]:
    """Said once for the task, of its number of frames and the names of the bare ones."""
    frames = _frames(result)
    boxes = {one.place: 0 for one in result.attachments}
    for one in result.attachments:
        boxes[one.place] += one.row.boxes
    parts, bare = [], 0
    for what, count in (("without a record", None), ("with a record without boxes", 0)):
        names = [frame.name for place, frame in enumerate(frames) if boxes.get(place) == count]
        bare += len(names)
        if names:
            parts.append(f"{len(names)} {what} ({join_names(names, _NAMES_SHOWN)})")
    if bare:
        some = f"{bare} of the task's {len(frames)} frames get no annotation"
        yield Finding(message=f"{some}: {', '.join(parts)}", value=bare)


@dataset_rule(
    "TSK006 error: two images go to one frame",
    why="CVAT puts the annotations of both on the one frame.",
    fix="Leave one of the records out, or rename it to the frame that is meant.",
    source=f"{_BINDINGS}, match_dm_item",
)
def shared_frame(result: DatasetResult) -> Iterator[Finding]:
    """Extensions do not count where no frame has the whole name."""
    for one, frame in _attached(result):
        if one.earlier is not None:
            record = "" if one.earlier.record is None else f"record {one.earlier.record}"
            where = ", ".join(filter(None, (one.earlier.shard, record)))
            message = f"image {one.row.filename!r:.81} goes to frame {frame.name!r:.81}, as does "
            message += f"{one.earlier.item!r:.81}" + (f" ({where})" if where else "")
            yield _of_name(result, one, message)


@dataset_rule(
    "TSK007 info: description of the task names no frames",
    why="CVAT for video 1.1 of a task of images holds no names, and an export may be empty; the "
    "images were not compared with the task.",
    fix="Export the task as CVAT for images 1.1, or give its images with --images.",
    source="cvat/apps/dataset_manager/formats/cvat.py, dump_as_cvat_interpolation",
)
def nameless_frames(result: DatasetResult) -> Iterator[Finding]:
    """Said once for the task."""
    source = result.task.without_frames if result.task else None
    if source is not None:
        yield Finding(message=f"{source} names no frames, so that images were not compared")


@dataset_rule(
    "TSK008 error: import deletes what shards cannot hold",
    why="An import replaces what the task has, and what is no box, mask or tag is gone for good.",
    fix="If that is meant, delete them in the task first, or: tfod cvat import --force. "
    "To keep them, import with import_mode=append (CVAT 2.65 and later); tfod cvat import has "
    "--mode append.",
    source="cvat-sdk 2.80, import_annotations: import_mode is replace by default",
)
def deleted_shapes(result: DatasetResult) -> Iterator[Finding]:
    """Skeletons, cuboids, polylines and points of the task; said once."""
    lost = Counter(result.task.unsupported_shapes) if result.task else Counter()
    if lost:
        message = f"it would delete {format_counts(lost)}, which TFRecord cannot hold"
        yield Finding(message=message, value=lost.total())


@dataset_rule(
    "TSK009 error: import empties frames that have annotations",
    why="An import replaces what the task has on all of its frames, also on those that the shards "
    "have no record for: a job's shards, imported into the task, delete what the other jobs have.",
    fix="Import them into the job that they are of, or export the whole task again. "
    "To keep what is there, import with import_mode=append (CVAT 2.65 and later); tfod cvat import "
    "has --mode append. If these are to be empty: a record without boxes, or tfod cvat import "
    "--force.",
    source="cvat/apps/dataset_manager/task.py, import_task_annotations",
)
def emptied_frames(result: DatasetResult) -> Iterator[Finding]:
    """Said once for the task. A frame whose record has no box is meant to be empty."""
    task = result.task
    recorded = {frame.number for _, frame in _attached(result)}
    if task is None or not (recorded if task.own is None else recorded & task.own):
        return
    left = task.annotated - recorded
    # CVAT's placeholders of validation frames have their names, and no record of their own.
    there = {frame.name for _, frame in _attached(result)}
    names = [
        frame.name for frame in _frames(result) if frame.number in left and frame.name not in there
    ]
    if names:
        message = f"it has no record of {plural(len(names), 'frame')} whose annotations it would "
        message += f"delete: {join_names(names, _NAMES_SHOWN)}"
        yield Finding(message=message, value=len(names))


@dataset_rule(
    "TSK010 warning: labels lack attributes",
    why="An import drops the values of attributes that a label does not have, without a message.",
    fix="Add the attributes to the labels of the task before the import.",
    source=f"{_BINDINGS}, _import_attribute",
)
def unknown_attributes(result: DatasetResult) -> Iterator[Finding]:
    """The attributes of all labels together; CVAT's own marks need none."""
    if result.task is None:
        return
    from tfod.formats.cvat.frame_detections import OCCLUDED, TRACK  # few checks have a task

    known = result.task.attributes
    lacking: Counter[str] = Counter()
    for (text, name), count in sum((one.attributes for one in result.shards), Counter()).items():
        (label,) = _as_labelled(result, Counter([text]), frozenset(known))
        if label in known and name not in (*known[label], OCCLUDED, TRACK):
            lacking[name] += count
    if lacking:
        message = "the labels lack attributes of the shards, whose values are lost: "
        yield Finding(message=message + format_counts(lacking), value=lacking.total())


@dataset_rule(
    "TSK011 warning: import replaces annotations with fewer or others",
    why="An import replaces what the task has. No export has the annotations on deleted frames and "
    "honeypots, and TFRecord 1.0 has rectangles for masks, polygons and ellipses.",
    fix="Restore deleted frames before the export, and export TFRecord Masks 1.0.",
    source="cvat/apps/dataset_manager/task.py, _preprocess_input_annotations_for_gt_pool_task",
)
def replaced_annotations(result: DatasetResult) -> Iterator[Finding]:
    """Said once of frames, and once of shapes."""
    task = result.task
    if task is None:
        return
    has_masks = any(result.profile.key_for(keys.MASK) in shard.keys for shard in result.shards)
    hidden, outlines = Counter(task.hidden), Counter({} if has_masks else task.outlines)
    if hidden:
        message = (
            f"frames whose annotations are lost, since no shard has them: {format_counts(hidden)}"
        )
        yield Finding(message + HONEYPOTS * ("honeypots" in hidden), value=hidden.total())
    if outlines:
        message = f"shapes come back as rectangles: {format_counts(outlines)}"
        yield Finding(message=message, value=outlines.total())
