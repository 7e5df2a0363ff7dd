"""Converting a dataset: what one format is read as is written as another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

from tfod.convert.dataset import Classes, Converted, Dataset, Images
from tfod.convert.writers.writer import NO_FOLDER, Writer
from tfod.errors import TfodError
from tfod.shards.convert.formats import (
    FORMATS,
    SHARDS,
    ReadOptions,
    format_of_source,
    format_of_target,
)
from tfod.shards.create.problems import STRICT
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.output_folder import WorkFolder
from tfod.tfrecord.storage.publishing import WriteError
from tfod.tfrecord.storage.read_paths import OutputExistsError, ReadPaths
from tfod.tfrecord.storage.urls import require_local


@dataclass(frozen=True)
class Options:
    """What may be asked of a conversion.

    Attributes:
        source_format, target_format: names of formats; None where the paths say it.
        read: what the reader is told; its ``images`` is where the images of shards go.
        leave_out_images: write none.
        num_shards: of each subset, where shards are written.
    """

    source_format: str | None = None
    target_format: str | None = None
    read: ReadOptions = field(default_factory=ReadOptions)
    leave_out_images: bool = False
    num_shards: int = 1


def convert(source: str, target: str, options: Options) -> Converted:
    """Convert a dataset.

    Args:
        source: a path, as the reader of its format takes it.
        target: a folder that is not there or is empty, or a file that is not there, of formats
            that have the annotations of a subset in one; of shards a folder, or the only shard.
        options: what else was asked for.

    Raises:
        OutputExistsError: there is something already, or it is in the source.
        TfodError: the source is not what it should be, no format is named, or an option is of
            another one.
    """
    source_format = format_of_source(source, options.source_format)
    target_format = format_of_target(target, options.target_format, source_format)
    if source_format == SHARDS and options.read.policy != STRICT:
        raise TfodError(
            f"{source}: odd boxes, EXIF orientations and missing images are those of annotations; "
            "leave these options out for shards"
        )
    if target_format != SHARDS and options.num_shards != 1:
        raise TfodError(f"{target}: only shards are written as several files; leave the number out")
    ReadPaths([source]).require_other(target)
    read = FORMATS[source_format].read
    if target_format == SHARDS:
        from tfod.shards.convert.write_shards import write_shards

        return write_shards(
            lambda: read(source, options.read), target, options.num_shards, options.leave_out_images
        )
    # Of another source it is where the images are.
    images = options.read.images if source_format == SHARDS else None
    ending = FORMATS[target_format].ending
    is_file = bool(ending) and target.lower().endswith(ending)
    dataset = read(source, options.read)
    return _write(
        dataset, FORMATS[target_format].writer(), target, images, options.leave_out_images, is_file
    )


def _write(
    dataset: Dataset,
    make: type[Writer],
    target: str,
    image_folder: str | None,
    leave_out_images: bool,
    is_file: bool,
) -> Converted:
    for subset in dataset.subsets:
        if safe_relative_path(subset) != subset:
            raise TfodError(f"the subset {subset!r} cannot be the name of a folder; rename it")
        if subset in make.NO_SUBSETS:
            raise TfodError(
                f"the subset {subset!r} cannot be written, since the format has that name for "
                "something else; rename it"
            )
    with _Staged() as staged:
        folder = staged.add(target)
        images = staged.add(image_folder) if image_folder and not leave_out_images else None
        if images is None and not leave_out_images and not is_file:
            images = os.path.join(folder, make.IMAGES)
        writer = make(folder, images, target)
        classes = Classes(dataset.label_maps)
        image_counts: dict[str, int] = {}
        object_counts: dict[str, int] = {}
        for subset, batches in dataset.subsets.items():
            writer.begin(subset)
            image_counts[subset] = object_counts[subset] = 0
            for batch in batches:
                found = Images.of(batch, classes)
                writer.add(found, classes.label_map)
                image_counts[subset] += len(found.filenames)
                object_counts[subset] += len(found.boxes)
        writer.finish(classes.label_map)
        notes = dataset.finish()
        if is_file:
            staged.replace(target, _only(writer.documents, target))
        if leave_out_images:
            writer.losses.pop(NO_FOLDER, None)
        staged.publish()
    return Converted(image_counts, object_counts, (*notes, *writer.losses.sentences()))


def _only(documents: Sequence[str], target: str) -> str:
    if len(documents) == 1:
        return documents[0]
    names = ", ".join(os.path.basename(one) for one in documents)
    raise TfodError(
        f"{target} is one file, and there are {len(documents)} ({names}); name a folder instead"
    )


class _Staged(contextlib.ExitStack):
    """Files and folders that are written beside their names, and get these together."""

    def __init__(self) -> None:
        super().__init__()
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
        if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
            raise OutputExistsError(f"{path} is there already; name another one")
        work = self.enter_context(WorkFolder(os.path.dirname(os.path.abspath(path))))
        self._asides[path] = aside = os.path.join(work.path, os.path.basename(work.path))
        os.mkdir(aside)
        return aside

    def replace(self, path: str, aside: str) -> None:
        """Let a name have something else, that lies in the same folder."""
        self._asides[path] = aside

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

    def publish(self) -> None:
        """Give all their names; if one cannot have its, none has."""
        done: list[tuple[str, str]] = []
        try:
            for path, aside in reversed(self._asides.items()):
                if os.path.isdir(path):
                    os.rmdir(path)  # it is empty
                os.rename(aside, path)
                done.append((path, aside))
        except BaseException:
            for path, aside in done:
                os.rename(path, aside)
            raise
