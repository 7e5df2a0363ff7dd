"""CVAT's XML as text: what a document says of its task, and its frames one after the other.

Exports of a task, a job and a project are read as they stream past; written are documents as
servers import them. Source: CVAT's ``dataset_manager/formats/cvat.py`` and ``bindings.py``, and its
page on the XML format.
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
    MOST_PIXELS,
    POINTS,
    POLYGON,
    Attributes,
    CvatImage,
    CvatShape,
    CvatTag,
    make_shape,
)
from tfod.formats.numbers import DECIMALS
from tfod.formats.reading.documents import iterate, open_xml, xml_attribute, xml_text

_MOST_FRAMES = 1_000_000
_LONGEST_REASON = 80
_NO_SHAPES = ("tag", "attribute")
_CVATS_OWN = {tag: name for name, tag in KINDS.items()}
_Part = TypeVar("_Part", CvatImage, "CvatMeta")


@dataclass(frozen=True)
class CvatMeta:
    """What the head of the document says.

    Attributes:
        labels: names of the classes; parts of skeletons are none.
        tasks: how many tasks the document holds: one, unless it is a project's.
        project: whether it is a project's.
        video: the frames come from a video, so that they are called ``frame_000000``.
        first: number that frame 0 of the task has in the document.
        step: how far the numbers of neighbouring frames are apart.
        numbers: of the frames, as in the document; empty when the head does not say.
        height, width: of the video's frames.
        subset: of the one task.
        input_types: of attributes, by class and name: ``checkbox``, ``number``, ``text``, …
    """

    labels: tuple[str, ...]
    tasks: int
    project: bool
    video: bool
    first: int
    step: int
    numbers: range
    height: int | None
    width: int | None
    subset: str = ""
    input_types: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def frame_name(self, number: int) -> str:
        """What CVAT calls a frame of a video."""
        return f"frame_{number:06d}"


def read_cvat_xml(path: str) -> Iterator[CvatMeta | CvatImage | None]:
    """Read a document piece by piece, from a file or from ``annotations.xml`` in a zip.

    The head comes first.

    Raises:
        TfodError: it cannot be read, or is not CVAT's XML; with the line.
    """
    with open_xml(path) as (stream, name):
        yield from read_cvat_stream(stream, name)


def read_cvat_stream(stream: Any, name: str) -> Iterator[CvatMeta | CvatImage | None]:
    """Read a document piece by piece from an open binary stream; the head comes first.

    A track of "CVAT for video" is None: nothing of it is read.

    Raises:
        TfodError: it is not CVAT's XML; with the line.
    """
    seen_meta = False
    images = 0
    for element in iterate(stream, name, "annotations", ("meta", "image", "track")):
        if element.tag == "meta":
            if seen_meta:
                raise TfodError(f"{name} has two <meta>; export it again")
            seen_meta = True
            meta = _read(_read_meta, element, name)
            _require_fewer(len(meta.numbers), name)
            yield meta
        elif not seen_meta:
            raise TfodError(f"{name} has no <meta> before <{element.tag}>; export it again")
        elif element.tag == "image":
            images += 1
            _require_fewer(images, name)
            yield _read(_read_image, element, name)
        else:
            yield None
    if not seen_meta:
        raise TfodError(f"{name} has no <meta>; export the task as CVAT for images 1.1")


def _require_fewer(count: int, name: str) -> None:
    """Raise TfodError for a document with more frames than are kept in memory."""
    if count > _MOST_FRAMES:
        raise TfodError(f"{name} has more than {_MOST_FRAMES:,} frames; export the task in parts")


def _read(how: Callable[[Any], _Part], element: Any, name: str) -> _Part:
    """Raise TfodError, with the line, for what is missing or is no number."""
    try:
        return how(element)
    except (ValueError, TypeError, OverflowError) as error:
        raise TfodError(
            f"{name}, line {element.sourceline}: <{element.tag}> cannot be read "
            f"({str(error)[:_LONGEST_REASON]}); export it again"
        ) from None


def _read_meta(meta: Any) -> CvatMeta:
    labels = meta.findall(".//labels/label")
    project = meta.find("project")
    tasks = meta.findall("project/tasks/task") if project is not None else []
    one = tasks[0] if len(tasks) == 1 else meta.find("task")
    if one is None:
        one = meta.find("job")
    size = meta.find(".//original_size")
    # CVAT numbers the frames of a project's tasks on, so that numbers say nothing of a task.
    first, step, numbers = (0, 1, range(0)) if one is None else _read_numbers(one)
    return CvatMeta(
        labels=tuple(
            label.findtext("name") or "" for label in labels if not label.findtext("parent")
        ),
        tasks=max(1, len(tasks)),
        project=project is not None,
        video=one is not None and one.findtext("mode") == "interpolation",
        first=first,
        step=step,
        numbers=numbers,
        height=None if size is None else _whole(size.findtext("height")),
        width=None if size is None else _whole(size.findtext("width")),
        subset="" if one is None else one.findtext("subset") or "",
        input_types={
            (label.findtext("name") or "", one.findtext("name") or ""): one.findtext("input_type")
            or ""
            for label in labels
            for one in label.iterfind("attributes/attribute")
        },
    )


def _read_numbers(task: Any) -> tuple[int, int, range]:
    """Number of the task's frame 0, the step, and the numbers of the frames written here."""
    key, _, value = (task.findtext("frame_filter") or "").partition("=")
    step = max(1, _whole(value) or 1) if key.strip() == "step" else 1
    start, stop, size = (
        _whole(task.findtext(tag)) for tag in ("start_frame", "stop_frame", "size")
    )
    start = start or 0
    if stop is None:
        stop = start + ((size or 0) - 1) * step
    numbers = range(start, stop + 1, step)
    # A job's frames start in the middle of its task.
    starts = [_whole(one.text) or 0 for one in task.iterfind("segments/segment/start")]
    return start - min(starts, default=0) * step, step, numbers


def _read_image(image: Any) -> CvatImage:
    others = Counter(child.tag for child in image if child.tag not in (*AREA_KINDS, *_NO_SHAPES))
    return CvatImage(
        number=_whole(image.get("id")) or 0,
        name=image.get("name") or "",
        subset=image.get("subset") or "",
        height=_whole(image.get("height")),
        width=_whole(image.get("width")),
        shapes=tuple(_read_shape(one) for one in image.iterchildren(*AREA_KINDS)),
        tags=tuple(
            CvatTag(tag.get("label") or "", _read_attributes(tag)) for tag in image.iterfind("tag")
        ),
        others=others,
    )


def _read_shape(element: Any) -> CvatShape:
    """Read ``<box>``, ``<polygon>``, ``<mask>`` or ``<ellipse>``."""

    def reals(*names: str) -> list[float]:
        return [float(element.get(name) or "") for name in names]

    kind = element.tag
    if kind == BOX:
        points = reals("xtl", "ytl", "xbr", "ybr")
    elif kind == ELLIPSE:
        cx, cy, rx, ry = reals("cx", "cy", "rx", "ry")
        points = [cx, cy, cx + rx, cy - ry]
    elif kind == POLYGON:
        pairs = (pair.split(",") for pair in (element.get("points") or "").split(";"))
        points = [float(one) for x, y in pairs for one in (x, y)]
    else:
        left, top, width, height = map(int, reals("left", "top", "width", "height"))
        runs = [int(one) for one in (element.get("rle") or "").split(",")]
        if min(runs) < 0 or sum(runs) != width * height or sum(runs) > MOST_PIXELS:
            raise ValueError(f"a mask of {sum(runs)} pixels for {width}x{height}, or of too many")
        points = [*runs, left, top, left + width - 1, top + height - 1]
    rotation = float(element.get("rotation") or 0)
    if not all(map(math.isfinite, (rotation, *points))):
        raise ValueError(f"a number of a {kind} is not finite")
    return make_shape(
        _CVATS_OWN[kind],
        points,
        rotation,
        DECIMALS,
        label=element.get("label") or "",
        occluded=element.get("occluded") == "1",
        group=_whole(element.get("group_id")) or 0,
        attributes=_read_attributes(element),
        z_order=_whole(element.get("z_order")) or 0,
    )


def _read_attributes(element: Any) -> Attributes:
    return tuple((one.get("name") or "", one.text or "") for one in element.iterfind("attribute"))


def _whole(text: str | None) -> int | None:
    """A whole number; None where there is no text."""
    return int(text) if text and text.strip() else None


# Documents as they are written


Labels: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""The classes of a task, with the kind of each of their attributes: ``text``, ``number``, …"""
END = "</annotations>\n"


def head_text(name: str, labels: Labels, subsets: Sequence[str] = ()) -> str:
    """All that is in front of the frames, of a task, or of a project whose tasks have subsets."""
    inner = f"<name>{xml_text(name)}</name>{_labels(labels)}"
    head = f"<task>{inner}</task>"
    if subsets:
        tasks = "".join(
            f"<task><name>{one}</name><subset>{one}</subset></task>\n"
            for one in map(xml_text, subsets)
        )
        head = f"<project>{inner}<tasks>\n{tasks}</tasks></project>"
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
        f"<meta>{head}</meta>\n"
    )


def image_text(
    frame: Mapping[str, object],
    size: tuple[int, int],
    shapes: Iterable[CvatShape],
    tags: Iterable[CvatTag] = (),
    decimals: int = 2,
) -> str:
    """``<image>``: its attributes, height and width in pixels, and what is on it."""
    height, width = size
    parts = [f"<image{_attributes({**frame, 'width': width, 'height': height})}>\n"]
    parts += [_shape_text(one, decimals) for one in shapes]
    parts += [
        f"<tag{_attributes({'label': tag.label})}>{_inner(tag.attributes)}</tag>\n" for tag in tags
    ]
    return "".join(parts) + "</image>\n"


def _labels(labels: Labels) -> str:
    parts = []
    for label, attributes in labels.items():
        inner = "".join(
            f"<attribute><name>{xml_text(name)}</name><mutable>False</mutable>"
            f"<input_type>{kind}</input_type></attribute>"
            for name, kind in attributes.items()
        )
        parts.append(
            f"<label><name>{xml_text(label)}</name><attributes>{inner}</attributes></label>\n"
        )
    return f"<labels>\n{''.join(parts)}</labels>\n" if parts else ""


def _shape_text(shape: CvatShape, decimals: int) -> str:
    left, top, right, bottom = shape.extent
    named: dict[str, object] = {"label": shape.label, "occluded": int(shape.occluded)}
    if shape.kind == MASK:
        named |= {"rle": ", ".join(map(str, shape.runs)), "left": int(left), "top": int(top)}
        named |= {"width": int(right - left), "height": int(bottom - top)}
    elif shape.kind == POINTS:
        numbers = [_number(one, decimals) for one in shape.points]
        named["points"] = ";".join(map(",".join, zip(numbers[::2], numbers[1::2], strict=True)))
    else:
        assert shape.kind == BOX  # a shard holds nothing else
        sides = zip(("xtl", "ytl", "xbr", "ybr"), shape.extent, strict=True)
        named |= {side: _number(value, decimals) for side, value in sides}
        if shape.rotation:
            named["rotation"] = _number(shape.rotation, decimals)
    named["z_order"] = shape.z_order
    if shape.group:
        named["group_id"] = shape.group
    return f"<{shape.kind}{_attributes(named)}>{_inner(shape.attributes)}</{shape.kind}>\n"


def _number(value: float, decimals: int) -> str:
    return f"{round(value, decimals):.15g}"


def _inner(attributes: Attributes) -> str:
    return "".join(
        f"<attribute{_attributes({'name': name})}>{xml_text(text)}</attribute>"
        for name, text in attributes
    )


def _attributes(named: Mapping[str, object]) -> str:
    return "".join(f" {name}={xml_attribute(str(value))}" for name, value in named.items())
