"""Unpacking of zips with annotations into a temporary folder, within the limits for archives."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from tfod.errors import TfodError
from tfod.tfrecord.shard_sets.search import is_hidden
from tfod.tfrecord.storage.archive import read_valid_zip, require_readable

_CHUNK_BYTES = 1 << 20


class UnpackedZip(NamedTuple):
    """A zip, and the temporary folder with its files, which has the name of the zip."""

    archive: str
    folder: str

    def to_unpacked_path(self, path_in_zip: str) -> str:
        """Convert a path inside the zip to the path of the unpacked file or folder."""
        return os.path.normpath(self.folder + path_in_zip[len(self.archive) :])

    def restore_paths(self, text: str) -> str:
        """Replace temporary paths in a text by the names of the zip and its entries."""
        text = text.replace(self.folder + os.sep, f"{self.archive}:")
        return text.replace(self.folder, self.archive)


@contextlib.contextmanager
def unpack(archive: str) -> Iterator[UnpackedZip]:
    """Unpack the files of a zip, except for hidden ones, until the context ends.

    Errors that are raised in the context name the zip and its entries. Raises ShardError if the zip
    or an entry is damaged or must not be read, and TfodError if the files cannot be written.
    """
    content = read_valid_zip(archive)
    entries = [entry for entry in content.entries.values() if not is_hidden(entry.inside)]
    for entry in entries:
        require_readable(entry, content)
    with tempfile.TemporaryDirectory(prefix="tfod-unpacked-", ignore_cleanup_errors=True) as parent:
        name = os.path.splitext(os.path.basename(archive))[0]
        unpacked_zip = UnpackedZip(archive, os.path.join(os.path.realpath(parent), name))
        try:
            os.mkdir(unpacked_zip.folder)
            for entry in entries:
                path = unpacked_zip.to_unpacked_path(entry.path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with entry.open() as stream, open(path, "xb") as file:
                    shutil.copyfileobj(stream, file, _CHUNK_BYTES)
        except OSError as error:
            raise TfodError(
                f"{archive} cannot be unpacked into {tempfile.gettempdir()}: {error.strerror}; "
                "free disk space, set TMPDIR to another folder, or unpack it yourself"
            ) from None
        try:
            yield unpacked_zip
        except TfodError as error:
            raise TfodError(unpacked_zip.restore_paths(str(error))) from None
