"""What a stub server keeps: tasks with real annotations, which only a finished import changes.

Shapes are as CVAT's API has them. The XML is written and read here with the standard library, on
its own, so that it does not agree with ours by being ours.
"""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from tests.cvat.images_xml import add, add_labels, add_shape

FRAME_EXT = ".PNG"


@dataclass
class StubTask:
    """A task; ``segments`` are its jobs: number, first and last frame."""

    number: int
    name: str
    labels: list[dict[str, Any]]
    frames: list[tuple[str, int, int]]  # name, width, height; one of a video
    mode: str = "annotation"
    size: int = 0
    start: int = 0
    step: int = 1
    subset: str = ""
    project: int | None = None
    deleted: list[int] = field(default_factory=list)
    included: list[int] | None = None
    dimension: str = "2d"
    segments: dict[int, tuple[int, int]] = field(default_factory=dict)
    shapes: list[dict[str, Any]] = field(default_factory=list)
    tracks: list[dict[str, Any]] = field(default_factory=list)
    tags: list[dict[str, Any]] = field(default_factory=list)
    images: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = self.size or len(self.frames)

    @property
    def names(self) -> list[str]:
        if self.mode == "interpolation":
            return [f"frame_{self.absolute(n):06d}" for n in range(self.size)]
        return [name for name, _, _ in self.frames]

    def absolute(self, number: int) -> int:
        return self.start + number * self.step

    def label_id(self, name: str) -> int:
        return next(one["id"] for one in self.labels if one["name"] == name)

    def label_name(self, number: int) -> str:
        return next(one["name"] for one in self.labels if one["id"] == number)

    def about(self) -> dict[str, Any]:
        return {
            "id": self.number,
            "name": self.name,
            "mode": self.mode,
            "size": self.size,
            "subset": self.subset,
            "dimension": self.dimension,
            "project_id": self.project,
        }

    def job(self, number: int) -> dict[str, Any]:
        first, last = self.segments[number]
        return {
            "id": number,
            "task_id": self.number,
            "mode": self.mode,
            "dimension": self.dimension,
            "start_frame": first,
            "stop_frame": last,
        }

    def meta(self, first: int, last: int, kind: str) -> dict[str, Any]:
        """Of a job of chosen frames, what was not chosen is there under a placeholder's name."""
        included = self.included if kind == "job" else None
        is_video = self.mode == "interpolation"
        frames = self.frames if is_video else self.frames[first : last + 1]
        if included is not None and not is_video:
            frames = [
                one if number in included else ("placeholder.jpg", *one[1:])
                for number, one in enumerate(frames, start=first)
            ]
        return {
            "size": last - first + 1 if included is None else len(included),
            "start_frame": self.absolute(first),
            "stop_frame": self.absolute(last),
            "frame_filter": f"step={self.step}" if self.step > 1 else "",
            "frames": [{"name": n, "width": w, "height": h} for n, w, h in frames],
            "deleted_frames": [n for n in self.deleted if first <= n <= last],
            "included_frames": included and [self.absolute(n) for n in included],
        }

    def annotations(self, first: int, last: int) -> dict[str, Any]:
        def within(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [one for one in items if first <= one["frame"] <= last]

        return {
            "version": 0,
            "tags": within(self.tags),
            "shapes": within(self.shapes),
            "tracks": within(self.tracks),
        }

    def frame_size(self, number: int) -> tuple[int, int]:
        _, width, height = self.frames[0 if self.mode == "interpolation" else number]
        return width, height

    def export(self, first: int, last: int, with_images: bool) -> bytes:
        """CVAT for images 1.1, zipped."""
        root = ElementTree.Element("annotations")
        ElementTree.SubElement(root, "version").text = "1.1"
        meta = ElementTree.SubElement(root, "meta")
        write_meta(ElementTree.SubElement(meta, "task"), self)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            self.write_images(root, archive if with_images else None, first, last, "")
            archive.writestr("annotations.xml", ElementTree.tostring(root, "utf-8"))
        return stream.getvalue()

    def write_images(
        self, root: Any, archive: zipfile.ZipFile | None, first: int, last: int, folder: str
    ) -> None:
        for number in range(first, last + 1):
            if number in self.deleted:
                continue
            width, height = self.frame_size(number)
            name = self.names[number]
            named = {"id": str(self.absolute(number)), "name": name}
            if folder:
                named |= {"subset": folder, "task_id": str(self.number)}
            named |= {"width": str(width), "height": str(height)}
            image = ElementTree.SubElement(root, "image", named)
            for one in self.shown(number):
                label, attributes = self.label_name(one["label_id"]), one.get("attributes", ())
                names = ("occluded", "rotation", "z_order", "group")
                marks = {name: one[name] for name in names if name in one}
                add_shape(image, one["type"], one["points"], label, attributes, **marks)
            for one in self.tags:
                if one["frame"] == number:
                    named = {"label": self.label_name(one["label_id"])}
                    add(image, "tag", named, one.get("attributes", ()))
            if archive is not None and name in self.images:
                extension = FRAME_EXT if self.mode == "interpolation" else ""
                path = "/".join(part for part in ("images", folder, name + extension) if part)
                archive.writestr(path, self.images[name])

    def shown(self, number: int) -> list[dict[str, Any]]:
        """Shapes of a frame; of tracks only what keyframes say."""
        found = [one for one in self.shapes if one["frame"] == number]
        for track in self.tracks:
            for shape in track["shapes"]:
                if shape["frame"] == number and not shape["outside"]:
                    found.append({**shape, "label_id": track["label_id"], "group": 0})
        return found

    def import_xml(self, first: int, last: int, data: bytes, append: bool) -> None:
        """Replace or append, or raise and change nothing, as in a transaction.

        Raises:
            ValueError: with what CVAT would say.
        """
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            root = ElementTree.fromstring(archive.read("annotations.xml"))
        shapes, tags = [], []
        for image in root.iter("image"):
            stem = os.path.splitext(image.attrib["name"])[0]
            stems = {os.path.splitext(n)[0]: i for i, n in enumerate(self.names)}
            if stem not in stems or not first <= stems[stem] <= last:
                raise ValueError(f"Could not match item id: '{stem}' with any task frame")
            frame = stems[stem]
            assert int(image.attrib["id"]) == self.absolute(frame)
            for element in image:
                try:
                    label = self.label_id(element.attrib["label"])
                except StopIteration:
                    raise ValueError(f"no label {element.attrib['label']}") from None
                if element.tag == "tag":
                    own = {"attributes": _read_attributes(element)} if len(element) else {}
                    tags.append({"frame": frame, "label_id": label, **own})
                else:
                    shapes.append(_read_shape(element, frame, label))
        if not append:
            for items in (self.shapes, self.tags, self.tracks):
                items[:] = [one for one in items if not first <= one["frame"] <= last]
        self.shapes += shapes
        self.tags += tags


def write_meta(parent: Any, task: StubTask) -> None:
    """The head of a task, as CVAT writes it, as far as it matters."""

    def add(tag: str, text: str) -> None:
        ElementTree.SubElement(parent, tag).text = text

    add("id", str(task.number))
    add("name", task.name)
    add("size", str(task.size))
    add("mode", task.mode)
    add("start_frame", str(task.start))
    add("stop_frame", str(task.absolute(task.size - 1)))
    add("frame_filter", f"step={task.step}" if task.step > 1 else "")
    add("subset", task.subset)
    add_labels(parent, task.labels)


def _read_shape(element: Any, frame: int, label: int) -> dict[str, Any]:
    named = element.attrib
    if element.tag == "mask":
        left, top, width, height = (int(named[k]) for k in ("left", "top", "width", "height"))
        points = [int(one) for one in named["rle"].split(",")]
        assert sum(points) == width * height
        points += [left, top, left + width - 1, top + height - 1]
    else:
        assert element.tag == "box"
        points = [float(named[side]) for side in ("xtl", "ytl", "xbr", "ybr")]
    return {
        "type": "rectangle" if element.tag == "box" else "mask",
        "frame": frame,
        "label_id": label,
        "points": points,
        "occluded": named.get("occluded") == "1",
        "rotation": float(named.get("rotation", 0)),
        "z_order": int(named["z_order"]),
        "group": int(named.get("group_id", 0)),
        "attributes": _read_attributes(element),
    }


def _read_attributes(element: Any) -> list[tuple[str, str]]:
    return [(one.attrib["name"], one.text or "") for one in element]
