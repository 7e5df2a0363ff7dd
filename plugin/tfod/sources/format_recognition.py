"""Recognition of formats: shards, or annotations that ``tfod convert`` reads.

A format is a module in :mod:`tfod.formats` and a row of :data:`FORMATS`. The recognizers look at
the names and the first bytes of files; the readers use the same functions to find their files.
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
from tfod.tfrecord.shard_sets.search import (
    ALL_LEVELS,
    find_shards,
    is_hidden,
    looks_like_shard,
    walk_files,
)
from tfod.tfrecord.shard_sets.shard_names import SPLITS
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.remote import RemoteError
from tfod.tfrecord.storage.urls import is_url, is_zip

ANNOTATION_FOLDERS = ("Annotations", "annotations", "annots")  # VOC, raccoon, kangaroo
CSV_COLUMNS = frozenset(("filename", "class", "xmin", "ymin", "xmax", "ymax"))
YAML_FILES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
NAMES_FILES = ("obj.names", "classes.txt", "labels/classes.txt")  # Darknet, then labelImg
CVAT_FILE = "annotations.xml"
COCO_ROBOFLOW_FILE = "_annotations.coco.json"  # next to the images of each subset
_HEAD_BYTES = 1 << 16
_MAX_LISTED = 1_000_000
_MAX_TRIED, _MAX_JSON_TRIED = 1000, 20
"""Limits per folder: files whose first bytes are read, and JSON files that are read completely."""
_CHUNK_BYTES, _OVERLAP_BYTES = 1 << 20, 1 << 7
_XML_HEAD_BYTES = 1 << 13
LABELME_XML = re.compile(rb"(?s)\A(?!.*<bndbox).*<(polygon>|sourceAnnotation>LabelMe)")
"""LabelMe XML has the same root element as VOC, but no bndbox."""
_IMAGES = re.compile(rb'"\0?i\0?m\0?a\0?g\0?e\0?s\0?"[\s\0]*:')  # in UTF-8 or UTF-16
_FRAME, _TRACK = re.compile(rb"<image\s"), re.compile(rb"<track\s")
_PANOPTIC = re.compile(rb'"segments_info"\s*:')
_YAML_KEY = re.compile(rb"""^[ \t{]*["']?(names|nc|train|val)["']?\s*:""", re.MULTILINE)
_MIN_NUMBERS = 5  # in a line of a YOLO label file: class, center x and y, width, height


class SourceFiles(NamedTuple):
    """The files of a folder or a zip, or a single file.

    Attributes:
        root: the folder, the zip, a folder in it, or the parent of the single file.
        names: paths relative to the root, with slashes; hidden files are left out.
        is_file: whether this is a single file.
    """

    root: str
    names: Sequence[str]
    is_file: bool = False

    @staticmethod
    def at(path: str) -> SourceFiles:
        """List the files at a path; a damaged zip raises ShardError."""
        if os.path.isdir(path):
            files = itertools.islice(walk_files(path, ALL_LEVELS), _MAX_LISTED)
            names = (os.path.relpath(file, path).replace(os.sep, "/") for file in files)
            return SourceFiles(path, sorted(names))
        if not os.path.isfile(path):
            return SourceFiles(path, [])
        if not is_zip(path):
            return SourceFiles(os.path.dirname(path), [os.path.basename(path)], is_file=True)
        from tfod.tfrecord.storage.archive import read_valid_zip  # only needed for zips

        inside = (entry.inside for entry in read_valid_zip(path).readable.values())
        return SourceFiles(path, sorted(name for name in inside if not is_hidden(name)))

    def levels(self) -> Iterator[SourceFiles]:
        """Yield these files, and then, while there is only one folder, the files in it."""
        yield self
        folder = self.only_folder
        if folder is not None:
            start = len(folder) + 1
            names = [name[start:] for name in self.names if name.startswith(f"{folder}/")]
            yield from SourceFiles(self.path(folder), names).levels()

    @property
    def only_folder(self) -> str | None:
        """The only folder in the root that contains files; None if there are several."""
        folders = {name.partition("/")[0] for name in self.names if "/" in name}
        return folders.pop() if len(folders) == 1 else None

    def path(self, name: str) -> str:
        """Return the path of a file, in which a zip is written like a folder."""
        return os.path.join(self.root, *name.split("/"))

    def with_extensions(self, *extensions: str, folder: str | None = "") -> list[str]:
        """Return the names with one of these extensions, in a folder or in all folders (None)."""
        return [
            name
            for name in self.names
            if name.lower().endswith(extensions) and folder in (None, posixpath.dirname(name))
        ]

    def read_head(self, name: str) -> bytes:
        """Return the first bytes of a file without NUL bytes, so that UTF-16 reads like ASCII."""
        with contextlib.suppress(OSError, ShardError), open_shard(self.path(name)) as (stream, _):
            head: bytes = io.BufferedReader(stream).read(_HEAD_BYTES)
            return head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
        return b""

    def contains(self, name: str, pattern: re.Pattern[bytes]) -> bool:
        """Return whether a pattern, for a short text, matches anywhere in a file."""
        end = b""
        with contextlib.suppress(OSError, ShardError), open_shard(self.path(name)) as (stream, _):
            while chunk := stream.read(_CHUNK_BYTES):
                if pattern.search(end + chunk):
                    return True
                end = (end + chunk)[-_OVERLAP_BYTES:]
        return False

    def read_xml_root(self, name: str) -> str:
        """Return the name of the root element, or '' if the file is not XML."""
        head = self.read_head(name)[:_XML_HEAD_BYTES].lstrip()
        while head.startswith((b"<?", b"<!")):
            end = b"-->" if head.startswith(b"<!--") else b">"
            head = head.partition(end)[2].lstrip()
        match = re.match(rb"<([\w.:-]+)", head)
        return match[1].decode("ascii", "replace") if match else ""


def find_coco_files(files: SourceFiles) -> list[str]:
    """Return the paths of the COCO files: in subset folders, ``annotations``, or the root."""
    names = files.with_extensions(".json")
    if not files.is_file:
        all_names = files.with_extensions(".json", folder=None)
        names = [name for name in all_names if re.fullmatch(f"[^/]+/{COCO_ROBOFLOW_FILE}", name)]
        names = names or files.with_extensions(".json", folder="annotations")
        names = names or files.with_extensions(".json")
        other_tasks = ("captions", "panoptic", "stuff")
        names = [name for name in names if not posixpath.basename(name).startswith(other_tasks)]
        instances = [name for name in names if posixpath.basename(name).startswith("instances")]
        names = instances or names

    def is_coco(name: str) -> bool:
        return files.contains(name, _IMAGES) and not files.contains(name, _PANOPTIC)

    # Other tools write a large JSON file per image; do not read all of them.
    names = names if any(map(is_coco, names[:_MAX_JSON_TRIED])) else []
    return [files.path(name) for name in names if is_coco(name)]


def has_known_columns(path: str) -> bool:
    """Return whether a single file has the columns or keys of its format, if it needs any."""
    files = SourceFiles.at(path)
    (name,) = files.names or ("",)
    if name.lower().endswith((".yaml", ".yml")):
        return _YAML_KEY.search(files.read_head(name)) is not None
    return not name.lower().endswith(".csv") or _has_csv_header(files, name)


def find_csv_files(files: SourceFiles) -> list[str]:
    """Return the paths of the CSV files; in a folder, only those with the expected columns."""
    names = files.with_extensions(".csv")
    return [files.path(name) for name in names if files.is_file or _has_csv_header(files, name)]


def _has_csv_header(files: SourceFiles, name: str) -> bool:
    header = re.split(rb"[\r\n]", files.read_head(name), maxsplit=1)[0].decode("utf-8", "replace")
    return all(column in header.lower() for column in CSV_COLUMNS)


def find_yolo_file(files: SourceFiles) -> str | None:
    """Return the file with the class names of a YOLO dataset, or None."""
    if files.is_file:
        names: Sequence[str] = files.with_extensions(".yaml", ".yml", ".names")
    else:
        names = [name for name in (*YAML_FILES, *NAMES_FILES) if name in files.names]
        texts = files.with_extensions(".yaml", ".yml") if not names else ()
        texts = [name for name in texts if len({*_YAML_KEY.findall(files.read_head(name))}) > 1]
        names += texts if len(texts) == 1 else ()
    return files.path(names[0]) if names else None


def find_cvat_file(files: SourceFiles) -> str | None:
    """Return the CVAT XML file nearest to the root, or None if it is missing or ambiguous."""
    names = files.names
    if not files.is_file:
        names = [name for name in names if posixpath.basename(name) == CVAT_FILE]
    depth = min((name.count("/") for name in names), default=0)
    names = [name for name in names if name.count("/") == depth]
    is_cvat = len(names) == 1 and files.read_xml_root(names[0]) == "annotations"
    return files.path(names[0]) if is_cvat else None


def _is_cvat(files: SourceFiles) -> bool:
    """Return whether there is an XML file of CVAT for images, and not of CVAT for video."""
    file = find_cvat_file(files)
    name = os.path.relpath(file, files.root or os.curdir).replace(os.sep, "/") if file else ""
    return bool(name) and (files.contains(name, _FRAME) or not files.contains(name, _TRACK))


def _is_voc(files: SourceFiles) -> bool:
    folder = (files.only_folder or "train").lower()
    is_outer = folder not in {*SPLITS, *map(str.lower, ANNOTATION_FOLDERS)}
    if files.is_file or (is_outer and not files.with_extensions(".xml")):
        return False  # the reader starts in the only folder, which contains the image lists
    names = files.with_extensions(".xml", folder=None)[:_MAX_TRIED]
    return any(
        files.read_xml_root(name).lower() == "annotation"
        and not LABELME_XML.search(files.read_head(name))
        for name in names
    )


def _is_yolo(files: SourceFiles) -> bool:
    """Return whether there are class names; ``classes.txt`` also needs YOLO label files."""
    name = os.path.basename(find_yolo_file(files) or "")
    if name.endswith(("yaml", "yml")) and not files.is_file:
        return _YAML_KEY.search(files.read_head(name)) is not None
    texts = files.with_extensions(".txt", folder=None)[:_MAX_TRIED] if name == "classes.txt" else ()
    return any(_is_label_file(files.read_head(text)) for text in texts) if texts else bool(name)


def _is_label_file(head: bytes) -> bool:
    numbers = head.lstrip().partition(b"\n")[0].split()
    try:
        return len([float(number) for number in numbers]) >= _MIN_NUMBERS
    except ValueError:
        return False


class FormatRow(NamedTuple):
    """A format: its name in messages, its recognizer, and its name in the menu of CVAT."""

    title: str
    matches: Callable[[SourceFiles], object]
    cvat_title: str = ""


FORMATS = {
    "coco": FormatRow("COCO", find_coco_files, "COCO 1.0"),
    "voc": FormatRow("Pascal VOC", _is_voc, "PASCAL VOC 1.1"),
    "yolo": FormatRow("YOLO", _is_yolo, "Ultralytics YOLO Detection 1.0 or YOLO 1.1"),
    "csv": FormatRow("CSV", find_csv_files),
    "cvat_xml": FormatRow("CVAT for images", _is_cvat, "CVAT 1.1"),
}
"""The formats other than shards, by their ``--from`` names."""


class Recognized(NamedTuple):
    """The formats that a path may have, and the root: the path, or the only folder in it."""

    names: Sequence[str]
    root: str

    @property
    def titles(self) -> str:
        """The names of the formats in messages."""
        return " or ".join(FORMATS[name].title for name in self.names)


def contains_shards(path: str) -> bool:
    """Return whether a file, folder, zip, glob or URL contains shards.

    A damaged zip, or a rejected shard in a zip, raises ShardError.
    """
    if os.path.isfile(path) and not is_zip(path):
        return looks_like_shard(path)
    with contextlib.suppress(ShardsNotFoundError, RemoteError):
        return bool(find_shards(path))
    return False


def recognize_annotations(path: str, named: str | None = None) -> Recognized:
    """Recognize the format of a folder, zip or file without shards, for all commands.

    URLs have no format. A named format is returned in any case. A damaged zip raises ShardError.
    """
    for files in SourceFiles.at(path).levels() if not is_url(path) else ():
        names = [name for name in ([named] if named else FORMATS) if FORMATS[name].matches(files)]
        if names:
            return Recognized(names, path if files.is_file else files.root)
    return Recognized([named] if named else [], path)


def format_convert_command(path: str, recognized: Recognized) -> str:
    """Return the command that converts annotations to shards."""
    target = "../shards" if os.path.normpath(path) == os.curdir else "shards"
    option = f" --from {recognized.names[0]}" if len(recognized.names) > 1 else ""
    return f"tfod convert {shlex.quote(path)} {target}{option}"
