"""Which format a path has: shards, or annotations that ``tfod convert`` reads.

A format is a module in :mod:`tfod.formats` and a row of :data:`FORMATS`. Its recognizer looks at
names and at the beginning of files, in a folder, in a zip, or at a single file. The readers find
their files by the same functions.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tfod.errors import ShardError, ShardsNotFoundError
from tfod.tfrecord.shard_sets.search import find_shards, is_hidden, looks_like_shard, walk_files
from tfod.tfrecord.shard_sets.shard_names import SPLITS
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.remote import RemoteError
from tfod.tfrecord.storage.urls import is_url, is_zip

ANNOTATION_FOLDERS = ("Annotations", "annotations", "annots")  # of VOC, raccoon and kangaroo
CSV_COLUMNS = frozenset(("filename", "class", "xmin", "ymin", "xmax", "ymax"))
YAML_FILES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
NAMES_FILES = ("obj.names", "classes.txt", "labels/classes.txt")  # Darknet's, then labelImg's
CVAT_FILE = "annotations.xml"
COCO_ROBOFLOW_FILE = "_annotations.coco.json"  # next to the images of each subset
_HEAD_BYTES = 1 << 16
_MAX_DEPTH, _MAX_LISTED = 32, 1_000_000
_MAX_TRIED, _MAX_JSON_TRIED = 1000, 20
"""Files of a folder whose beginnings are read, and JSON files that are read to their end."""
_CHUNK_BYTES, _OVERLAP_BYTES = 1 << 20, 1 << 7
_XML_HEAD_BYTES = 1 << 13
LABELME_XML = re.compile(rb"(?s)\A(?!.*<bndbox).*<(polygon>|sourceAnnotation>LabelMe)")
"""LabelMe's XML has the root of VOC's, and no box."""
_IMAGES = re.compile(rb'"\0?i\0?m\0?a\0?g\0?e\0?s\0?"[\s\0]*:')  # in UTF-8 or UTF-16
_FRAME, _TRACK = re.compile(rb"<image\s"), re.compile(rb"<track\s")
_PANOPTIC = re.compile(rb'"segments_info"\s*:')
_YAML_KEY = re.compile(rb"""^[ \t{]*["']?(names|nc|train|val)["']?\s*:""", re.MULTILINE)
_BOX_NUMBERS = 5  # of a line of YOLO: class, center, size


class SourceFiles(NamedTuple):
    """The files of a folder or a zip, or a single file.

    Attributes:
        root: the folder, the zip, a folder in it, or the folder of the single file.
        names: paths of the files relative to the root, with slashes; without hidden files.
        is_file: whether this is a single file.
    """

    root: str
    names: Sequence[str]
    is_file: bool = False

    @staticmethod
    def at(path: str) -> SourceFiles:
        """List the files at a path, without hidden ones.

        Raises:
            ShardError: the path is a zip that is damaged.
        """
        if os.path.isdir(path):
            files = itertools.islice(walk_files(path, _MAX_DEPTH), _MAX_LISTED)
            names = (os.path.relpath(file, path).replace(os.sep, "/") for file in files)
            return SourceFiles(path, sorted(names))
        if not os.path.isfile(path):
            return SourceFiles(path, [])
        if not is_zip(path):
            return SourceFiles(os.path.dirname(path), [os.path.basename(path)], is_file=True)
        from tfod.tfrecord.storage.archive import sound_content  # needed for zips alone

        inside = (entry.inside for entry in sound_content(path).readable.values())
        return SourceFiles(path, sorted(name for name in inside if not is_hidden(name)))

    def levels(self) -> Iterator[SourceFiles]:
        """Yield these files, then those of the only folder here, those of its only folder, …"""
        yield self
        folder = self.only_folder
        if folder is not None:
            start = len(folder) + 1
            names = [name[start:] for name in self.names if name.startswith(f"{folder}/")]
            yield from SourceFiles(self.path(folder), names).levels()

    @property
    def only_folder(self) -> str | None:
        """The folder here that has files, if there is exactly one."""
        folders = {name.partition("/")[0] for name in self.names if "/" in name}
        return folders.pop() if len(folders) == 1 else None

    def path(self, name: str) -> str:
        """Return the path of a file; in a zip as if the zip were a folder."""
        return os.path.join(self.root, *name.split("/"))

    def ending_with(self, *extensions: str, folder: str | None = "") -> list[str]:
        """Return the names with these lowercase extensions, in one folder or in all (None)."""
        return [
            name
            for name in self.names
            if name.lower().endswith(extensions) and folder in (None, posixpath.dirname(name))
        ]

    def head(self, name: str) -> bytes:
        """Return the beginning of a file without zero bytes, which makes UTF-16 readable.

        An unreadable file has none.
        """
        with contextlib.suppress(OSError, ShardError), open_shard(self.path(name)) as (stream, _):
            head: bytes = io.BufferedReader(stream).read(_HEAD_BYTES)
            return head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
        return b""

    def contains(self, name: str, pattern: re.Pattern[bytes]) -> bool:
        """Return whether a file has a short text anywhere."""
        end = b""
        with contextlib.suppress(OSError, ShardError), open_shard(self.path(name)) as (stream, _):
            while chunk := stream.read(_CHUNK_BYTES):
                if pattern.search(end + chunk):
                    return True
                end = (end + chunk)[-_OVERLAP_BYTES:]
        return False

    def xml_root(self, name: str) -> str:
        """Return the name of the root element of an XML file; '' for another file."""
        head = self.head(name)[:_XML_HEAD_BYTES].lstrip()
        while head.startswith((b"<?", b"<!")):
            end = b"-->" if head.startswith(b"<!--") else b">"
            head = head.partition(end)[2].lstrip()
        match = re.match(rb"<([\w.:-]+)", head)
        return match[1].decode("ascii", "replace") if match else ""


def find_coco_files(files: SourceFiles) -> list[str]:
    """Return the JSON files of COCO's instances: the file, a folder's, or its ``annotations``'."""
    names = files.ending_with(".json")
    if not files.is_file:
        every = files.ending_with(".json", folder=None)
        names = [name for name in every if re.fullmatch(f"[^/]+/{COCO_ROBOFLOW_FILE}", name)]
        names = names or files.ending_with(".json", folder="annotations")
        names = names or files.ending_with(".json")
        others = ("captions", "panoptic", "stuff")
        names = [one for one in names if not posixpath.basename(one).startswith(others)]
        instances = [one for one in names if posixpath.basename(one).startswith("instances")]
        names = instances or names

    def is_coco(name: str) -> bool:
        return files.contains(name, _IMAGES) and not files.contains(name, _PANOPTIC)

    # Other tools write a long JSON for each image.
    names = names if any(map(is_coco, names[:_MAX_JSON_TRIED])) else []
    return [files.path(name) for name in names if is_coco(name)]


def find_csv_files(files: SourceFiles) -> list[str]:
    """Return the CSV, or those CSVs in a folder that begin as a detection CSV does."""
    names = files.ending_with(".csv")
    return [files.path(one) for one in names if files.is_file or _has_csv_header(files, one)]


def _has_csv_header(files: SourceFiles, name: str) -> bool:
    header = re.split(rb"[\r\n]", files.head(name), maxsplit=1)[0].decode("utf-8", "replace")
    return all(column in header.lower() for column in CSV_COLUMNS)


def find_yolo_file(files: SourceFiles) -> str | None:
    """Return the file of a YOLO data set that names its classes; None if there is none."""
    if files.is_file:
        names: Sequence[str] = files.ending_with(".yaml", ".yml", ".names")
    else:
        names = [name for name in (*YAML_FILES, *NAMES_FILES) if name in files.names]
        texts = files.ending_with(".yaml", ".yml") if not names else ()
        texts = [one for one in texts if len({*_YAML_KEY.findall(files.head(one))}) > 1]
        names += texts if len(texts) == 1 else ()
    return files.path(names[0]) if names else None


def find_cvat_file(files: SourceFiles) -> str | None:
    """Return the XML of CVAT for images nearest to the root; None for none or several."""
    names = [one for one in files.names if files.is_file or posixpath.basename(one) == CVAT_FILE]
    depth = min((one.count("/") for one in names), default=0)
    names = [one for one in names if one.count("/") == depth]
    is_cvat = len(names) == 1 and files.xml_root(names[0]) == "annotations"
    return files.path(names[0]) if is_cvat else None


def _is_cvat(files: SourceFiles) -> bool:
    """Return whether there is an XML of CVAT for images; that for video has tracks instead."""
    file = find_cvat_file(files)
    name = os.path.relpath(file, files.root or os.curdir).replace(os.sep, "/") if file else ""
    return bool(name) and (files.contains(name, _FRAME) or not files.contains(name, _TRACK))


def _is_voc(files: SourceFiles) -> bool:
    """Return whether XML files in a folder, at any depth, have VOC's root element."""
    folder = (files.only_folder or "train").lower()
    is_outer = folder not in {*SPLITS, *map(str.lower, ANNOTATION_FOLDERS)}
    if files.is_file or (is_outer and not files.ending_with(".xml")):
        return False  # the reader begins in the only folder, which has the lists
    names = files.ending_with(".xml", folder=None)[:_MAX_TRIED]
    return any(
        files.xml_root(name).lower() == "annotation" and not LABELME_XML.search(files.head(name))
        for name in names
    )


def _is_yolo(files: SourceFiles) -> bool:
    """Return whether classes are named, in a file of another use only next to YOLO's labels."""
    name = os.path.basename(find_yolo_file(files) or "")
    if name.endswith(("yaml", "yml")) and not files.is_file:
        return _YAML_KEY.search(files.head(name)) is not None
    texts = files.ending_with(".txt", folder=None)[:_MAX_TRIED] if name == "classes.txt" else ()
    return any(_is_label_file(files.head(one)) for one in texts) if texts else bool(name)


def _is_label_file(head: bytes) -> bool:
    numbers = head.lstrip().partition(b"\n")[0].split()
    try:
        return len([float(one) for one in numbers]) >= _BOX_NUMBERS
    except ValueError:
        return False


class FormatRow(NamedTuple):
    """A format: its names in messages and in CVAT's menu, and whether files have it."""

    title: str
    is_at: Callable[[SourceFiles], object]
    cvat_title: str = ""


FORMATS = {
    "coco": FormatRow("COCO", find_coco_files, "COCO 1.0"),
    "voc": FormatRow("Pascal VOC", _is_voc, "PASCAL VOC 1.1"),
    "yolo": FormatRow("YOLO", _is_yolo, "Ultralytics YOLO Detection 1.0 or YOLO 1.1"),
    "csv": FormatRow("CSV", find_csv_files),
    "cvat_xml": FormatRow("CVAT for images", _is_cvat, "CVAT 1.1"),
}
"""The formats besides shards, by the names that ``--from`` takes."""


class Recognized(NamedTuple):
    """The formats that a path may have, and where they begin.

    ``root`` is the path itself, or the only folder in it; in a zip as if the zip were a folder.
    """

    names: Sequence[str]
    root: str

    @property
    def titles(self) -> str:
        """What messages call the formats."""
        return " or ".join(FORMATS[name].title for name in self.names)


def holds_shards(path: str) -> bool:
    """Return whether a file, a folder, a zip, a glob or a URL has shards.

    Raises:
        ShardError: a zip is damaged, or a shard in it must not be read.
    """
    if os.path.isfile(path) and not is_zip(path):
        return looks_like_shard(path)
    with contextlib.suppress(ShardsNotFoundError, RemoteError):
        return bool(find_shards(path))
    return False


def recognize_annotations(path: str, named: str | None = None) -> Recognized:
    """Recognize the format of a folder, a zip or a file without shards; the only way to do it.

    Args:
        path: on this machine; another path has no format.
        named: the only format to try, which is taken in any case.

    Raises:
        ShardError: the path is a zip that is damaged.
    """
    for files in SourceFiles.at(path).levels() if not is_url(path) else ():
        names = [name for name in ([named] if named else FORMATS) if FORMATS[name].is_at(files)]
        if names:
            return Recognized(names, path if files.is_file else files.root)
    return Recognized([named] if named else [], path)


def convert_command(path: str, recognized: Recognized) -> str:
    """Return the command that makes shards of annotations."""
    target = "../shards" if os.path.normpath(path) == os.curdir else "shards"
    several = f" --from {recognized.names[0]}" if len(recognized.names) > 1 else ""
    return f"tfod convert {shlex.quote(path)} {target}{several}"
