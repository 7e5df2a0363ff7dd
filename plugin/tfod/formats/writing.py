"""From a dataset to the files of any format, which appear together."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence

from tfod.detection.labels.label_map import read_label_map
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.errors import TfodError
from tfod.formats.dataset import Classes, Converted, Dataset, Images
from tfod.formats.options import Options
from tfod.formats.writer import Writer
from tfod.tfrecord.storage.publishing import Output, WriteError


def write_all(dataset: Dataset, classes: Classes, writer: Writer, target: str) -> Converted:
    """Read a dataset and write it.

    Args:
        dataset: what is written.
        classes: of its label maps.
        writer: of one format.
        target: what messages call that.

    Raises:
        TfodError: a subset cannot be written, or whatever reading and writing raise.
        WriteError: a file cannot be written.
    """
    images, objects = Counter[str](), Counter[str]()

    def begin(subset: str) -> None:
        writer.require_name(subset)
        images[subset] = objects[subset] = 0
        writer.begin(subset)

    with _write_errors(target):
        for subset in dataset.subsets:
            begin(subset)
    for batch in dataset.read():
        found = Images.of(batch, classes)
        with _write_errors(target):
            if batch.subset not in images:
                begin(batch.subset)
            writer.add(batch.subset, found, classes.label_map)
        images[batch.subset] += len(found.filenames)
        objects[batch.subset] += len(found.boxes)
    notes = dataset.finish(images.total(), objects.total())
    with _write_errors(target):
        writer.finish(classes.label_map)
    return Converted(images, objects, (*notes, *writer.notes, *writer.losses.sentences()))


def write_files(
    make: type[Writer],
    target: str,
    dataset: Dataset,
    options: Options,
    image_folder: str | None,
    is_file: bool,
) -> Converted:
    """Write a dataset as files that lie anywhere in a folder, or as one file.

    Args:
        make: the writer.
        target: a folder, or the only file.
        dataset: what is written.
        options: what was asked for.
        image_folder: where the images go; None for the writer's own place.
        is_file: whether the target is the only file.

    Raises:
        OutputExistsError: something is there already.
        TfodError, WriteError: as of :func:`write_all`.
    """
    with Output(dataset.sources, options.overwrite) as output:
        folder = output.add(target, is_file)
        images = None
        if not options.no_images and image_folder:
            images = output.add(image_folder)
        elif not options.no_images and not is_file:
            images = os.path.join(folder, make.IMAGES)
        writer = make(folder, images, options)
        converted = write_all(dataset, Classes(dataset.label_maps), writer, target)
        if is_file:
            output.replace(target, _only(writer.documents, target))
            notes = _keep_ids(output, folder, target)
            converted = converted._replace(notes=(*converted.notes, *notes))
    return converted


@contextlib.contextmanager
def _write_errors(target: str) -> Iterator[None]:
    """What the system says of a file that is written, and not of which, names the target."""
    try:
        yield
    except OSError as error:
        if error.filename:
            raise
        raise WriteError(f"{target}: cannot be written ({error.strerror or error})") from None


def _only(documents: Sequence[str], target: str) -> str:
    if len(documents) == 1:
        return documents[0]
    names = ", ".join(os.path.basename(one) for one in documents)
    raise TfodError(
        f"{target} is one file, and there are {len(documents)} ({names}); name a folder instead"
    )


def _keep_ids(output: Output, folder: str, target: str) -> Iterator[str]:
    """Let a label map go beside the only file, unless one is there; say where that is another."""
    label_map = os.path.join(folder, LABEL_MAP_FILE)
    beside = os.path.join(os.path.dirname(target), LABEL_MAP_FILE)
    if not os.path.isfile(label_map):
        return
    if not os.path.lexists(beside):
        output.replace(beside, label_map)
        yield f"the ids of the classes are in {beside}"
        return
    there = read_label_map(beside)[0]
    if any(item.id not in there.ids_of(item.name) for item in read_label_map(label_map)[0].items):
        yield f"{beside} is there already, and has other ids of classes than {target}"
