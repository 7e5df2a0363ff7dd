"""Image files: the search for the files of annotations of any format, and EXIF orientation.

Annotations often contain names from another machine, with a different folder, slash, extension or
form of Unicode. Image files are recognized by their bytes.

Tools show a photo either by its EXIF orientation or as its pixels are stored. The annotated size
shows which if the image is rotated by 90 degrees and is not square (tensorflow#49834,
labelImg#376). Otherwise the photo was annotated upright, as all current tools show it.
"""

from __future__ import annotations

import contextlib
import functools
import ntpath
import os
import posixpath
import unicodedata
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tfod.detection.detection import Detection
from tfod.detection.images.exif_rotation import invert_orientation, rotate_pixels, unrotate
from tfod.detection.images.image import (
    FIRST_TRANSPOSED,
    FORMAT_OF_EXTENSION,
    UPRIGHT,
    read_image_header,
    sniff_format,
)
from tfod.errors import TfodError, excerpt
from tfod.formats.options import ConversionProblems, Options, Refusal
from tfod.tfrecord.image_names import list_names, safe_relative_path, split_extension
from tfod.tfrecord.progress import FILES_READ, PROGRESS
from tfod.tfrecord.shard_sets.search import ALL_LEVELS, walk_files

_MISSING = Refusal(
    "images that are missing",
    "add the images, pass their folder with --images, or write the annotations without images "
    "with --no-images",
)
_AMBIGUOUS = Refusal(
    "image names that match several files",
    "write the whole name with its extension into the annotations, or move the other images away",
)
_REPEATED = "images with several annotations, written as one record per annotation"
_MAX_UNPACKED_BYTES = 256 << 20
_SIGNATURE_BYTES = 16
_MAX_PARTS = 16  # number of trailing parts of a path to search for


def list_files(folder: str, extensions: Collection[str]) -> Iterator[str]:
    """Yield the paths of the files below a folder with these lowercase extensions."""
    paths = walk_files(folder, ALL_LEVELS)
    return (path for path in paths if os.path.splitext(path)[1].lower() in extensions)


def list_suffixes(path: str) -> list[str]:
    """Return a path with forward slashes, followed by its shorter suffixes, the longest first."""
    parts = path.split("/")[-_MAX_PARTS:]
    return [path, *("/".join(parts[start:]) for start in range(1, len(parts)))]


@dataclass(frozen=True)
class ImageFile:
    """An image file: its safe relative name, bytes, stored size and EXIF orientation."""

    name: str
    data: bytes
    height: int
    width: int
    orientation: int = UPRIGHT


class _Listing(NamedTuple):
    """The files in a folder by name, and those that are not hidden by stem, in composed form."""

    names: Mapping[str, str]
    stems: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, names: Sequence[str]) -> _Listing:
        stems: dict[str, list[str]] = {}
        for name in sorted(names):
            if name[0] != ".":
                stems.setdefault(_compose(os.path.splitext(name)[0]), []).append(name)
        composed = {_compose(name): name for name in names}
        return cls({**composed, **dict(zip(names, names, strict=True))}, stems)


def _compose(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def may_read(path: str, root: str | None) -> bool:
    """Return whether a path is inside the root, if any, without passing through a symbolic link."""
    if root is None:
        return True
    real_root = os.path.realpath(root)
    allowed = os.path.join(real_root, os.path.relpath(path, root)), real_root
    return os.path.realpath(path) in allowed


class ImageFiles:
    """A search for image files by the names in annotations.

    A complete path is used if it exists. Otherwise the name is looked up in each folder, also
    without its extension, and then each of its suffixes.

    Args:
        folders: folders to search, in this order; inside the archive, if any.
        archive: zip with the images.
        root: folder of an unpacked archive; files outside it and symbolic links are not read.
    """

    def __init__(
        self,
        folders: Iterable[str],
        archive: zipfile.ZipFile | None = None,
        root: str | None = None,
    ) -> None:
        self._folders = list(dict.fromkeys(folders))
        self._archive = archive
        self._root = root
        self._listings: dict[str, _Listing] = {}
        self._read_paths: set[str] = set()
        if archive is not None:
            entries: dict[str, list[str]] = {}
            for folder, name in map(posixpath.split, archive.namelist()):
                if name:
                    entries.setdefault(folder, []).append(name)
            self._listings = {folder: _Listing.of(names) for folder, names in entries.items()}

    @functools.cached_property
    def _first_parts(self) -> frozenset[str]:
        """Names in the folders, with and without extension, to skip other names quickly."""
        lists = [list_names(folder or ".") for folder in self._folders]
        names = {_compose(name) for names in lists for name in names}
        return frozenset(names | {os.path.splitext(name)[0] for name in names})

    def find(
        self, names: Sequence[str], location: str, problems: ConversionProblems
    ) -> tuple[str, str] | None:
        """Return path and name of the first image that exists, or None; refuse several matches."""
        for name in filter(None, dict.fromkeys(names)):
            has_folder = "/" in name or "\\" in name
            if has_folder and (existing := self._find_path(name.replace("\\", "/"))):
                return existing
            for suffix in list_suffixes(_to_relative(name)) if has_folder else [name]:
                first = _compose(suffix.partition("/")[0])
                is_absent = self._first_parts.isdisjoint((first, split_extension(first)[0]))
                for folder in self._folders if self._archive or not is_absent else ():
                    matches = self._find_in_folder(folder, suffix)
                    if len(matches) > 1:
                        problems.add(_AMBIGUOUS, f"{location}: {', '.join(matches)}")
                    if matches:
                        return _join(folder, matches[0]), matches[0]
        return None

    def _find_path(self, annotated: str) -> tuple[str, str] | None:
        """Return path and name of a file by a path that is absolute or contains ``..``."""
        if self._archive is None and (os.path.isabs(annotated) or ".." in annotated):
            for folder in self._folders:
                path = os.path.normpath(os.path.join(folder, annotated))
                if os.path.isfile(path) and may_read(path, self._root):
                    relative = (os.path.relpath(path, parent) for parent in self._folders)
                    inside = (name for name in relative if name[:2] != "..")
                    return path, next(inside, _to_relative(annotated)).replace(os.sep, "/")
        return None

    def read(
        self, names: Sequence[str], location: str, problems: ConversionProblems, needed: bool = True
    ) -> ImageFile | None:
        """Find and read an image, or return None if it is missing.

        A missing image is a problem if it is ``needed`` for more than its size. Raises TfodError
        for a file that cannot be read, or is not an image.
        """
        match = self.find(names, location, problems)
        if match is None:
            if needed:
                expected = os.path.normpath(os.path.join(self._folders[0], names[0]))
                problems.add(_MISSING, f"{expected}, of {location}")
            return None
        path, name = match
        if path in self._read_paths:
            problems.add(_REPEATED, f"{location}: {name}")
        self._read_paths.add(path)
        data = self.read_bytes(path, location)
        header = read_image_header(data, 0, len(data))
        if header is None or not header.height or not header.width:
            raise TfodError(
                f"{location}: {path} is not a readable image (JPEG, PNG, GIF, BMP, TIFF, WebP)"
            )
        if not header.complete:
            problems.add("truncated images", path)
        return ImageFile(name, data, header.height, header.width, header.orientation)

    def read_bytes(self, path: str, location: str) -> bytes:
        """Return the bytes of an image file; raise TfodError if it cannot be read."""
        PROGRESS.add(FILES_READ)
        try:
            if self._archive is None:
                with open(path, "rb") as file:
                    return file.read()
            entry = self._archive.getinfo(path)
            if entry.file_size > _MAX_UNPACKED_BYTES:
                limit = _MAX_UNPACKED_BYTES >> 20
                raise TfodError(f"{location}: image {excerpt(path)} is longer than {limit} MiB")
            return self._archive.read(entry)  # never reads more than file_size
        except OSError as error:
            reason = error.strerror or error
            raise TfodError(f"{location}: image {path} cannot be read ({reason})") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise TfodError(
                f"{location}: image {excerpt(path)} cannot be unpacked ({error}); pack it again"
            ) from None

    def _find_in_folder(self, folder: str, relative: str) -> list[str]:
        """Return the names in a folder that match a relative path in any form of Unicode."""
        forms = [relative]
        if not relative.isascii():
            forms += (unicodedata.normalize(form, relative) for form in ("NFC", "NFD"))
        for parent, name in map(posixpath.split, dict.fromkeys(forms)):
            names = self._match(_join(folder, parent) if parent else folder, name)
            if paths := [posixpath.join(parent, match) for match in names]:
                return paths
        return []

    def _match(self, folder: str, name: str) -> Sequence[str]:
        listing = self._list(folder)
        if existing := listing.names.get(name) or listing.names.get(_compose(name)):
            return [existing]

        def match_stem(stem: str) -> Sequence[str]:
            names = listing.stems.get(_compose(stem), ())
            images = [x for x in names if os.path.splitext(x)[1].lower() in FORMAT_OF_EXTENSION]
            return images or [name for name in names if is_image_file(_join(folder, name))]

        # A name without an extension may contain dots, such as frame.000123 or a.v2.
        stem, extension = split_extension(name)
        is_image = extension.lower() in FORMAT_OF_EXTENSION
        return (is_image and match_stem(stem)) or match_stem(name) or match_stem(stem)

    def _list(self, folder: str) -> _Listing:
        if folder not in self._listings:
            names: list[str] = []
            if self._archive is None and os.path.isdir(folder or "."):
                with os.scandir(folder or ".") as entries:
                    files = filter(os.DirEntry.is_file, entries)
                    names = [entry.name for entry in files if may_read(entry.path, self._root)]
            self._listings[folder] = _Listing.of(names)
        return self._listings[folder]


def locate_shard_images(folder: str, subset: str) -> ImageFiles:
    """Return a finder for images of shards without images: in the folder and in ``images``."""
    folders = [folder]
    for parent in (folder, os.path.dirname(folder)):
        images = os.path.join(parent, "images")
        folders += [images, os.path.join(images, subset)]
    return ImageFiles(folders)


def _to_relative(path: str) -> str:
    """Convert a path of any system to a safe relative path, without its root or drive."""
    return safe_relative_path(ntpath.splitdrive(path)[1].lstrip("/\\"))


def is_image_file(path: str) -> bool:
    """Return whether the file is an image according to its first bytes."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return sniff_format(file.read(_SIGNATURE_BYTES)) is not None
    return False


def _join(folder: str, relative: str) -> str:
    return os.path.join(folder, *relative.split("/")) if folder else relative


# Orientation


Size: TypeAlias = "tuple[int, int]"
"""Height and width in pixels."""
AnnotatedSize: TypeAlias = "tuple[int | None, int | None]"
"""Height and width in an annotation; None if missing."""

ROTATED_BY_EXIF = "images rotated by their EXIF orientation and stored without it"
_BOXES_ROTATED = "images whose boxes were drawn on the rotated image, moved to the stored pixels"
ASSUMED_UPRIGHT = (
    "images with an EXIF orientation whose size does not reveal how they were shown, assumed to be "
    "annotated upright"
)
_SWAPPED = Refusal(
    "images whose annotated height and width are swapped, without an EXIF orientation that "
    "explains it",
    "export images and annotations together again, or correct the sizes",
)
SIZE_MISMATCH = (
    "images whose size differs from the annotation; boxes were normalized by the annotated size"
)


class Frame(NamedTuple):
    """The frame in which an image was annotated.

    Attributes:
        size: height and width to divide boxes in pixels by; None if unknown.
        image_size: size in the image header, rotated if the image was shown rotated.
        orientation: EXIF orientation of the file.
        is_upright: whether the image was shown rotated by its EXIF orientation.
    """

    size: Size | None
    image_size: Size | None
    orientation: int = UPRIGHT
    is_upright: bool = True


def find_frame(
    image: ImageFile | None,
    annotated: AnnotatedSize,
    has_objects: bool,
    location: str,
    problems: ConversionProblems,
) -> Frame:
    """Find out how an image was shown to annotators, and refuse contradictory sizes.

    Images without objects are not checked. A size without a height or width is ignored.
    """
    height, width = annotated
    size = (height, width) if height and width else None
    if image is None:
        return Frame(size, size)
    stored, orientation = (image.height, image.width), image.orientation
    rotated = stored[::-1] if orientation >= FIRST_TRANSPOSED else stored
    is_upright = size == rotated or size != stored
    if has_objects and size == stored[::-1] != rotated:
        problems.add(_SWAPPED, f"{location}: {format_size(size)}, the file {format_size(stored)}")
    elif has_objects and orientation != UPRIGHT and is_upright and not size == rotated != stored:
        location += f": orientation {orientation}, {format_size(stored)}"
        problems.add(ASSUMED_UPRIGHT, location)
    shown = rotated if is_upright else stored
    return Frame((size if has_objects else None) or shown, shown, orientation, is_upright)


def format_size(size: Size) -> str:
    """Format a size for messages, width first."""
    return f"{size[1]}x{size[0]}"


def to_output_frame(
    detection: Detection, frame: Frame, options: Options, problems: ConversionProblems
) -> Detection:
    """Convert a Detection to the frame to write; raise TfodError if its image is damaged."""
    orientation = frame.orientation
    if orientation == UPRIGHT:
        return detection
    if frame.is_upright != options.upright:
        inverse = invert_orientation(orientation)
        detection = unrotate(detection, orientation if frame.is_upright else inverse)
    location = f"{detection.filename}: orientation {orientation}"
    if options.upright:
        problems.add(ROTATED_BY_EXIF, location)
        return rotate_pixels(detection) if detection.encoded else detection
    if frame.is_upright and len(detection.boxes):
        problems.add(_BOXES_ROTATED, location)
    return detection
