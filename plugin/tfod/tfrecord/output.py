"""An output folder for shard sets, which may only replace other shards."""

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
    """A folder for shard sets and text files, where shards may only replace other shards.

    Args:
        folder: folder to write to; it is created if necessary.
        sources: inputs of the command, as for :class:`Output`.
        overwrite: whether shards of the same subsets and texts of the same name may be replaced.
        find_existing: function that returns the existing files of a subset, by default as a reader.
        dry_run: whether to discard everything, as for :class:`Output`.

    Attributes:
        paths: paths of the published shards.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sources: Iterable[str],
        overwrite: bool = False,
        *,
        find_existing: Callable[[str], Sequence[str]] | None = None,
        dry_run: bool = False,
    ) -> None:
        super().__init__(sources, overwrite, dry_run)
        self._folder = os.fspath(folder)
        require_local(self._folder)
        self._find_existing = find_existing or functools.partial(_find_subset, self._folder)
        self._protected.require_unprotected(self._folder)
        self._writers: dict[str, ShardSetWriter] = {}
        self._shards: list[str] = []
        self._texts: dict[str, bytes] = {}
        self.paths: list[str] = []

    def require_writable(self, subset: str, name: str = "") -> None:
        """Check that a subset, with a file ``name`` in the folder, may be written."""
        existing = self._find_existing(subset)
        folder = os.path.abspath(os.path.dirname(os.path.join(self._folder, name)))
        for path in existing:
            if os.path.abspath(os.path.dirname(path)) != folder:
                raise OutputExistsError(
                    f"{path} would be in the same subset as the new shards; write to another folder"
                )
        self._require_shards(existing)

    def add_subset(
        self,
        subset: str,
        layout: ShardLayout,
        name_files: Callable[[int], Sequence[str]] | None = None,
    ) -> ShardSetWriter:
        """Return a writer for the shards of a subset, with arguments as :class:`ShardSetWriter`."""
        self.require_writable(subset, name_files(1)[0] if name_files else "")
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
        """Create the file of a single shard, a separate subset that is named by its path."""
        self._shards.append(path)
        return self.file(path)

    def add_text(self, name: str, content: bytes) -> None:
        """Add a file, such as a label map; ``name`` is relative to the folder."""
        path = os.path.join(self._folder, name)
        if self._texts.setdefault(path, content) != content:
            raise OutputExistsError(
                f"{path}: two subsets have different files of this name; use separate folders"
            )
        if os.path.lexists(path) and _read_file(path) != content:
            self._require_replaceable([path])

    def publish(self) -> None:
        """Complete all files, rename them to their paths and delete the shards they replace."""
        for writer in self._writers.values():
            writer.complete()
        self.paths = list(self._temporary_paths)
        subsets = (*self._writers, *self._shards)
        obsolete = [path for subset in subsets for path in self._find_existing(subset)]
        self._require_shards(obsolete)  # another program may have written files in the meantime
        for path, content in self._texts.items():
            previous = _read_file(path)
            if previous != content:
                if not content.startswith((previous or b"").rstrip(b"\n")):
                    _require_unused(path, obsolete)
                file = self.file(path)
                file.write(content)
                file.complete()
        self.obsolete = obsolete
        super().publish()

    def _require_shards(self, paths: Sequence[str]) -> None:
        self._require_replaceable(paths)
        for path in paths:
            if not looks_like_shard(path):
                raise OutputExistsError(f"{path} exists and is not a shard; choose another name")


def _require_unused(label_map: str, obsolete: Iterable[str]) -> None:
    """Check that a label map to change does not belong to shards that are kept."""
    if not os.path.lexists(label_map):
        return
    folder, replaced = os.path.dirname(label_map), set(map(os.path.realpath, obsolete))
    for path in (path for shard_set in find_sets(folder) for path in shard_set.paths):
        if os.path.dirname(path) == folder and os.path.realpath(path) not in replaced:
            raise OutputExistsError(
                f"{label_map} is also the label map of {os.path.basename(path)}, whose class names "
                "would change; write to another folder"
            )


def find_sets(folder: str) -> Sequence[ShardSet]:
    """Find the shard sets in a folder; return an empty sequence if it has no shards."""
    try:
        return find_shards(folder) if os.path.isdir(folder) else []
    except ShardsNotFoundError:
        return ()


def _find_subset(folder: str, subset: str) -> Sequence[str]:
    sets = [shard_set for shard_set in find_sets(folder) if shard_set.subset == subset]
    return [path for shard_set in sets for path in shard_set.paths]


def _read_file(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
