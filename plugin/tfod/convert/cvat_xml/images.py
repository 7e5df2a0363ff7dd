"""The images that belong to CVAT's XML, by the names of its frames."""

from __future__ import annotations

import os
import posixpath
import zipfile

from tfod.convert.cvat_xml.reader import CvatImage
from tfod.errors import TfodError
from tfod.tfrecord.image_names import safe_relative_path

_LONGEST_IMAGE = 256 << 20


class ZipImages:
    """The images in the server's zip."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in archive.infolist():
            self._entries[entry.filename] = entry
            self._entries.setdefault(posixpath.splitext(entry.filename)[0], entry)

    def read(self, image: CvatImage) -> bytes | None:
        """The bytes of a frame's image; None where the server has sent none."""
        path = posixpath.join("images", image.subset, image.name)
        entry = self._entries.get(path) or self._entries.get(posixpath.splitext(path)[0])
        if entry is None:
            return None
        if entry.file_size > _LONGEST_IMAGE:
            raise TfodError(f"image {image.name!r} is longer than {_LONGEST_IMAGE >> 20} MiB")
        return self._archive.read(entry)  # as many bytes as that, whatever is packed


class FolderImages:
    """The images in a folder, or in one of it that is called as their subset."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, image: CvatImage) -> bytes | None:
        """The bytes of a frame's image; None where there is none."""
        name = safe_relative_path(image.name)
        for inside in (safe_relative_path(image.subset), ""):
            path = os.path.join(self._folder, inside, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    return file.read()
        return None
