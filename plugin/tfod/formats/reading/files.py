"""The images that documents name: one way to find them, whatever the format, and what they are.

Names in documents are those of another machine or another folder, with either slash, without their
extension, with another one, or in another form of Unicode. Image files are known by their bytes.

Tools show a photo as its EXIF orientation says, or as its pixels are stored. The size that the
annotation gives tells the two apart where the image is turned by a quarter and is not square
(tensorflow#49834, labelImg#376); else it was drawn upright, as every tool of today shows it.
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
from tfod.errors import TfodError
from tfod.formats.options import ConversionProblems, Options, Refusal
from tfod.tfrecord.image_names import names_in_folder, safe_relative_path, split_extension

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
_SIGNATURE = 16
_MOST_PARTS = 16  # of a name, that are looked for alone


def files_below(folder: str, extensions: Collection[str] | None) -> Iterator[str]:
    """Paths of the files in a folder and all below it with such lowercase extensions, in order.

    None is any extension. What is hidden is left out; linked folders are followed, but for those
    that lead back to one that they are in.
    """
    around = {folder: frozenset({os.path.realpath(folder)})}
    for where, folders, names in os.walk(folder, followlinks=True):
        above = around.pop(where)
        reals = {one: os.path.realpath(os.path.join(where, one)) for one in sorted(folders)}
        folders[:] = [one for one, real in reals.items() if one[0] != "." and real not in above]
        around |= {os.path.join(where, one): above | {reals[one]} for one in folders}
        for name in sorted(names):
            path = os.path.join(where, name)
            extension = os.path.splitext(name)[1].lower()
            is_wanted = name[0] != "." and (extensions is None or extension in extensions)
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
    """The names of all files in a folder: by themselves, and by their stems unless hidden.

    Keys are in Unicode's composed form.
    """

    names: Mapping[str, str]
    stems: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, names: Sequence[str]) -> _Listing:
        stems: dict[str, list[str]] = {}
        for name in sorted(names):
            if name[0] != ".":
                stems.setdefault(_composed(os.path.splitext(name)[0]), []).append(name)
        composed = {_composed(name): name for name in names}
        return cls({**composed, **dict(zip(names, names, strict=True))}, stems)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def may_read(path: str, root: str | None) -> bool:
    """Whether a path may be read: with a root only inside it, and not through symbolic links."""
    if root is None:
        return True
    top = os.path.realpath(root)
    return os.path.realpath(path) in (os.path.join(top, os.path.relpath(path, root)), top)


class ImageFiles:
    """Finds images by the names that documents give them.

    A whole path is taken if it exists. Else a name is looked for in each folder as it is and by its
    stem alone, then so by its last parts, with either slash in it.

    Args:
        folders: where to look, in this order; within a zip the folders of it.
        archive: the zip that the images are in.
        root: folder of an unpacked archive; files outside it, and links, are not read.
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
        self._listed: dict[str, _Listing] = {}
        self._found: set[str] = set()
        if archive is not None:
            packed: dict[str, list[str]] = {}
            for above, name in map(posixpath.split, archive.namelist()):
                if name:
                    packed.setdefault(above, []).append(name)
            self._listed = {folder: _Listing.of(names) for folder, names in packed.items()}

    @functools.cached_property
    def _first_parts(self) -> frozenset[str]:
        """First parts of names, with and without extension; no other name needs a look."""
        names = {_composed(x) for folder in self._folders for x in names_in_folder(folder or ".")}
        return frozenset(names | {os.path.splitext(name)[0] for name in names})

    def find(
        self, names: Sequence[str], where: str, problems: ConversionProblems
    ) -> tuple[str, str] | None:
        """Path and name of the first of some names that there is an image of; None for none.

        Several of a stem are a refusal, of which the first is returned.
        """
        for given in filter(None, dict.fromkeys(names)):
            has_folder = "/" in given or "\\" in given
            if has_folder and (existing := self._existing(given.replace("\\", "/"))):
                return existing
            for inside in ends_of(_relative(given)) if has_folder else [given]:
                first = _composed(inside.partition("/")[0])
                is_new = self._first_parts.isdisjoint((first, split_extension(first)[0]))
                for folder in self._folders if self._archive or not is_new else ():
                    found = self._find(folder, inside)
                    if len(found) > 1:
                        problems.add(_AMBIGUOUS, f"{where}: {', '.join(found)}")
                    if found:
                        return _joined(folder, found[0]), found[0]
        return None

    def _existing(self, given: str) -> tuple[str, str] | None:
        """Path and name of a file that a document has the whole path of, or one with ``..``."""
        if self._archive is None and (os.path.isabs(given) or ".." in given):
            for path in (os.path.normpath(os.path.join(one, given)) for one in self._folders):
                if os.path.isfile(path) and may_read(path, self._root):
                    inside = (os.path.relpath(path, one) for one in self._folders)
                    name = next((one for one in inside if one[:2] != ".."), _relative(given))
                    return path, name.replace(os.sep, "/")
        return None

    def read(
        self, names: Sequence[str], where: str, problems: ConversionProblems, is_needed: bool = True
    ) -> ImageFile | None:
        """Find and read an image that a document names; None where there is none.

        This is counted where the image itself is needed, and not only its size.

        Raises:
            TfodError: it cannot be read, or is no image.
        """
        found = self.find(names, where, problems)
        if found is None:
            if is_needed:
                looked_for = os.path.normpath(os.path.join(self._folders[0], names[0]))
                problems.add(_MISSING, f"{looked_for}, of {where}")
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
        if not header.complete:
            problems.add("images that are cut short", path)
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
        """Names in a folder that a name may be, whatever form of Unicode it has."""
        forms = [inside]
        if not inside.isascii():
            forms += (unicodedata.normalize(form, inside) for form in ("NFC", "NFD"))
        for above, own in map(posixpath.split, dict.fromkeys(forms)):
            names = self._names(_joined(folder, above) if above else folder, own)
            if paths := [posixpath.join(above, name) for name in names]:
                return paths
        return []

    def _names(self, folder: str, own: str) -> Sequence[str]:
        listing = self._listing(folder)
        if name := listing.names.get(own) or listing.names.get(_composed(own)):
            return [name]

        def images(stem: str) -> Sequence[str]:
            names = listing.stems.get(_composed(stem), ())
            known = [x for x in names if os.path.splitext(x)[1].lower() in FORMAT_OF_EXTENSION]
            return known or [name for name in names if is_image_file(_joined(folder, name))]

        # A stem may have dots: frame.000123 and a.v2 are some without an extension.
        stem, extension = split_extension(own)
        is_image = extension.lower() in FORMAT_OF_EXTENSION
        return (is_image and images(stem)) or images(own) or images(stem)

    def _listing(self, folder: str) -> _Listing:
        if folder not in self._listed:
            names: list[str] = []
            if self._archive is None and os.path.isdir(folder or "."):
                with os.scandir(folder or ".") as entries:
                    files = filter(os.DirEntry.is_file, entries)
                    names = [one.name for one in files if may_read(one.path, self._root)]
            self._listed[folder] = _Listing.of(names)
        return self._listed[folder]


def images_beside(folder: str, subset: str) -> ImageFiles:
    """Find the images of annotation-only shards: next to the shard, and in ``images``."""
    images = [os.path.join(one, "images") for one in (folder, os.path.dirname(folder))]
    return ImageFiles(
        [folder, *(path for one in images for path in (one, os.path.join(one, subset)))]
    )


def _relative(path: str) -> str:
    """A path of any system as a safe relative one; of an absolute one without its root."""
    return safe_relative_path(ntpath.splitdrive(path)[1].lstrip("/\\"))


def is_image_file(path: str) -> bool:
    """Whether a file has the bytes of an image, whatever its name."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return sniff_format(file.read(_SIGNATURE)) is not None
    return False


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
    problems: ConversionProblems,
) -> Frame:
    """Find out in which frame an image was annotated; what contradicts itself is refused.

    Of an image without objects nothing has to be found out. A size that lacks a side says nothing.
    """
    height, width = annotated
    known = (height, width) if height and width else None
    if image is None:
        return Frame(known, known)
    stored, turn = (image.height, image.width), image.orientation
    shown = stored[::-1] if turn >= FIRST_TRANSPOSED else stored
    is_upright = known == shown or known != stored
    if has_objects and known == stored[::-1] != shown:
        problems.add(_EXCHANGED, f"{where}: {format_size(known)}, the file {format_size(stored)}")
    elif has_objects and turn != UPRIGHT and is_upright and not known == shown != stored:
        problems.add(TAKEN_UPRIGHT, f"{where}: orientation {turn}, {format_size(stored)}")
    own = shown if is_upright else stored
    return Frame((known if has_objects else None) or own, own, turn, is_upright)


def format_size(size: Size) -> str:
    """A size as messages have it: width first."""
    return f"{size[1]}x{size[0]}"


def to_output_frame(
    one: Detection, frame: Frame, options: Options, problems: ConversionProblems
) -> Detection:
    """A Detection in the frame that is written, from that in which it was annotated.

    Raises:
        TfodError: its image cannot be turned.
    """
    turn = frame.orientation
    if turn == UPRIGHT:
        return one
    if frame.is_upright != options.upright:
        one = unrotate(one, turn if frame.is_upright else invert_orientation(turn))
    if options.upright:
        problems.add(TURNED, f"{one.filename}: orientation {turn}")
        return rotate_pixels(one) if one.encoded else one
    if frame.is_upright and len(one.boxes):
        problems.add(_TURNED_BACK, f"{one.filename}: orientation {turn}")
    return one
