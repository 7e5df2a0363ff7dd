"""The images that documents name: one way to find them, whatever the format, and what they are.

Names in documents are those of another machine or another folder, with either slash, without their
extension, or with another one; what is found is read as it is.

Tools show a photo as its EXIF orientation says, or as its pixels are stored. The size that the
annotation gives tells the two apart where the image is turned by a quarter and is not square
(tensorflow#49834, labelImg#376); else it was drawn upright, as every tool of today shows it.
"""

from __future__ import annotations

import os
import posixpath
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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
_TWICE = "images that several annotations have, a record for each"
_LONGEST_PACKED = 256 << 20
_MOST_PARTS = 16  # of a name, that are looked for alone


def files_below(folder: str, extensions: Collection[str]) -> Iterator[str]:
    """Paths of the files in a folder and all below it with such lowercase extensions, in order.

    What is hidden is left out; linked folders are followed, but for those that lead back to one
    that they are in.
    """
    around = {folder: frozenset({os.path.realpath(folder)})}
    for where, folders, names in os.walk(folder, followlinks=True):
        above = around.pop(where)
        reals = {one: os.path.realpath(os.path.join(where, one)) for one in sorted(folders)}
        folders[:] = [one for one, real in reals.items() if one[0] != "." and real not in above]
        around |= {os.path.join(where, one): above | {reals[one]} for one in folders}
        for name in sorted(names):
            path = os.path.join(where, name)
            is_wanted = name[0] != "." and os.path.splitext(name)[1].lower() in extensions
            # No pipe; of a link that leads nowhere the reader says that it cannot be read.
            if is_wanted and (os.path.isfile(path) or os.path.islink(path)):
                yield path


def ends_of(path: str) -> list[str]:
    """A path with slashes, then its last parts, the longest first."""
    parts = path.split("/")[-_MOST_PARTS:]
    return [path, *("/".join(parts[start:]) for start in range(1, len(parts)))]


@dataclass(frozen=True)
class ImageFile:
    """An image file: its name in its dataset, a safe relative path; its bytes, and what these say
    of stored size and EXIF orientation."""

    name: str
    data: bytes
    height: int
    width: int
    orientation: int = UPRIGHT


class _Listing(NamedTuple):
    """The names of all files in a folder, and those of its images by their stems."""

    names: frozenset[str]
    images: dict[str, list[str]]

    @classmethod
    def of(cls, names: Sequence[str]) -> _Listing:
        images: dict[str, list[str]] = {}
        for name in sorted(names):
            stem, extension = os.path.splitext(name)
            if extension.lower() in FORMAT_OF_EXTENSION and name[0] != ".":
                images.setdefault(stem, []).append(name)
        return cls(frozenset(names), images)


class ImageFiles:
    """Finds images by the names that documents give them.

    A name is looked for in each folder as it is and by its stem alone, then so by its last parts,
    with either slash in it.

    Args:
        folders: where to look, in this order; within a zip the folders of it.
        archive: the zip that the images are in.
    """

    def __init__(self, folders: Iterable[str], archive: zipfile.ZipFile | None = None) -> None:
        self._folders = list(dict.fromkeys(folders))
        self._archive = archive
        self._listed: dict[str, _Listing] = {}
        self._found: set[str] = set()
        if archive is not None:
            packed: dict[str, list[str]] = {}
            for above, name in map(posixpath.split, archive.namelist()):
                if name:
                    packed.setdefault(above, []).append(name)
            self._listed = {folder: _Listing.of(names) for folder, names in packed.items()}

    def find(self, names: Sequence[str], where: str, problems: Problems) -> tuple[str, str] | None:
        """Path and name of the first of some names that there is an image of; None for none.

        Several of a stem are a refusal, of which the first is returned.
        """
        for path in filter(None, dict.fromkeys(map(safe_relative_path, names))):
            for inside in ends_of(path):
                for folder in self._folders:
                    found = self._find(folder, inside)
                    if len(found) > 1:
                        problems.add(_AMBIGUOUS, f"{where}: {', '.join(found)}")
                    if found:
                        name = posixpath.join(posixpath.dirname(inside), found[0])
                        return _joined(folder, name), name
        return None

    def read(
        self, names: Sequence[str], where: str, problems: Problems, is_needed: bool = True
    ) -> ImageFile | None:
        """Find and read an image that a document names; None where there is none.

        This is counted where the image itself is needed, and not only its size.

        Raises:
            TfodError: it cannot be read, or is no image.
        """
        found = self.find(names, where, problems)
        if found is None:
            if is_needed:
                first = _joined(self._folders[0], safe_relative_path(names[0]))
                problems.add(_MISSING, f"{first}, of {where}")
            return None
        path, name = found
        if path in self._found:
            problems.add(_TWICE, f"{where}: {name}")
        self._found.add(path)
        data = self.content(path, where)
        header = read_image_header(data, 0, len(data))
        if header is None or not header.height or not header.width:
            raise TfodError(
                f"{where}: {path} is not a readable image (JPEG, PNG, GIF, BMP, TIFF, WebP)"
            )
        size = header.height, header.width
        return ImageFile(name, data, *size, header.orientation)

    def content(self, path: str, where: str) -> bytes:
        """The bytes of an image that was found.

        Raises:
            TfodError: it cannot be read.
        """
        try:
            if self._archive is None:
                with open(path, "rb") as file:
                    return file.read()
            entry = self._archive.getinfo(path)
            if entry.file_size > _LONGEST_PACKED:
                most = _LONGEST_PACKED >> 20
                raise TfodError(f"{where}: image {path!r:.81} is longer than {most} MiB")
            return self._archive.read(entry)  # as many bytes as that, whatever is packed
        except OSError as error:
            reason = error.strerror or error
            raise TfodError(f"{where}: the image {path} cannot be read ({reason})") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise TfodError(
                f"{where}: image {path!r:.81} cannot be unpacked ({error}); pack it again"
            ) from None

    def _find(self, folder: str, inside: str) -> list[str]:
        """Names of the images that a name may be, in its part of the folder."""
        above, own = posixpath.split(inside)
        there = self._listing(_joined(folder, above) if above else folder)
        if own in there.names:
            return [own]
        # A stem may have dots: frame.000123 and a.v2 are some without an extension.
        stem, extension = split_extension(own)
        is_image = extension.lower() in FORMAT_OF_EXTENSION
        stems = there.images
        return (is_image and stems.get(stem)) or stems.get(own) or stems.get(stem) or []

    def _listing(self, folder: str) -> _Listing:
        if folder not in self._listed:
            names: list[str] = []
            if self._archive is None and os.path.isdir(folder or "."):
                with os.scandir(folder or ".") as entries:
                    names = [one.name for one in entries if one.is_file()]
            self._listed[folder] = _Listing.of(names)
        return self._listed[folder]


def _joined(folder: str, inside: str) -> str:
    return os.path.join(folder, *inside.split("/")) if folder else inside


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
OTHER_SIZE = (
    "images of another size than their annotation says; their boxes are divided by the annotation's"
)


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
    has_objects: bool,
    where: str,
    problems: Problems,
) -> Frame:
    """Find out in which frame an image was annotated; what contradicts itself is refused.

    Of an image without objects nothing has to be found out. A size that lacks a side says nothing.
    """
    height, width = annotated
    known = (height, width) if height and width else None
    if image is None:
        return Frame(known, known)
    stored, turn = (image.height, image.width), image.orientation
    shown = stored[::-1] if turn >= QUARTER else stored
    is_upright = known == shown or known != stored
    if has_objects and known == stored[::-1] != shown:
        problems.add(_EXCHANGED, f"{where}: {by(known)}, the file {by(stored)}")
    elif has_objects and turn != UPRIGHT and is_upright and not known == shown != stored:
        problems.add(TAKEN_UPRIGHT, f"{where}: orientation {turn}, {by(stored)}")
    own = shown if is_upright else stored
    return Frame((known if has_objects else None) or own, own, turn, is_upright)


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
