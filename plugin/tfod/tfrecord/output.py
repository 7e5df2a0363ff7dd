"""Sets of shards in a folder, which take the place of shards and of nothing else."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence

from tfod.errors import ShardsNotFoundError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.shard_sets.search import ShardSet, find_shards, looks_like_shard
from tfod.tfrecord.storage.publishing import Output, OutputExistsError, PendingFile
from tfod.tfrecord.storage.urls import require_local
from tfod.tfrecord.writer import ShardLayout, ShardSetWriter


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
        self._read.require_unprotected(self._folder)
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
            shard_records=layout.shard_records,
            compression=layout.compression or Compression.NONE,
            name_files=name_files,
            output=self,
        )
        return writer

    def add_shard(self, path: str) -> PendingFile:
        """The file of one shard, which is a subset of its own that is called by its path."""
        self._shards.append(path)
        return self.file(path)

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
        self.paths = list(self._temporary_paths)
        subsets = (*self._writers, *self._shards)
        obsolete = [path for subset in subsets for path in self._shards_there(subset)]
        self._require_shards(obsolete)  # somebody else may have written meanwhile
        for path, content in self._texts.items():
            former = _content(path)
            if former != content:
                if not content.startswith((former or b"").rstrip(b"\n")):
                    _require_no_others(path, obsolete)
                file = self.file(path)
                file.write(content)
                file.complete()
        self.obsolete = obsolete
        super().publish()

    def _require_shards(self, paths: Sequence[str]) -> None:
        self._require_replaceable(paths)
        for path in paths:
            if not looks_like_shard(path):
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
