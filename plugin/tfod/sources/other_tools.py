"""What other tools write and tfod does not read: how it is known, and what reads it."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from tfod.errors import ShardsNotFoundError
from tfod.sources.format_recognition import (
    LABELME_XML,
    SourceFiles,
    convert_command,
    recognize_annotations,
)
from tfod.tfrecord.compression import HEAD_BYTES, PeekedStream
from tfod.tfrecord.damage import detect_file_type
from tfod.tfrecord.storage.urls import is_url

_MAX_TRIED = 20
"""Files of a kind that are looked into."""
_EXPORT = "export COCO or Pascal VOC from there, and convert that"
_ARCHIVE = re.compile(r".+\.(tar|tgz|tbz2?|txz|7z|rar|gz|xz|bz2|zst)", re.IGNORECASE)


class Tool(NamedTuple):
    """A kind of files of another tool.

    Attributes:
        title: what messages call them.
        names: pattern of their names.
        content: pattern of what each of them begins with.
        datum: the name of Datumaro's format, if Datumaro reads them.
        layout: patterns of paths, each of which a folder needs so that Datumaro finds them.
        advice: what to do if Datumaro does not read them, or does not find them.
        cvat_title: what CVAT's menu calls the format.
        is_deep: whether the content may be anywhere in a file.
    """

    title: str
    names: str
    content: str
    datum: str = ""
    layout: Sequence[str] = ()
    advice: str = _EXPORT
    cvat_title: str = ""
    is_deep: bool = False

    def first_of(self, files: SourceFiles) -> str | None:
        """Return the name of the first file of this kind, or None."""
        named = (one for one in files.names if re.fullmatch(f"(.*/)?{self.names}", one))
        pattern = re.compile(self.content.encode())
        for name in itertools.islice(named, _MAX_TRIED):
            if pattern.search(files.head(name)) or (self.is_deep and files.contains(name, pattern)):
                return name
        return None

    def next_step(self, path: str, files: SourceFiles) -> str:
        """Return what to do with files that messages call ``path``."""
        if not self.datum or files.is_file:
            return "name its folder to see what reads it" if self.datum else self.advice
        roots = [level.root for level in files.levels() if self._has_layout(level)]
        steps, target = [] if roots else [self.advice], "shards"
        folder = next(iter(roots), files.root)[len(files.root) :]
        if os.path.isfile(files.root):
            steps.insert(0, "unpack it first")
            folder = os.path.splitext(os.path.basename(path))[0] + folder
        else:
            folder = path + folder
            target = "../shards" if os.path.normpath(path) == os.curdir else target
        command = f"datum convert -i {shlex.quote(folder)} -if {self.datum} -f tf_detection_api"
        steps.append(f"type: {command} -o {target} -- --save-media")
        return "; then ".join(steps)

    def _has_layout(self, files: SourceFiles) -> bool:
        return all(any(re.fullmatch(one, name) for name in files.names) for one in self.layout)


_TOOLS = (
    Tool("CVAT for video", r"[^/]+\.xml", r"<track\s",
         advice="export the task as CVAT for images 1.1", cvat_title="CVAT 1.1", is_deep=True),
    Tool("LabelMe JSON", r"[^/]+\.json", r'(?s)\A(?=.*"shapes"\s*:).*"(imagePath|points)"',
         advice="make Pascal VOC of it with labelme2voc.py of LabelMe, and convert that"),
    Tool("VIA annotations", r"[^/]+\.(json|csv)", "shape_attributes"),
    Tool("Supervisely JSON", r"ann/[^/]+\.json", '"(objects|classTitle)"'),
    Tool("Label Studio JSON", r"[^/]+\.json", '"(original_width|from_name)"'),
    Tool("VoTT JSON", r"[^/]+\.(json|vott)", '"(boundingBox|securityToken)"'),
    Tool("CreateML JSON", r"[^/]+\.json", r'"coordinates"\s*:\s*\{',
         "roboflow_create_ml", [r"[^/]+/_annotations\.createml\.json"],
         "rename each JSON to _annotations.createml.json in a folder for its subset"),
    Tool("COCO panoptic JSON", r"[^/]+\.json", '"segments_info"', "coco_panoptic",
         [r"annotations/panoptic_[^/]+\.json", r"annotations/panoptic_[^/]+/.+\.png"],
         "put it and its folder of PNG masks into annotations, both named panoptic_train",
         is_deep=True),
    Tool("Datumaro JSON", r"annotations/[^/]+\.json", r'"(dm_format_version|items)"\s*:',
         "datumaro", [r"annotations/[^/]+\.json"], cvat_title="Datumaro 1.0"),
    Tool("LabelMe XML", r"[^/]+\.xml", LABELME_XML.pattern.decode(),
         "label_me", [r"Annotations/.+\.xml", r"Images/.+"],
         "put the XML files into Annotations and the images into Images", "LabelMe 3.0"),
    Tool("Open Images CSV", r"[^/]+\.csv", r"\A\W*ImageID,.*LabelName",
         "open_images", [r"(annotations/)?[^/]+-annotations-bbox\.csv"],
         "name it train-annotations-bbox.csv, next to class-descriptions.csv",
         "Open Images V6 1.0"),
    Tool("VoTT CSV", r"[^/]+\.csv", r"\A\W*image\W+xmin\W",
         "vott_csv", [r"[^/]+-export\.csv"], "rename it so that it ends in -export.csv"),
    Tool("KITTI annotations", r"[^/]+\.txt",
         r"(?m)^[A-Za-z\x80-\xff]\S*( -?[\d.]+(e-?\d+)?){14,15}\s*$",
         "kitti_detection", [r"(.+/)?label_2/[^/]+\.txt"],
         "name its folders label_2 and image_2", "KITTI 1.0"),
    Tool("DOTA annotations", r"[^/]+\.txt",
         r"(?m)^(imagesource:|(-?[\d.]+[ \t]+){8}[A-Za-z\x80-\xff]\S*([ \t]+\d)?\s*$)",
         "dota", [r"[^/]+/labelTxt/[^/]+\.txt", r"[^/]+/images/.+"],
         "put the text files into train/labelTxt and the images into train/images"),
    Tool("YOLO labels without class names", r"[^/]+\.txt",
         r"(?m)\A\s*\d+( +-?[\d.]+(e-?\d+)?){4,}\s*$",
         advice="write the names of the classes, one per line, to classes.txt, and convert that"),
    Tool("one file of Pascal VOC", r"[^/]+\.xml", r"(?i)<annotation[\s>]",
         advice="name its folder"),
)  # fmt: skip


def find_other_tool(files: SourceFiles) -> tuple[Tool | None, str]:
    """Return the first kind of files that tfod does not read, and such a file; or None and ''."""
    named = ((tool, tool.first_of(files)) for tool in _TOOLS)
    return next(((tool, name) for tool, name in named if name), (None, ""))


def describe_other_tool(path: str) -> str | None:
    """Return a sentence on what a path is that tfod does not read, and what does; None if unknown.

    Raises:
        ShardError: the path is a zip that is damaged.
    """
    if is_url(path) or not os.path.exists(path):
        return None
    files = SourceFiles.at(path)
    tool, name = find_other_tool(files)
    if tool:
        what = f"is {tool.title}" if files.is_file else f"holds {tool.title} ({name})"
        return f"{path}: {what}, which tfod does not read; {tool.next_step(path, files)}"
    if files.is_file:
        what, fix = _looks_like(path)
        return f"{path}: is {what}; {fix}" if what else None
    archive = next(filter(_ARCHIVE.fullmatch, files.names), None)
    return archive and f"{path}: holds the archive {archive}, which is not looked into; unpack it"


def no_shards_error(source: str, error: ShardsNotFoundError) -> ShardsNotFoundError:
    """Return an error that says what a source without shards holds instead, if that is known."""
    recognized = recognize_annotations(source)
    if not recognized.names:
        return ShardsNotFoundError(describe_other_tool(source) or str(error))
    what = f"{recognized.titles} annotations, no shards"
    command = convert_command(source, recognized)
    return ShardsNotFoundError(f"{source}: holds {what}; to make some type: {command}")


def _looks_like(path: str) -> tuple[str, str]:
    """Return what a file is that is not a shard, and what to do; text may be annotations."""
    with open(path, "rb") as file:
        stream = PeekedStream(file).plain()
        head = b""
        while (left := HEAD_BYTES - len(head)) and (part := stream.read(left)):
            head += part
    what, fix = detect_file_type(head) or ("", "")
    return ("", "") if what.endswith("text") else (what, fix)
