"""The images that documents name: one way to find them, whatever the format, and what they are.

Names in documents are those of another machine or another folder, with either slash, without their
extension, or with another one; what is found is read as it is.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import posixpath
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfod.detection.images.image import FORMAT_OF_EXTENSION, UPRIGHT, read_image_header
from tfod.errors import TfodError
from tfod.formats.options import Problems, Refusal
from tfod.tfrecord.image_names import safe_relative_path, split_extension

_MISSING = Refusal(
    "images that are missing",
    "put them there, name their folder with --images, or write the annotations alone with "
    "--no-images",
)
_AMBIGUOUS = Refusal(
    "names that several images have",
    "write the whole name with its extension into the annotations, or move the other images away",
)
_LONGEST_IMAGE = 256 << 20


class FoundImage(NamedTuple):
    """Where an image is, and what it is called in its dataset: a safe relative path."""

    path: str
    name: str


def ends_of(path: str) -> list[str]:
    """A path with slashes, then its last parts, the longest first."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]


class ImageFiles:
    """Finds images by the names that documents give them.

    A name is looked for in each folder as it is and by its stem alone, then so by its last parts,
    with either slash in it. Images of one stem that are all the same are one.

    Args:
        folders: where to look, in this order; within a zip the folders of it.
        archive: the zip that the images are in.
    """

    def __init__(self, folders: Iterable[str], archive: zipfile.ZipFile | None = None) -> None:
        self._folders = list(dict.fromkeys(folders))
        self._archive = archive
        self._listed: dict[str, Mapping[str, list[str]]] = {}
        self._packed: dict[str, zipfile.ZipInfo] = {}
        if archive is not None:
            self._packed = {one.filename: one for one in archive.infolist() if not one.is_dir()}

    def find(self, names: Sequence[str], where: str, problems: Problems) -> FoundImage | None:
        """The image of the first of some names that there is one of; None where there is none.

        Several unequal ones of a stem are a refusal, of which the first is returned.
        """
        for path in dict.fromkeys(map(safe_relative_path, names)):
            if not path:
                continue
            for inside in ends_of(path):
                for folder in self._folders:
                    found = self._find(folder, inside, where, problems)
                    if found:
                        return FoundImage(_joined(folder, found), found)
        return None

    def read(self, found: FoundImage, wanted_by: str) -> bytes:
        """The bytes of an image file.

        Raises:
            TfodError: it cannot be read.
        """
        if self._archive is not None:
            entry = self._packed[found.path]
            if entry.file_size > _LONGEST_IMAGE:
                most = _LONGEST_IMAGE >> 20
                raise TfodError(f"{wanted_by}: image {found.name!r} is longer than {most} MiB")
            return self._archive.read(entry)  # as many bytes as that, whatever is packed
        try:
            with open(found.path, "rb") as file:
                return file.read()
        except OSError as error:
            raise TfodError(
                f"{wanted_by}: the image {found.path} cannot be read ({error.strerror})"
            ) from None

    def missing(self, name: str, where: str, problems: Problems) -> None:
        """Count an image that is nowhere, by the place where it was looked for first."""
        path = safe_relative_path(name)
        problems.add(_MISSING, f"{_joined(self._folders[0], path)}, of {where}")

    def _find(self, folder: str, inside: str, where: str, problems: Problems) -> str | None:
        if self._is_file(_joined(folder, inside), where):
            return inside
        above, own = posixpath.split(inside)
        stems = self._images(_joined(folder, above) if above else folder)
        # A stem may have dots: frame.000123 and a.v2 are some without an extension.
        stem, extension = split_extension(own)
        is_image = extension.lower() in FORMAT_OF_EXTENSION
        found = (is_image and stems.get(stem)) or stems.get(own) or stems.get(stem) or []
        if len(found) > 1 and not self._are_equal(folder, above, found):
            problems.add(_AMBIGUOUS, f"{where}: {', '.join(found)}")
        return posixpath.join(above, found[0]) if found else None

    def _is_file(self, path: str, where: str) -> bool:
        if self._archive is not None:
            return path in self._packed
        try:
            return os.path.isfile(path)
        except ValueError:  # half a surrogate pair, which JSON can hold
            name = ascii(path)[1:-1]
            raise TfodError(f"{where}: {name} is not a valid file name; correct it") from None

    def _images(self, folder: str) -> Mapping[str, list[str]]:
        """By their stems the names of the images in a folder."""
        if folder not in self._listed:
            names: dict[str, list[str]] = {}
            for name in sorted(self._names(folder)):
                stem, extension = os.path.splitext(name)
                if extension.lower() in FORMAT_OF_EXTENSION and name[0] != ".":
                    names.setdefault(stem, []).append(name)
            self._listed[folder] = names
        return self._listed[folder]

    def _names(self, folder: str) -> Iterator[str]:
        if self._archive is not None:
            parts = map(posixpath.split, self._packed)
            yield from (name for above, name in parts if above == folder)
        elif os.path.isdir(folder):
            yield from os.listdir(folder)

    def _are_equal(self, folder: str, above: str, names: Sequence[str]) -> bool:
        if self._archive is not None:
            return False
        first, *others = (_joined(folder, posixpath.join(above, name)) for name in names)
        return all(filecmp.cmp(first, other, shallow=False) for other in others)


def _joined(folder: str, inside: str) -> str:
    return os.path.join(folder, *inside.split("/")) if folder else inside


@dataclass(frozen=True)
class ImageFile:
    """An image file: its bytes, and what they say of format, stored size, and EXIF orientation."""

    data: bytes
    format: str
    height: int
    width: int
    orientation: int = UPRIGHT

    @classmethod
    def of(cls, data: bytes, name: str, wanted_by: str) -> ImageFile:
        """What a file's bytes are.

        Raises:
            TfodError: they are no image.
        """
        header = read_image_header(data, 0, len(data))
        if header is None or not header.height or not header.width:
            raise TfodError(
                f"{wanted_by}: {name} is not a readable image (JPEG, PNG, GIF, BMP, TIFF, WebP)"
            )
        return cls(data, header.format, header.height, header.width, header.orientation)

    def fields(self, with_bytes: bool) -> dict[str, Any]:
        """The fields of a Detection that are about the file's bytes."""
        if not with_bytes:
            return {"format": "", "sha256": "", "encoded": b""}
        digest = hashlib.sha256(self.data).hexdigest()
        return {"format": self.format, "sha256": digest, "encoded": self.data}


def read_image(
    images: ImageFiles,
    names: Sequence[str],
    where: str,
    problems: Problems,
    is_needed: bool = True,
) -> tuple[FoundImage, ImageFile] | None:
    """Find and read an image that a document names; None where there is none.

    This is counted where the image itself is needed, and not only its size.

    Raises:
        TfodError: it cannot be read, or is no image.
    """
    found = images.find(names, where, problems)
    if found is None:
        if is_needed:
            images.missing(next(filter(None, names), ""), where, problems)
        return None
    return found, ImageFile.of(images.read(found, where), found.path, where)
