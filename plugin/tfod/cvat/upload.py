"""Import: a zip of shards into a task, a job or a project."""

from __future__ import annotations

import logging
import os
from typing import Any

from tfod_validator.unpack import unpack_shards

from tfod.cvat.fitting import Fitter
from tfod.cvat.instance import Instance, describe_instance
from tfod.cvat.precheck import require_sound
from tfod.datumaro import lines
from tfod.datumaro.activation import register
from tfod.datumaro.reader import TfDetectionApiBase
from tfod.errors import TfodError, in_plain_words
from tfod.picture import DEFAULT_EXTENSION

_log = logging.getLogger("tfod.cvat")
_FORMAT = TfDetectionApiBase.NAME
_SHARDS, _PICTURES = "shards", "pictures"


def import_zip(
    src_file: Any, temp_dir: str, instance_data: Any, load_data_callback: Any, **options: Any
) -> None:
    """Check a zip, then hand its annotations to CVAT.

    Args:
        src_file: the open zip.
        temp_dir: an empty folder for what is unpacked.
        instance_data: CVAT's ``TaskData``, ``JobData`` or ``ProjectData``.
        load_data_callback: of a project: makes tasks of the pictures. None otherwise.
        options: CVAT's, such as ``conv_mask_to_poly``.

    Raises:
        CvatImportError: exactly of this class, in one line: what is wrong, where, what to do.
            CVAT rolls back what it did before, so that the old annotations are still there.
    """
    from cvat.apps.dataset_manager.bindings import CvatImportError, import_dm_annotations

    try:
        instance = describe_instance(instance_data)
        require_sound(src_file.name, instance)
        to_polygons = bool(options.get("conv_mask_to_poly", True))  # CVAT's default
        dataset = _read(src_file.name, temp_dir, instance, to_polygons)
        if load_data_callback is not None:
            _put_pictures_on_disk(dataset, os.path.join(temp_dir, _PICTURES))
    except (TfodError, lines.errors.DatumaroError) as error:
        # Some servers (2.15) show users the whole traceback of a project's import: keep it short.
        raise CvatImportError(_message(error, temp_dir)) from None
    except OSError as error:
        _log.exception("TFRecord: the zip could not be unpacked")
        raise CvatImportError(
            f"the server could not unpack the zip: {error.strerror}; ask its administrator"
        ) from None
    if load_data_callback is not None:
        load_data_callback(dataset, instance_data)
    import_dm_annotations(dataset, instance_data)


def _read(path: str, temp_dir: str, instance: Instance, to_polygons: bool) -> Any:
    """The zip as a Datumaro dataset whose annotations fit the instance."""
    from cvat.apps.dataset_manager.formats.registry import dm_env
    from datumaro.components.dataset import Dataset

    folder = os.path.join(temp_dir, _SHARDS)
    unpack_shards(path, folder)
    register(dm_env)
    dataset = Dataset.import_from(folder, _FORMAT, env=dm_env)
    _use_display_names(dataset, instance)
    labels = dataset.categories()[lines.AnnotationType.label]
    fitter = Fitter(instance, labels, to_polygons)
    for item in list(dataset):  # on the 0.3 line put() is lost during the first walk
        attributes = {name: one for name, one in item.attributes.items() if name != "frame"}
        dataset.put(item.wrap(annotations=fitter.fit(item), attributes=attributes))
    for loss in fitter.losses():
        _log.warning("TFRecord: %s", loss)
    _leave_out_unused_labels(dataset, instance)
    return dataset


def _use_display_names(dataset: Any, instance: Instance) -> None:
    """Open Images' names are ``/m/01yrx``: take the display name where it is the label's."""
    wanted = instance.task.labels or frozenset()
    labels = dataset.categories()[lines.AnnotationType.label]
    names = [one.name for one in labels]
    mapping = {
        name: item.display_name
        for name, item in zip(names, labels.label_map.items, strict=True)
        if name not in wanted and item.display_name in wanted.difference(names)
    }
    if mapping:
        dataset.transform("remap_labels", mapping=mapping, default="keep")


def _leave_out_unused_labels(dataset: Any, instance: Instance) -> None:
    """CVAT refuses a dataset for a project that lacks a label of its label map, used or not."""
    if instance.noun != "project" or instance.task.labels is None:
        return
    names = [one.name for one in dataset.categories()[lines.AnnotationType.label]]
    # The check has refused labels that annotations have and the project lacks.
    wanted = [name for name in names if name in instance.task.labels]
    if len(wanted) < len(names):
        dataset.transform("project_labels", dst_labels=wanted)


def _put_pictures_on_disk(dataset: Any, folder: str) -> None:
    """Write the pictures as they are in the shards; CVAT makes tasks of files.

    Ids are relative paths that stay in their folder (:mod:`tfod.naming`).
    """
    for item in list(dataset):
        data = None if item.media is None else lines.picture_bytes(item.media)
        if not data:
            raise TfodError(f"picture {item.id!r} cannot be read from its shard; export it again")
        extension = lines.extension_of(item.media, data) or DEFAULT_EXTENSION
        path = os.path.join(folder, item.subset, item.id + extension)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(data)
        size = item.media.size if item.media.has_size else None
        dataset.put(item.wrap(media=lines.image_from_file(path, size)))


def _message(error: Exception, temp_dir: str) -> str:
    """In one line, without the server's paths; ours is the cause of Datumaro's."""
    text = in_plain_words(error) or str(error)
    return " ".join(text.replace(os.path.join(temp_dir, _SHARDS, ""), "").split())
