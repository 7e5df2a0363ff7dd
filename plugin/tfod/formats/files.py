"""The images that documents name: one way to find them, whatever the format, and what they are.

Names in documents are those of another machine or another folder, with either slash, without their
extension, or with another one; what is found is read as it is.

Tools show a photo as its EXIF orientation says, or as its pixels are stored. The size that the
annotation gives tells the two apart where the image is turned by a quarter and is not square
(tensorflow#49834, labelImg#376); else it was drawn upright, as every tool of today shows it.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import posixpath
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfod.detection.detection import Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION, QUARTER, UPRIGHT, read_image_header
from tfod.detection.images.upright import opposite, turned_back, with_upright_pixels
from tfod.errors import TfodError
from tfod.formats.options import Options, Problems, Refusal
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
_TWO_NAMES = "images that several names mean, a record for each name"
_LONGEST_IMAGE = 256 << 20
_MOST_PARTS = 16  # of a name, that are looked for alone


class FoundImage(NamedTuple):
    """Where an image is, and what it is called in its dataset: a safe relative path."""

    path: str
    name: str


def ends_of(path: str) -> list[str]:
    """A path with slashes, then its last parts, the longest first."""
    parts = path.split("/")
    first = max(1, len(parts) - _MOST_PARTS)
    return [path, *("/".join(parts[start:]) for start in range(first, len(parts)))]


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
        self._names_of: dict[str, str] = {}  # by their paths the names of images that were found
        self._packed: dict[str, zipfile.ZipInfo] = {}
        self._packed_in: dict[str, list[str]] = {}
        for one in archive.infolist() if archive else ():
            if not one.is_dir():
                above, name = posixpath.split(one.filename)
                self._packed[one.filename] = one
                self._packed_in.setdefault(above, []).append(name)

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
                        where_it_is = _joined(folder, found)
                        if self._names_of.setdefault(where_it_is, path) != path:
                            problems.add(_TWO_NAMES, f"{where}: {path}")
                        return FoundImage(where_it_is, found)
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
            try:
                return self._archive.read(entry)  # as many bytes as that, whatever is packed
            except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
                raise TfodError(
                    f"{wanted_by}: image {found.name!r} cannot be unpacked ({error}); pack it again"
                ) from None
        try:
            with open(found.path, "rb") as file:
                return file.read()
        except OSError as error:
            raise TfodError(
                f"{wanted_by}: the image {found.path} cannot be read ({error.strerror})"
            ) from None

    def first_place(self, name: str) -> str:
        """Where an image is looked for first."""
        return _joined(self._folders[0], safe_relative_path(name))

    def _find(self, folder: str, inside: str, where: str, problems: Problems) -> str | None:
        if self._is_file(_joined(folder, inside)):
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

    def _is_file(self, path: str) -> bool:
        return path in self._packed if self._archive is not None else os.path.isfile(path)

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
            yield from self._packed_in.get(folder, ())
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
    """An image file: its name in its dataset, its bytes, and what these say of format, stored
    size, and EXIF orientation."""

    name: str
    data: bytes
    format: str
    height: int
    width: int
    orientation: int = UPRIGHT

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
) -> ImageFile | None:
    """Find and read an image that a document names; None where there is none.

    This is counted where the image itself is needed, and not only its size.

    Raises:
        TfodError: it cannot be read, or is no image.
    """
    found = images.find(names, where, problems)
    if found is None:
        if is_needed:
            problems.add(_MISSING, f"{images.first_place(names[0])}, of {where}")
        return None
    data = images.read(found, where)
    header = read_image_header(data, 0, len(data))
    if header is None or not header.height or not header.width:
        raise TfodError(
            f"{where}: {found.path} is not a readable image (JPEG, PNG, GIF, BMP, TIFF, WebP)"
        )
    size = header.height, header.width
    return ImageFile(found.name, data, header.format, *size, header.orientation)


# Where it was annotated


Size: TypeAlias = "tuple[int, int]"
"""Height and width in pixels."""
AnnotatedSize: TypeAlias = "tuple[int | None, int | None]"
"""Height and width that an annotation gives; None where it does not."""

TURNED = "images turned as their EXIF orientation shows them, and stored without it"
_TURNED_BACK = "images whose boxes were drawn as EXIF shows them, put on the stored pixels"
TAKEN_UPRIGHT = (
    "images with an EXIF orientation whose sizes do not tell how they were shown, taken as "
    "annotated upright"
)
_EXCHANGED = Refusal(
    "images whose annotation exchanges their height and width, and no EXIF orientation says how "
    "they were turned",
    "export images and annotations together again, or correct the sizes",
)
_CONTRADICTORY = Refusal(
    "images whose boxes fit them only as their EXIF orientation shows them, though their "
    "annotation gives the stored size",
    "correct the annotation's size",
)
OTHER_SIZE = (
    "images of another size than their annotation says; their boxes are divided by the annotation's"
)
_SLOPPY = 1e-3  # of the image's side: boxes may pass its edge by sloppiness, not by a turn


class Frame(NamedTuple):
    """The image as it was annotated.

    Attributes:
        size: height and width that boxes in pixels are divided by; None where nothing says it.
        own: the image's size in this frame, by its header.
        orientation: EXIF's, of the file.
        is_upright: whether it was annotated as that shows it.
    """

    size: Size | None
    own: Size | None
    orientation: int = UPRIGHT
    is_upright: bool = True


def frame_of(
    image: ImageFile | None,
    annotated: AnnotatedSize,
    boxes: Sequence[Sequence[float]],
    where: str,
    problems: Problems,
) -> Frame:
    """Find out in which frame an image was annotated; what contradicts itself is refused.

    Boxes are xmin, ymin, xmax, ymax in the pixels of the annotated size, else of the image; of an
    image without any nothing has to be found out.
    """
    known = (annotated[0], annotated[1]) if annotated[0] and annotated[1] else None
    if image is None:
        return Frame(known, known)
    stored, turn = (image.height, image.width), image.orientation
    by_quarter = turn >= QUARTER
    shown = stored[::-1] if by_quarter else stored
    follows = _agrees(annotated, stored), _agrees(annotated, stored[::-1])
    is_upright = True
    if stored[0] != stored[1] and follows == (False, True) and not by_quarter and len(boxes):
        problems.add(_EXCHANGED, f"{where}: {by(stored[::-1])}, the file {by(stored)}")
    elif by_quarter and follows == (True, False):
        is_upright = False
        if len(boxes) and _fit(boxes, shown) and not _fit(boxes, stored):
            problems.add(_CONTRADICTORY, where)
    elif turn != UPRIGHT and not (by_quarter and follows == (False, True)) and len(boxes):
        problems.add(TAKEN_UPRIGHT, f"{where}: orientation {turn}, {by(stored)}")
    own = shown if is_upright else stored
    size = (annotated[0] or own[0], annotated[1] or own[1]) if len(boxes) else own
    return Frame(size, own, turn, is_upright)


def _agrees(annotated: AnnotatedSize, size: Size) -> bool:
    pairs = zip(annotated, size, strict=True)
    return any(annotated) and all(one in (None, own) for one, own in pairs)


def _fit(boxes: Sequence[Sequence[float]], size: Size) -> bool:
    right, bottom = np.array(boxes, np.float64).reshape(-1, 4)[:, 2:].max(axis=0)
    return bool(right <= size[1] * (1 + _SLOPPY) and bottom <= size[0] * (1 + _SLOPPY))


def by(size: Size) -> str:
    """A size as messages have it: width first."""
    return f"{size[1]}x{size[0]}"


def settled(one: Detection, frame: Frame, options: Options, problems: Problems) -> Detection:
    """A Detection in the frame that is written, from that in which it was annotated.

    Raises:
        TfodError: its image cannot be turned.
    """
    turn = frame.orientation
    if turn == UPRIGHT:
        return one
    if frame.is_upright != options.upright:
        one = turned_back(one, turn if frame.is_upright else opposite(turn))
    if options.upright:
        problems.add(TURNED, f"{one.filename}: orientation {turn}")
        return with_upright_pixels(one) if one.encoded else one
    if frame.is_upright and len(one.boxes):
        problems.add(_TURNED_BACK, f"{one.filename}: orientation {turn}")
    return one
