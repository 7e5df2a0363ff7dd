"""Where the files of the result lie: as in the source, seen from the folder that was named."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass

from tfod.check.shard_walk import WalkedShard
from tfod.errors import TfodError

LABEL_MAP = "label_map.pbtxt"


@dataclass(frozen=True)
class Layout:
    """Paths of the result.

    Attributes:
        root: folder of the source to which paths are relative.
        output: folder of the result.
    """

    root: str
    output: str

    @classmethod
    def of(cls, source: str, output: str | None) -> Layout:
        """The layout for a file, a folder, a glob or a zip.

        Without a folder of the result its paths are those of the source.
        """
        folder = source if os.path.isdir(source) else os.path.dirname(source)
        while glob.has_magic(folder) and not os.path.lexists(folder):
            folder = os.path.dirname(folder)  # what is in front of the first wildcard
        return cls(os.path.abspath(folder or "."), folder if output is None else output)

    def shard(self, shard: WalkedShard) -> str:
        """Path of a shard's result."""
        root = os.sep if shard.archive else self.root
        relative = os.path.relpath(os.path.abspath(shard.path), root)
        if relative.startswith(os.pardir + os.sep):
            raise TfodError(f"{shard.name}: lies outside {root}; name the folder of all shards")
        return os.path.join(self.output, relative)

    def label_map(self, shard: WalkedShard, named: bool) -> str | None:
        """Path of the label map of a shard's result; None where there is none.

        One that lies above the source comes beside the shards; one for all shards comes beside
        each of them, in place of their own.
        """
        if shard.label_map is None:
            return None
        if named:
            return os.path.join(os.path.dirname(self.shard(shard)), LABEL_MAP)
        return self.companion(shard, shard.label_map.name)

    def companion(self, shard: WalkedShard, path: str) -> str:
        """Path of the result of a file that belongs to a shard."""
        root = os.sep if shard.archive else self.root
        relative = os.path.relpath(os.path.abspath(path), root)
        if relative.startswith(os.pardir + os.sep):
            return os.path.join(os.path.dirname(self.shard(shard)), os.path.basename(path))
        return os.path.join(self.output, relative)
