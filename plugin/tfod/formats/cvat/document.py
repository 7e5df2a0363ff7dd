"""Parsing and formatting of CVAT's XML.

Exports of a task, a job or a project are read as a stream. Source: CVAT's
``dataset_manager/formats/cvat.py`` and ``bindings.py``, and its page on the XML format.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from tfod.errors import TfodError
from tfod.formats.cvat.shapes import (
    AREA_KINDS,
    BOX,
    ELLIPSE,
    KINDS,
    MASK,
    MAX_PIXELS,
    POINTS,
    POLYGON,
    Attributes,
    CvatImage,
    CvatShape,
    CvatTag,
    make_shape,
)
from tfod.formats.numbers import DECIMALS
from tfod.formats.reading.documents import escape_text, iterate_children, open_xml, quote_attribute

_MAX_FRAMES = 1_000_000
_MAX_REASON = 80
_OTHER_TAGS = ("tag", "attribute")
_CVAT_TYPES = {tag: name for name, tag in KINDS.items()}
_Part = TypeVar("_Part", CvatImage, "CvatMeta")


@dataclass(frozen=True)
class CvatMeta:
    """The head of a document.

    Attributes:
        labels: names of the classes, without the parts of skeletons.
        tasks: number of tasks in the document, which is 1 except for projects.
        is_video: whether the frames come from a video, and are called ``frame_000000``.
        first: number of the task's frame 0 in the document.
        step: difference between the numbers of two consecutive frames.
        numbers: numbers of the frames in the document; empty if unknown.
        height, width: size of the frames of a video.
        subset: subset of the task, if there is only one.
        input_types: by class and name of an attribute: ``checkbox``, ``number``, ``text``, …
    """

    labels: tuple[str, ...]
    tasks: int
    is_project: bool
    is_video: bool
    first: int
    step: int
    numbers: range
    height: int | None
    width: int | None
    subset: str = ""
    input_types: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def frame_name(self, number: int) -> str:
        """Return the name that CVAT gives to a frame of a video."""
        return f"frame_{number:06d}"


def read_cvat_xml(path: str) -> Iterator[CvatMeta | CvatImage | None]:
    """Yield the parts of a document in a file, or in the ``annotations.xml`` of a zip.

    The head comes first. A track of "CVAT for video" is not read and yields None. Raises TfodError
    if the file cannot be read, or is not CVAT's XML.
    """
    with open_xml(path) as (stream, name):
        yield from read_cvat_stream(stream, name)


def read_cvat_stream(stream: Any, name: str) -> Iterator[CvatMeta | CvatImage | None]:
    """Yield the parts of a document in a binary stream, as :func:`read_cvat_xml` does."""
    has_meta = False
    image_count = 0
    for element in iterate_children(stream, name, "annotations", ("meta", "image", "track")):
        if element.tag == "meta":
            if has_meta:
                raise TfodError(f"{name} has two <meta>; export it again")
            has_meta = True
            meta = _read(_read_meta, element, name)
            _limit_frames(len(meta.numbers), name)
            yield meta
        elif not has_meta:
            raise TfodError(f"{name} has no <meta> before <{element.tag}>; export it again")
        elif element.tag == "image":
            image_count += 1
            _limit_frames(image_count, name)
            yield _read(_read_image, element, name)
        else:
            yield None
    if not has_meta:
        raise TfodError(f"{name} has no <meta>; export the task as CVAT for images 1.1")


def _limit_frames(count: int, name: str) -> None:
    if count > _MAX_FRAMES:
        raise TfodError(f"{name} has more than {_MAX_FRAMES:,} frames; export the task in parts")


def _read(read_part: Callable[[Any], _Part], element: Any, name: str) -> _Part:
    """Read a part, and convert errors in its values to TfodError with the line."""
    try:
        return read_part(element)
    except (ValueError, TypeError, OverflowError) as error:
        raise TfodError(
            f"{name}, line {element.sourceline}: <{element.tag}> cannot be read "
            f"({str(error)[:_MAX_REASON]}); export it again"
        ) from None


def _read_meta(meta: Any) -> CvatMeta:
    labels = meta.findall(".//labels/label")
    project = meta.find("project")
    tasks = meta.findall("project/tasks/task") if project is not None else []
    task = tasks[0] if len(tasks) == 1 else meta.find("task")
    if task is None:
        task = meta.find("job")
    size = meta.find(".//original_size")
    # In a project with several tasks, frame numbers do not identify the task.
    first, step, numbers = (0, 1, range(0)) if task is None else _read_frame_numbers(task)
    return CvatMeta(
        labels=tuple(
            label.findtext("name") or "" for label in labels if not label.findtext("parent")
        ),
        tasks=max(1, len(tasks)),
        is_project=project is not None,
        is_video=task is not None and task.findtext("mode") == "interpolation",
        first=first,
        step=step,
        numbers=numbers,
        height=None if size is None else _parse_int(size.findtext("height")),
        width=None if size is None else _parse_int(size.findtext("width")),
        subset="" if task is None else task.findtext("subset") or "",
        input_types={
            (label.findtext("name") or "", x.findtext("name") or ""): x.findtext("input_type") or ""
            for label in labels
            for x in label.iterfind("attributes/attribute")
        },
    )


def _read_frame_numbers(task: Any) -> tuple[int, int, range]:
    """Return the number of the task's frame 0, the step, and the numbers in this document."""
    key, _, value = (task.findtext("frame_filter") or "").partition("=")
    step = max(1, _parse_int(value) or 1) if key.strip() == "step" else 1
    tags = ("start_frame", "stop_frame", "size")
    start, stop, size = (_parse_int(task.findtext(tag)) for tag in tags)
    start = start or 0
    if stop is None:
        stop = start + ((size or 0) - 1) * step
    numbers = range(start, stop + 1, step)
    # The frames of a job may begin in the middle of the task.
    starts = [_parse_int(element.text) or 0 for element in task.iterfind("segments/segment/start")]
    return start - min(starts, default=0) * step, step, numbers


def _read_image(image: Any) -> CvatImage:
    tags = (child.tag for child in image)
    return CvatImage(
        number=_parse_int(image.get("id")) or 0,
        name=image.get("name") or "",
        subset=image.get("subset") or "",
        height=_parse_int(image.get("height")),
        width=_parse_int(image.get("width")),
        shapes=tuple(_read_shape(element) for element in image.iterchildren(*AREA_KINDS)),
        tags=tuple(
            CvatTag(tag.get("label") or "", _read_attributes(tag)) for tag in image.iterfind("tag")
        ),
        other_shapes=Counter(tag for tag in tags if tag not in (*AREA_KINDS, *_OTHER_TAGS)),
    )


def _read_shape(element: Any) -> CvatShape:
    """Read <box>, <polygon>, <mask> or <ellipse>."""

    def get_numbers(*names: str) -> list[float]:
        return [float(element.get(name) or "") for name in names]

    kind = element.tag
    if kind == BOX:
        points = get_numbers("xtl", "ytl", "xbr", "ybr")
    elif kind == ELLIPSE:
        cx, cy, rx, ry = get_numbers("cx", "cy", "rx", "ry")
        points = [cx, cy, cx + rx, cy - ry]
    elif kind == POLYGON:
        pairs = (pair.split(",") for pair in (element.get("points") or "").split(";"))
        points = [float(number) for x, y in pairs for number in (x, y)]
    else:
        left, top, width, height = map(int, get_numbers("left", "top", "width", "height"))
        runs = [int(run) for run in (element.get("rle") or "").split(",")]
        if min(runs) < 0 or sum(runs) != width * height or sum(runs) > MAX_PIXELS:
            raise ValueError(f"a mask of {sum(runs)} pixels for {width}x{height}, or too large")
        points = [*runs, left, top, left + width - 1, top + height - 1]
    rotation = float(element.get("rotation") or 0)
    if not all(map(math.isfinite, (rotation, *points))):
        raise ValueError(f"a number of a {kind} is not finite")
    return make_shape(
        _CVAT_TYPES[kind],
        points,
        rotation,
        DECIMALS,
        label=element.get("label") or "",
        occluded=element.get("occluded") == "1",
        group=_parse_int(element.get("group_id")) or 0,
        attributes=_read_attributes(element),
        z_order=_parse_int(element.get("z_order")) or 0,
    )


def _read_attributes(element: Any) -> Attributes:
    children = element.iterfind("attribute")
    return tuple((child.get("name") or "", child.text or "") for child in children)


def _parse_int(text: str | None) -> int | None:
    return int(text) if text and text.strip() else None


# Writing

Labels: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""Classes of a task, with the input type of each attribute: ``text``, ``number``, …"""
END = "</annotations>\n"


def format_head(name: str, labels: Labels, subsets: Sequence[str] = ()) -> str:
    """Return the XML before the frames: of a task, or of a project with a task per subset."""
    inner = f"<name>{escape_text(name)}</name>{_format_labels(labels)}"
    head = f"<task>{inner}</task>"
    if subsets:
        tasks = "".join(
            f"<task><name>{subset}</name><subset>{subset}</subset></task>\n"
            for subset in map(escape_text, subsets)
        )
        head = f"<project>{inner}<tasks>\n{tasks}</tasks></project>"
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
        f"<meta>{head}</meta>\n"
    )


def format_image(
    frame: Mapping[str, object],
    size: tuple[int, int],
    shapes: Iterable[CvatShape],
    tags: Iterable[CvatTag] = (),
    decimals: int = 2,
) -> str:
    """Return the XML of an image with its shapes and tags; the size is height and width."""
    height, width = size
    head = _format_attributes({**frame, "width": width, "height": height})
    parts = [f"<image{head}>\n", *(_format_shape(shape, decimals) for shape in shapes)]
    for tag in tags:
        label = _format_attributes({"label": tag.label})
        parts.append(f"<tag{label}>{_format_children(tag.attributes)}</tag>\n")
    return "".join(parts) + "</image>\n"


def _format_labels(labels: Labels) -> str:
    parts = []
    for label, attributes in labels.items():
        inner = "".join(
            f"<attribute><name>{escape_text(name)}</name><mutable>False</mutable>"
            f"<input_type>{input_type}</input_type></attribute>"
            for name, input_type in attributes.items()
        )
        name = escape_text(label)
        parts.append(f"<label><name>{name}</name><attributes>{inner}</attributes></label>\n")
    return f"<labels>\n{''.join(parts)}</labels>\n" if parts else ""


def _format_shape(shape: CvatShape, decimals: int) -> str:
    left, top, right, bottom = shape.extent
    values: dict[str, object] = {"label": shape.label, "occluded": int(shape.occluded)}
    if shape.kind == MASK:
        values |= {"rle": ", ".join(map(str, shape.runs)), "left": int(left), "top": int(top)}
        values |= {"width": int(right - left), "height": int(bottom - top)}
    elif shape.kind == POINTS:
        numbers = [_format_number(number, decimals) for number in shape.points]
        values["points"] = ";".join(map(",".join, zip(numbers[::2], numbers[1::2], strict=True)))
    else:
        assert shape.kind == BOX  # shards have no other shapes
        sides = zip(("xtl", "ytl", "xbr", "ybr"), shape.extent, strict=True)
        values |= {side: _format_number(value, decimals) for side, value in sides}
        if shape.rotation:
            values["rotation"] = _format_number(shape.rotation, decimals)
    values["z_order"] = shape.z_order
    if shape.group:
        values["group_id"] = shape.group
    head, children = _format_attributes(values), _format_children(shape.attributes)
    return f"<{shape.kind}{head}>{children}</{shape.kind}>\n"


def _format_number(value: float, decimals: int) -> str:
    return f"{round(value, decimals):.15g}"


def _format_children(attributes: Attributes) -> str:
    return "".join(
        f"<attribute{_format_attributes({'name': name})}>{escape_text(text)}</attribute>"
        for name, text in attributes
    )


def _format_attributes(values: Mapping[str, object]) -> str:
    return "".join(f" {name}={quote_attribute(str(value))}" for name, value in values.items())
