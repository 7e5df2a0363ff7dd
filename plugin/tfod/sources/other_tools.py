"""Recognition of files of other tools, which tfod does not read, and advice on how to read them."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tfod.errors import ShardsNotFoundError
from tfod.sources.format_recognition import (
    ANNOTATION_FOLDERS,
    FORMATS,
    LABELME_XML,
    Recognized,
    SourceFiles,
    format_convert_command,
    has_known_columns,
    recognize_annotations,
)
from tfod.tfrecord.compression import HEAD_BYTES, PeekedStream
from tfod.tfrecord.damage import detect_file_type
from tfod.tfrecord.storage.urls import is_url

_DOCUMENTS = frozenset((".xml", ".json", ".csv", ".txt", ".yaml", ".yml"))
_MAX_TRIED = 20
"""The maximum number of files of a kind to open."""
_EXPORT = "export it as COCO or Pascal VOC, and convert that"
_ARCHIVE = re.compile(r".+\.(zip|tar|tgz|tbz2?|txz|7z|rar|gz|xz|bz2|zst)", re.IGNORECASE)


class Tool(NamedTuple):
    """A file format of another tool.

    Attributes:
        title: name in messages.
        names: pattern of file names.
        content: pattern in the first bytes of each file.
        datum: name of the format in Datumaro, if Datumaro reads it.
        layout: patterns of paths that a folder must have for Datumaro to find the files.
        advice: advice if Datumaro does not read the format, or does not find the files.
        cvat_title: name of the format in the menu of CVAT.
        is_deep: whether to search the whole file for the content.
    """

    title: str
    names: str
    content: str
    datum: str = ""
    layout: Sequence[str] = ()
    advice: str = _EXPORT
    cvat_title: str = ""
    is_deep: bool = False

    def find_first(self, files: SourceFiles) -> str | None:
        """Return the name of the first file in this format, or None."""
        names = (name for name in files.names if re.fullmatch(f"(.*/)?{self.names}", name))
        pattern = re.compile(self.content.encode())
        for name in itertools.islice(names, _MAX_TRIED):
            head = files.read_head(name)
            if pattern.search(head) or (self.is_deep and files.contains(name, pattern)):
                return name
        return None

    def suggest_next_step(self, path: str, files: SourceFiles) -> str:
        """Return advice on how to read files that messages call ``path``."""
        if not self.datum:
            return self.advice
        if files.is_file:
            return "pass its folder to see which program reads it"
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
        return all(
            any(re.fullmatch(pattern, name) for name in files.names) for pattern in self.layout
        )


_TOOLS = (
    Tool("CVAT for video", r"[^/]+\.xml", r"<track\s",
         advice="export the task as CVAT for images 1.1", cvat_title="CVAT 1.1", is_deep=True),
    Tool("LabelMe JSON", r"[^/]+\.json", r'(?s)\A(?=.*"shapes"\s*:).*"(imagePath|points)"',
         advice="convert it to Pascal VOC with LabelMe's labelme2voc.py, and convert that"),
    Tool("VIA annotations", r"[^/]+\.(json|csv)", "shape_attributes"),
    Tool("Supervisely JSON", r"ann/[^/]+\.json", '"(objects|classTitle)"'),
    Tool("Label Studio JSON", r"[^/]+\.json", '"(original_width|from_name)"'),
    Tool("VoTT JSON", r"[^/]+\.(json|vott)", '"(boundingBox|securityToken)"'),
    Tool("CreateML JSON", r"[^/]+\.json", r'"coordinates"\s*:\s*\{',
         "roboflow_create_ml", [r"[^/]+/_annotations\.createml\.json"],
         "rename each JSON to _annotations.createml.json in a folder for its subset"),
    Tool("COCO panoptic JSON", r"[^/]+\.json", '"segments_info"', "coco_panoptic",
         [r"annotations/panoptic_[^/]+\.json", r"annotations/panoptic_[^/]+/.+\.png"],
         "put it and its folder of PNG masks into annotations, and name both panoptic_train",
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
         advice="write the class names to classes.txt, one per line, and convert that"),
    Tool("a single file of Pascal VOC", r"[^/]+\.xml", r"(?i)<annotation[\s>]",
         advice="convert its folder"),
)  # fmt: skip


_VOC_FILE = _TOOLS[-1]
_PASS_DATASET = "Pass the shards, or convert a dataset in another format with tfod convert."
_FILES = {
    ".csv": (
        "CSV without the columns filename, class, xmin, ymin, xmax and ymax",
        "Rename the columns, then use tfod convert.",
    ),
    **dict.fromkeys(
        (".yaml", ".yml"), ("YAML without the class names of a YOLO dataset", _PASS_DATASET)
    ),
    ".json": ("JSON in another format than COCO", _PASS_DATASET),
    ".xml": ("XML of neither Pascal VOC nor CVAT for images", _PASS_DATASET),
    **dict.fromkeys((".gif", ".bmp", ".webp", ".tif", ".tiff"), ("an image", _PASS_DATASET)),
}
"""Files of no known format, by extension, each with what to do."""


def find_other_tool(files: SourceFiles) -> tuple[Tool | None, str]:
    """Return the first tool with a matching file, and the name of the file; or None and ''."""
    for tool in _TOOLS:
        if name := tool.find_first(files):
            return tool, name
    return None, ""


def describe_other_tool(path: str) -> str | None:
    """Describe a path that tfod does not read and give advice; return None if it is unknown."""
    if is_url(path) or not os.path.exists(path):
        return None
    files = SourceFiles.at(path)
    tool, name = find_other_tool(files)
    if tool:
        content = f"is {tool.title}" if files.is_file else f"contains {tool.title} ({name})"
        return f"{path}: {content}, which tfod does not read; {tool.suggest_next_step(path, files)}"
    if files.is_file:
        content, fix = _describe_content(path)
        return f"{path}: is {content}; {fix}" if content else None
    archive = next(filter(_ARCHIVE.fullmatch, files.names), None)
    if archive:
        return f"{path}: contains the archive {archive}, which is not opened; unpack it"
    counts = _count_extensions(files)
    if counts.keys() & _DOCUMENTS or not os.path.isdir(path) or (os.listdir(path) and not counts):
        return None  # perhaps annotations, also in folders further below
    listed = _list_extensions(counts)
    content = f"contains no shards or annotations, only {listed}" if counts else "is empty"
    return f"{path}: {content}; pass the folder or zip with the shards or the annotations"


def describe_file(path: str) -> tuple[str, str]:
    """Describe a file that is not a shard, and say what reads it; return '' twice if unknown."""
    if is_url(path) or not os.path.isfile(path):
        return "", ""
    recognized = recognize_annotations(path)
    if recognized.names and has_known_columns(path):
        command = format_convert_command(path, recognized)
        return f"{recognized.titles} annotations", f"To convert them to shards, type: {command}"
    files = SourceFiles.at(path)
    tool, _ = find_other_tool(files)
    if tool is _VOC_FILE:
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.basename(folder) in ANNOTATION_FOLDERS:
            folder = os.path.dirname(folder)
        command = format_convert_command(os.path.relpath(folder), Recognized([], folder))
        return tool.title, f"To convert its folder to shards, type: {command}"
    if tool:
        step = tool.suggest_next_step(path, files)
        return tool.title, f"{step[:1].upper()}{step[1:]}."
    if _describe_content(path)[0]:  # the damage names it
        return "", ""
    return _FILES.get(os.path.splitext(path)[1].lower(), ("", ""))


def make_no_shards_error(source: str, error: ShardsNotFoundError) -> ShardsNotFoundError:
    """Return the error for a source without shards, with a description of its content if known."""
    recognized = recognize_annotations(source)
    if not recognized.names:
        return ShardsNotFoundError(describe_other_tool(source) or f"{error}{_list_unknown(source)}")
    content = f"contains {recognized.titles} annotations, no shards"
    command = format_convert_command(source, recognized)
    return ShardsNotFoundError(f"{source}: {content}; to convert them to shards, type: {command}")


def _list_unknown(path: str) -> str:
    """Return the end of a message with the files of a folder, which may be annotations."""
    counts = _count_extensions(SourceFiles.at(path)) if os.path.isdir(path) else None
    if not counts:
        return ""
    known = ", ".join(row.title for row in FORMATS.values())
    return f"; the folder contains {_list_extensions(counts)}, in none of the formats {known}"


def _count_extensions(files: SourceFiles) -> Counter[str]:
    return Counter(os.path.splitext(name)[1].lower() for name in files.names)


def _list_extensions(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {ending or 'other'}" for ending, count in counts.most_common(3))


def _describe_content(path: str) -> tuple[str, str]:
    """Describe a file that is not a shard, with advice; '' for text, which may be annotations."""
    with open(path, "rb") as file:
        stream = PeekedStream(file).plain()
        head = b""
        while (missing := HEAD_BYTES - len(head)) and (part := stream.read(missing)):
            head += part
    content, fix = detect_file_type(head) or ("", "")
    return ("", "") if content.endswith("text") else (content, fix)
