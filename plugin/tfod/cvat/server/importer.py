"""Import: a zip of shards into a task, a job or a project."""

from __future__ import annotations

import errno
import itertools
import logging
import os
from typing import Any

from tfod.check.findings.finding import plural
from tfod.check.references.frames import Matcher, of_other_jobs
from tfod.cvat.server.annotations import AnnotationConverter
from tfod.cvat.server.instance import Instance, describe_instance, shapes_lost
from tfod.cvat.server.refusal import LONGEST_CAUSE, RefusedError, require_sound
from tfod.cvat.server.unpack import unpack_shards
from tfod.datumaro import compat
from tfod.datumaro.activation import register
from tfod.datumaro.reader import TfDetectionApiBase
from tfod.detection.images.image import (
    DEFAULT_EXTENSION,
    EXTENSION_OF_FORMAT,
    FORMAT_OF_EXTENSION,
    sniff_format,
)
from tfod.detection.losses import listed
from tfod.errors import TfodError, in_plain_words

_log = logging.getLogger("tfod.cvat")
_FORMAT = TfDetectionApiBase.NAME
_SHARDS, _IMAGES = "shards", "images"
_FRAME = "frame"
_LONGEST_SUBSET = 64  # of CVAT's tables
_NAMES_FAULT = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG)


def import_zip(
    src_file: Any, temp_dir: str, instance_data: Any, load_data_callback: Any, **options: Any
) -> None:
    """Check a zip, then hand its annotations to CVAT.

    Args:
        src_file: the open zip.
        temp_dir: an empty folder for what is unpacked.
        instance_data: CVAT's ``TaskData``, ``JobData`` or ``ProjectData``.
        load_data_callback: of a project: makes tasks of the images. None otherwise.
        options: CVAT's, such as ``conv_mask_to_poly``.

    Raises:
        CvatImportError: exactly of this class, in one line: what is wrong, where, what to do.
            CVAT rolls back what it did before, so that the old annotations are still there.
    """
    from cvat.apps.dataset_manager.bindings import CvatImportError, import_dm_annotations

    instance = describe_instance(instance_data)
    try:
        to_polygons = bool(options.get("conv_mask_to_poly", True))  # CVAT's default
        dataset = _read(src_file.name, temp_dir, instance, to_polygons)
        if load_data_callback is not None:
            _put_images_on_disk(dataset, os.path.join(temp_dir, _IMAGES))
        else:
            _require_nothing_lost(instance_data, instance)
            dataset = _put_on_frames(dataset, instance)
    except (TfodError, compat.errors.DatumaroError, OSError) as error:
        if isinstance(error, OSError):
            _log.exception("TFRecord: a zip could not be unpacked")
        # Some servers (2.15) show users the whole traceback of a project's import: keep it short.
        raise CvatImportError(_message(error, temp_dir)) from None
    if load_data_callback is not None:
        load_data_callback(dataset, instance_data)
    import_dm_annotations(dataset, instance_data)


def _require_nothing_lost(instance_data: Any, instance: Instance) -> None:
    lost = shapes_lost(instance_data)
    if lost:
        raise RefusedError(
            f"it would delete {listed(lost)}, which TFRecord cannot hold",
            f"If that is meant, delete them in the {instance.noun} first",
            "To keep them, import with import_mode=append (CVAT 2.65 and later)",
        )


def _read(path: str, temp_dir: str, instance: Instance, to_polygons: bool) -> Any:
    """The zip as a Datumaro dataset whose annotations fit the instance."""
    from cvat.apps.dataset_manager.formats.registry import dm_env
    from datumaro.components.dataset import Dataset

    records = require_sound(path, instance)
    folder = os.path.join(temp_dir, _SHARDS)
    unpack_shards(path, folder)
    register(dm_env)
    dataset = Dataset.import_from(folder, _FORMAT, env=dm_env)
    if len(dataset) != records:
        raise TfodError(
            f"{records} records were checked and {len(dataset)} read; report this to tfod"
        )
    _use_display_names(dataset, instance)
    labels = dataset.categories()[compat.AnnotationType.label]
    converter = AnnotationConverter(instance, labels, to_polygons)
    for item in list(dataset):  # on the 0.3 line put() is lost during the first walk
        attributes = {name: one for name, one in item.attributes.items() if name != _FRAME}
        dataset.put(item.wrap(annotations=converter.fit(item), attributes=attributes))
    for loss in converter.losses.sentences():
        _log.warning("TFRecord: %s", loss)
    _leave_out_unused_labels(dataset, instance)
    return dataset


def _put_on_frames(dataset: Any, instance: Instance) -> Any:
    """Name every item by the number of its frame, as the check has found it.

    CVAT's own matching would take frame 0 for none where names lie in folders, and look on; it
    goes by the attribute ``frame`` where it knows no name, and no frame has such names.
    """
    from datumaro.components.dataset import Dataset

    frames = instance.task.frames or ()
    items = list(dataset)
    names = [_filename(item) for item in items]
    matcher = Matcher(instance.task, names)
    named = {os.path.splitext(frame.name)[0] for frame in frames}
    marks = ("frame " + "#" * count for count in itertools.count())
    mark = next(mark for mark in marks if not any(one.startswith(mark) for one in named))
    placed = []
    for item, name in zip(items, names, strict=True):
        frame = frames[matcher.place(name, "the zip")]
        if frame.number not in instance.own_frames:
            continue
        attributes = {**item.attributes, _FRAME: frame.number}
        placed.append(item.wrap(id=f"{mark}{frame.number} {name}", attributes=attributes))
    others = len(items) - len(placed)
    if not placed:
        what = of_other_jobs("this job", others)
        raise RefusedError(what, "Import the zip there, or into the task")
    if others:
        _log.warning("TFRecord: %s of the task's other jobs left out", plural(others, "image"))
    return Dataset.from_iterable(placed, categories=dataset.categories(), media_type=compat.Image)


def _filename(item: Any) -> str:
    """As the record has it."""
    extension = compat.extension_of(item.media, None) if item.media is not None else ""
    return str(item.attributes.get("filename") or item.id + extension)


def _use_display_names(dataset: Any, instance: Instance) -> None:
    """Open Images' names are ``/m/01yrx``: take the display name where it is the label's."""
    wanted = instance.task.labels or frozenset()
    labels = dataset.categories()[compat.AnnotationType.label]
    names = [one.name for one in labels]
    lacking = wanted.difference(names)
    mapping = {
        name: item.display_name
        for name, item in zip(names, labels.label_map.items, strict=True)
        if name not in wanted and item.display_name in lacking
    }
    if mapping:
        dataset.transform("remap_labels", mapping=mapping, default="keep")


def _leave_out_unused_labels(dataset: Any, instance: Instance) -> None:
    """CVAT refuses a dataset for a project that lacks a label of its label map, used or not."""
    if instance.noun != "project" or instance.task.labels is None:
        return
    names = [one.name for one in dataset.categories()[compat.AnnotationType.label]]
    # The check has refused labels that annotations have and the project lacks.
    wanted = [name for name in names if name in instance.task.labels]
    if len(wanted) < len(names):
        dataset.transform("project_labels", dst_labels=wanted)


def _put_images_on_disk(dataset: Any, folder: str) -> None:
    """Write the images as they are in the shards; CVAT makes tasks of files.

    Ids are relative paths that stay in their folder (:mod:`tfod.tfrecord.image_names`).
    """
    for item in list(dataset):
        if len(item.subset) > _LONGEST_SUBSET:
            raise TfodError(
                f"subset {item.subset!r} has {len(item.subset)} letters, CVAT takes "
                f"{_LONGEST_SUBSET}; rename its shard"
            )
        data = None if item.media is None else compat.image_bytes(item.media)
        if not data:
            raise TfodError(f"image {item.id!r} cannot be read from its shard; export it again")
        path = os.path.join(folder, item.subset, item.id + _extension(item.media, data))
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(data)
        except OSError as error:
            if error.errno not in _NAMES_FAULT:
                raise
            raise TfodError(
                f"image {item.id!r} cannot have its name on disk ({error.strerror}); rename it"
            ) from None
        size = item.media.size if item.media.has_size else None
        dataset.put(item.wrap(media=compat.image_from_file(path, size)))


def _extension(media: Any, data: bytes) -> str:
    """An image's: CVAT goes by it, and manifest.jsonl is no image to it whatever it holds."""
    own = compat.extension_of(media, data)
    if own.lower() in FORMAT_OF_EXTENSION:
        return own
    return EXTENSION_OF_FORMAT.get(sniff_format(data[:16]) or "", DEFAULT_EXTENSION)


def _message(error: Exception, temp_dir: str) -> str:
    """In one line, without the server's paths; ours is the cause of Datumaro's."""
    if isinstance(error, RefusedError):
        return str(error)
    if isinstance(error, OSError):
        text = f"the server could not unpack the zip ({error.strerror}); ask its administrator"
    else:
        text = in_plain_words(error) or str(error)
    folder = os.path.join(temp_dir, _SHARDS)
    text = " ".join(text.replace(f"{folder}{os.sep}", "").replace(folder, "").split())
    cause, *details = text.split("; ")
    if len(cause) > LONGEST_CAUSE and " (" in cause:  # whose brackets can wait
        cause, _, rest = cause.partition(" (")
        details.insert(0, rest.replace(")", "", 1))
    return str(RefusedError(cause, *(one[:1].upper() + one[1:] for one in details)))
