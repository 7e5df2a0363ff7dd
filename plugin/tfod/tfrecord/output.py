"""What a command writes: all of its files appear together, or none does.

Nothing that is there is touched before everything new is complete on disk; and what was read is
never written over.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType

from tfod.errors import ShardsNotFoundError, TfodError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.shard_sets.names import INDEX_EXTENSION
from tfod.tfrecord.shard_sets.search import ShardSet, find_shards, looks_like_shard
from tfod.tfrecord.storage.publishing import (
    AtomicFile,
    OutputExistsError,
    ReadPaths,
    WriteError,
    absent_folders,
    no_folder,
    publish_together,
    remove_folders,
)
from tfod.tfrecord.storage.urls import require_local
from tfod.tfrecord.writer import ShardLayout, ShardSetWriter

_LABEL_MAP = ".pbtxt"


class Output(contextlib.ExitStack):
    """Files and folders that are written beside their names, and get these together.

    Use as a context manager: leaving it publishes all, leaving it by an exception (also
    KeyboardInterrupt) leaves nothing, and what was there before as it was. Every method raises
    OutputExistsError where a file is there that may not be replaced, and WriteError where one
    cannot be written.

    Args:
        sources: the files and folders that are read: nothing is written to them.
        overwrite: whether files that are there may be replaced.
    """

    def __init__(self, sources: Iterable[str], overwrite: bool) -> None:
        super().__init__()
        self._read = ReadPaths(sources)
        self._overwrite = overwrite
        self._asides: dict[str, str] = {}  # by the path of each file or folder to be
        self._stale: list[str] = []

    def add(self, path: str, is_file: bool = False) -> str:
        """A folder to write in, whose files will be in the one of that path.

        Of a file it is where to write it, by whatever name: then :meth:`replace` says by which.

        Raises:
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
        if os.path.lexists(path) and not is_empty:
            self._require_replaceable([path])
        aside = self.enter_context(work_folder(os.path.dirname(path) or "." if is_file else path))
        self._asides[path] = aside
        return aside

    def replace(self, path: str, aside: str) -> None:
        """Let a path have a complete file, that lies on the same disk."""
        self._asides[path] = aside

    def publish(self) -> None:
        """Give all files their names, label maps last; if one cannot have its, none has."""
        pending = dict(pair for pairs in self._asides.items() for pair in _files(*pairs))
        for path in pending:
            if os.path.exists(path) and not os.path.isfile(path):
                what = "a folder" if os.path.isdir(path) else "not a regular file"
                raise OutputExistsError(f"{path} is {what}, where a file is to go; move it away")
            if os.path.lexists(path):
                self._require_replaceable([path])
        last = sorted(pending, key=lambda path: path.endswith(_LABEL_MAP))
        publish_together({path: pending[path] for path in last}, self._stale)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            super().__exit__(kind, error, trace)  # the last one first: the first made the folder
        if isinstance(error, OSError | WriteError):
            self._raise_named(error)

    def _raise_named(self, error: OSError | WriteError) -> None:
        """Name a file as it was asked for, not where it lies until then."""
        text = str(error)
        if isinstance(error, OSError):
            name = error.filename or next(iter(self._asides.values()), "")  # some name no file
            text = f"{name}: cannot be written ({error.strerror or error})"
        for path, aside in self._asides.items():
            if aside in text:
                raise WriteError(text.replace(aside, path)) from None

    def _require_replaceable(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._read.require_other(path)
        if paths and not self._overwrite:
            more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
            raise OutputExistsError(
                f"{paths[0]}{more} is there already; write to another folder, or replace it with "
                "--overwrite"
            )


class OutputFolder(Output):
    """Sets of shards in a folder, and the texts beside them.

    Shards take the place of shards, and of nothing else.

    Args:
        folder: where to write; made when it is not there.
        sources: as of :class:`Output`.
        overwrite: whether shards of the same subsets, and a text of the same name, may go.
        shards_there: finds the files of a subset in the folder; without it they are those that a
            reader takes for this subset.

    Attributes:
        paths: the shards, when they are published.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sources: Iterable[str],
        overwrite: bool = False,
        *,
        shards_there: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        super().__init__(sources, overwrite)
        self._folder = os.fspath(folder)
        require_local(self._folder)
        self._shards_there = shards_there or functools.partial(_shards_of_subset, self._folder)
        self._read.require_other(self._folder)
        self._writers: dict[str, ShardSetWriter] = {}
        self._shards: list[str] = []
        self._texts: dict[str, bytes] = {}
        self.paths: list[str] = []

    def require_free(self, subset: str, name: str = "") -> None:
        """See that a subset, with a file of this name in the folder, may be written."""
        there = self._shards_there(subset)
        where = os.path.abspath(os.path.dirname(os.path.join(self._folder, name)))
        for path in there:
            if os.path.abspath(os.path.dirname(path)) != where:
                raise OutputExistsError(
                    f"{path} would be in one subset with what is written; write to another folder"
                )
        self._require_shards(there)

    def add_subset(
        self,
        subset: str,
        layout: ShardLayout,
        name_files: Callable[[int], Sequence[str]] | None = None,
    ) -> ShardSetWriter:
        """The writer of a subset's shards. Arguments as :class:`ShardSetWriter` has them."""
        self.require_free(subset, name_files(1)[0] if name_files else "")
        writer = self._writers[subset] = ShardSetWriter(
            self._folder,
            subset,
            num_shards=layout.num_shards or 1,
            shard_size=layout.shard_size,
            compression=layout.compression or Compression.NONE,
            name_files=name_files,
        )
        self.callback(writer.discard)
        return writer

    def add_shard(self, path: str) -> AtomicFile:
        """The file of one shard, which is a subset of its own that is called by its path."""
        self._shards.append(path)
        return self._add_file(path)

    def add_text(self, name: str, content: bytes) -> None:
        """A file beside the shards, a label map say; ``name`` is relative to the folder."""
        path = os.path.join(self._folder, name)
        if self._texts.setdefault(path, content) != content:
            raise OutputExistsError(
                f"{path}: two subsets have different files of this name; write them apart"
            )
        if os.path.lexists(path) and _content(path) != content:
            self._require_replaceable([path])

    def publish(self) -> None:
        """Complete all files, then give them their names and remove those that they replace."""
        for writer in self._writers.values():
            writer.complete()
            self._asides |= writer.pending()
        self.paths = list(self._asides)
        subsets = (*self._writers, *self._shards)
        stale = [path for subset in subsets for path in self._shards_there(subset)]
        self._require_shards(stale)  # somebody else may have written meanwhile
        for path, content in self._texts.items():
            if _content(path) != content:
                _require_no_others(path, stale)
                file = self._add_file(path)
                file.write(content)
                file.complete()
        self._stale = [*stale, *(path + INDEX_EXTENSION for path in stale)]  # of a shard that goes
        super().publish()

    def _add_file(self, path: str) -> AtomicFile:
        file = AtomicFile(path)
        self.callback(file.discard)
        self.replace(path, file.aside)
        return file

    def _require_shards(self, paths: Sequence[str]) -> None:
        self._require_replaceable(paths)
        for path in paths:
            if not looks_like_shard(path) and not path.endswith(INDEX_EXTENSION):
                raise OutputExistsError(f"{path} is there already and is no shard; name another")


def _require_no_others(label_map: str, replaced: Iterable[str]) -> None:
    """See that a label map which changes is not that of shards which stay: of other classes.

    Raises:
        OutputExistsError: others than the replaced shards lie beside it.
    """
    if not os.path.lexists(label_map):
        return
    folder, going = os.path.dirname(label_map), set(map(os.path.realpath, replaced))
    for path in (path for one in sets_in(folder) for path in one.paths):
        if os.path.dirname(path) == folder and os.path.realpath(path) not in going:
            raise OutputExistsError(
                f"{label_map} is the label map of {os.path.basename(path)}, too, whose classes "
                "would be others; write to another folder"
            )


def sets_in(folder: str) -> Sequence[ShardSet]:
    """The shards in a folder; none where there is no folder."""
    try:
        return find_shards(folder) if os.path.isdir(folder) else []
    except ShardsNotFoundError:
        return ()


def _shards_of_subset(folder: str, subset: str) -> Sequence[str]:
    return [path for one in sets_in(folder) if one.subset == subset for path in one.paths]


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _files(path: str, aside: str) -> Iterator[tuple[str, str]]:
    """Each file by the path that it will have, where it is now."""
    if not os.path.isdir(aside):
        yield path, aside
        return
    for folder, _, names in os.walk(aside):
        above = os.path.normpath(os.path.join(path, os.path.relpath(folder, aside)))
        yield from ((os.path.join(above, name), os.path.join(folder, name)) for name in names)


@contextlib.contextmanager
def work_folder(inside: str | os.PathLike[str]) -> Iterator[str]:
    """A hidden folder inside the one that is written to, on the same disk; gives its whole path.

    It goes in the end with all that is in it, and so do the folders that were made for it, as far
    as nothing else is in them.
    """
    require_local(os.fspath(inside))
    folder = os.path.abspath(inside)
    path = os.path.join(folder, f".tfod.{os.urandom(8).hex()}.tmp")
    made = absent_folders(folder)
    try:
        try:
            os.makedirs(folder, exist_ok=True)
            os.mkdir(path)
        except OSError as error:
            raise no_folder(os.fspath(inside), error) from None
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        remove_folders(made)
