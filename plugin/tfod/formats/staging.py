"""Files of a dataset that appear together: written beside their names, then moved one by one."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from types import TracebackType

from tfod.detection.labels.label_map import read_label_map
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.errors import TfodError
from tfod.formats.dataset import Classes, Converted, Dataset, Images
from tfod.formats.options import Options
from tfod.formats.writer import Writer
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.output_folder import WorkFolder
from tfod.tfrecord.storage.publishing import (
    OutputExistsError,
    ReadPaths,
    WriteError,
    publish_together,
)
from tfod.tfrecord.storage.urls import require_local


def write_files(
    make: type[Writer],
    target: str,
    dataset: Dataset,
    options: Options,
    image_folder: str | None,
    is_file: bool,
) -> Converted:
    """Write a dataset with the writer of another format.

    Args:
        make: the writer.
        target: a folder, or the only file.
        dataset: what is written.
        options: what was asked for.
        image_folder: where the images go; None for the writer's own place.
        is_file: whether the target is the only file.

    Raises:
        OutputExistsError: something is there already.
        TfodError: a subset cannot be written, or whatever reading and writing raise.
        WriteError: a file cannot be written.
    """
    with _Staged(options.overwrite, dataset.sources) as staged:
        folder = staged.add(target)
        images = None
        if not options.no_images and image_folder:
            images = staged.add(image_folder)
        elif not options.no_images and not is_file:
            images = os.path.join(folder, make.IMAGES)
        writer = make(folder, images, options)
        classes = Classes(dataset.label_maps)
        image_counts, object_counts = Counter[str](), Counter[str]()

        def begin(subset: str) -> None:
            _require_name(subset, make)
            image_counts[subset] = object_counts[subset] = 0
            writer.begin(subset)

        for subset in dataset.subsets:
            begin(subset)
        for batch in dataset.read():
            if batch.subset not in image_counts:
                begin(batch.subset)
            found = Images.of(batch, classes)
            writer.add(batch.subset, found, classes.label_map)
            image_counts[batch.subset] += len(found.filenames)
            object_counts[batch.subset] += len(found.boxes)
        writer.finish(classes.label_map)
        notes = list(dataset.finish(image_counts.total(), object_counts.total()))
        if is_file:
            staged.replace(target, _only(writer.documents, target))
            notes += _keep_ids(staged, folder, target)
        staged.publish()
    return Converted(image_counts, object_counts, (*notes, *writer.losses.sentences()))


def _require_name(subset: str, make: type[Writer]) -> None:
    if safe_relative_path(subset) != subset:
        raise TfodError(f"the subset {subset!r} cannot be the name of a folder; rename it")
    if subset in make.NO_SUBSETS:
        raise TfodError(
            f"the subset {subset!r} cannot be written, since the format has that name for "
            "something else; rename it"
        )


def _only(documents: Sequence[str], target: str) -> str:
    if len(documents) == 1:
        return documents[0]
    names = ", ".join(os.path.basename(one) for one in documents)
    raise TfodError(
        f"{target} is one file, and there are {len(documents)} ({names}); name a folder instead"
    )


def _keep_ids(staged: _Staged, folder: str, target: str) -> Iterator[str]:
    """Let a label map go beside the only file, unless one is there; say where that is another."""
    label_map = os.path.join(folder, LABEL_MAP_FILE)
    beside = os.path.join(os.path.dirname(target), LABEL_MAP_FILE)
    if not os.path.isfile(label_map):
        return
    if not os.path.lexists(beside):
        staged.replace(beside, label_map)
        yield f"the ids of the classes are in {beside}"
        return
    there = read_label_map(beside)[0]
    if any(item.id not in there.ids_of(item.name) for item in read_label_map(label_map)[0].items):
        yield f"{beside} is there already, and has other ids of classes than {target}"


class _Staged(contextlib.ExitStack):
    """Files and folders that are written beside their names, and get these together.

    Args:
        overwrite: whether files that are there may be replaced.
        sources: those that are read, which may not.
    """

    def __init__(self, overwrite: bool, sources: Sequence[str]) -> None:
        super().__init__()
        self._overwrite = overwrite
        self._read = ReadPaths(sources)
        self._asides: dict[str, str] = {}

    def add(self, path: str) -> str:
        """Where to write what is to have a name.

        Raises:
            OutputExistsError: something has it.
            TfodError: it is a URL, or lies within another one, or around it.
        """
        require_local(path)
        whole = os.path.abspath(path)
        for other in map(os.path.abspath, self._asides):
            if os.path.commonpath((whole, other)) in (whole, other):
                raise TfodError(
                    f"{path} cannot be where the images go, since {other} is written, too; name a "
                    "folder that is neither in it nor around it, or leave out --images"
                )
        is_empty = os.path.isdir(path) and not os.listdir(path)
        if os.path.lexists(path) and not (is_empty or self._overwrite):
            raise OutputExistsError(
                f"{path} is there already; name another one, or replace its files with --overwrite"
            )
        work = self.enter_context(WorkFolder(os.path.dirname(whole)))
        self._asides[path] = aside = os.path.join(work.path, os.path.basename(work.path))
        os.mkdir(aside)
        return aside

    def replace(self, path: str, aside: str) -> None:
        """Let a name have something else, that lies on the same disk."""
        self._asides[path] = aside

    def publish(self) -> None:
        """Give all files their names, label maps last; if one cannot have its, none has."""
        pending = dict(pair for pairs in self._asides.items() for pair in _files(*pairs))
        label_maps = [path for path in pending if os.path.basename(path) == LABEL_MAP_FILE]
        pending |= {path: pending.pop(path) for path in label_maps}
        for path in pending:
            if os.path.exists(path) and not os.path.isfile(path):
                what = "a folder" if os.path.isdir(path) else "no regular file"
                raise OutputExistsError(f"{path} is {what}, where a file is to go; move it away")
            if os.path.lexists(path):
                self._read.require_other(path)
        publish_together(pending)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, OSError | WriteError):
            raise self._named(error) from None

    def _named(self, error: OSError | WriteError) -> WriteError:
        """An error by the name that is asked for, not by where its file lies until then."""
        text = str(error)
        if isinstance(error, OSError):
            reason = error.strerror or text
            written = f"{next(iter(self._asides), '')}: cannot be written ({reason})"
            text = f"{error.filename}: {reason}" if error.filename else written
        for path, aside in self._asides.items():
            text = text.replace(aside, path)
        return WriteError(text)


def _files(path: str, aside: str) -> Iterator[tuple[str, str]]:
    """Each file by the path that it will have, where it is now."""
    if os.path.isfile(aside):
        yield path, aside
        return
    for folder, _, names in os.walk(aside):
        above = os.path.normpath(os.path.join(path, os.path.relpath(folder, aside)))
        yield from ((os.path.join(above, name), os.path.join(folder, name)) for name in names)
