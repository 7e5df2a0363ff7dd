"""The tasks of the stub server. Their annotations only change when an import is finished.

Shapes are those of CVAT's API. The XML is read and written with the standard library, so that it
does not depend on ours.
"""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from tests.cvat.images_xml import add, add_labels, add_shape


@dataclass
class StubTask:
    """A task; ``segments`` has the first and last frame of its jobs."""

    number: int
    name: str
    labels: list[dict[str, Any]]
    frames: list[tuple[str, int, int]]  # name, width, height; one frame for a video
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
    def is_video(self) -> bool:
        return self.mode == "interpolation"

    @property
    def names(self) -> list[str]:
        if self.is_video:
            return [f"frame_{self.absolute(n):06d}" for n in range(self.size)]
        return [name for name, _, _ in self.frames]

    def absolute(self, number: int) -> int:
        return self.start + number * self.step

    def label_name(self, number: int) -> str:
        return next(one["name"] for one in self.labels if one["id"] == number)

    def about(self) -> dict[str, Any]:
        names = ("name", "mode", "size", "subset", "dimension")
        own = {name: getattr(self, name) for name in names}
        return {"id": self.number, "project_id": self.project, **own}

    def job(self, number: int) -> dict[str, Any]:
        first, last = self.segments[number]
        own = {"id": number, "task_id": self.number, "start_frame": first, "stop_frame": last}
        return {"mode": self.mode, "dimension": self.dimension, **own}

    def meta(self, first: int, last: int, kind: str) -> dict[str, Any]:
        """Describe the frames; in a job of selected frames, the others are placeholders."""
        included = self.included if kind == "job" else None
        frames = self.frames if self.is_video else self.frames[first : last + 1]
        if included is not None and not self.is_video:
            frames = [
                frame if number in included else ("placeholder.jpg", *frame[1:])
                for number, frame in enumerate(frames, start=first)
            ]
        return {
            "size": last - first + 1 if included is None else len(included),
            "start_frame": self.absolute(first),
            "stop_frame": self.absolute(last),
            "frame_filter": self.frame_filter,
            "frames": [{"name": n, "width": w, "height": h} for n, w, h in frames],
            "deleted_frames": [n for n in self.deleted if first <= n <= last],
            "included_frames": included and [self.absolute(n) for n in included],
        }

    @property
    def frame_filter(self) -> str:
        return f"step={self.step}" if self.step > 1 else ""

    def annotations(self, first: int, last: int) -> dict[str, Any]:
        kinds = {"tags": self.tags, "shapes": self.shapes, "tracks": self.tracks}
        return {
            "version": 0,
            **{
                kind: [o for o in items if first <= o["frame"] <= last]
                for kind, items in kinds.items()
            },
        }

    def write_images(
        self, root: Any, archive: zipfile.ZipFile | None, first: int, last: int, folder: str = ""
    ) -> None:
        """Add the frames to the XML, and their files to the zip."""
        for number in range(first, last + 1):
            if number in self.deleted:
                continue
            _, width, height = self.frames[0 if self.is_video else number]
            name = self.names[number]
            named = {"id": str(self.absolute(number)), "name": name}
            if folder:
                named |= {"subset": folder, "task_id": str(self.number)}
            named |= {"width": str(width), "height": str(height)}
            image = ElementTree.SubElement(root, "image", named)
            for shape in self.shown(number):
                label, attributes = self.label_name(shape["label_id"]), shape.get("attributes", ())
                names = ("occluded", "rotation", "z_order", "group")
                marks = {key: shape[key] for key in names if key in shape}
                add_shape(image, shape["type"], shape["points"], label, attributes, **marks)
            for tag in self.tags:
                if tag["frame"] == number:
                    named = {"label": self.label_name(tag["label_id"])}
                    add(image, "tag", named, tag.get("attributes", ()))
            if archive is not None and name in self.images:
                path = os.path.join("images", folder, name + ".PNG" * self.is_video)
                archive.writestr(path, self.images[name])

    def shown(self, number: int) -> list[dict[str, Any]]:
        """Return the shapes of a frame, and the keyframes of tracks."""
        found = [one for one in self.shapes if one["frame"] == number]
        for track in self.tracks:
            for shape in track["shapes"]:
                if shape["frame"] == number and not shape["outside"]:
                    found.append({**shape, "label_id": track["label_id"], "group": 0})
        return found

    def import_xml(self, first: int, last: int, data: bytes, append: bool) -> None:
        """Replace or append, or change nothing.

        Raises:
            ValueError: the message of CVAT.
        """
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            root = ElementTree.fromstring(archive.read("annotations.xml"))
        stems = {os.path.splitext(name)[0]: number for number, name in enumerate(self.names)}
        labels = {one["name"]: one["id"] for one in self.labels}
        shapes, tags = [], []
        for image in root.iter("image"):
            frame = stems[os.path.splitext(image.attrib["name"])[0]]
            assert first <= frame <= last
            assert int(image.attrib["id"]) == self.absolute(frame)
            for element in image:
                label = labels[element.attrib["label"]]
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
    """Add the description of a task."""
    texts = {
        "id": task.number,
        "name": task.name,
        "size": task.size,
        "mode": task.mode,
        "start_frame": task.start,
        "stop_frame": task.absolute(task.size - 1),
        "frame_filter": task.frame_filter,
        "subset": task.subset,
    }
    for tag, text in texts.items():
        ElementTree.SubElement(parent, tag).text = str(text)
    add_labels(parent, task.labels)


def _read_shape(element: Any, frame: int, label: int) -> dict[str, Any]:
    named = element.attrib
    if element.tag == "mask":
        left, top, width, height = (int(named[k]) for k in ("left", "top", "width", "height"))
        points = [int(run) for run in named["rle"].split(",")]
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
