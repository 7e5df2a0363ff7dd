"""CVAT's own XML, written as it streams past: "CVAT 1.1", as servers import it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from tfod.convert.cvat_xml.reader import CvatTag
from tfod.convert.cvat_xml.shapes import BOX, MASK, CvatShape

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters and halves of surrogate pairs, which XML cannot hold at all."""


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


Labels: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""The classes of a task, with the kind of each of their attributes: ``text``, ``number``, …"""


class DocumentWriter:
    """Writes one frame of a task after the other."""

    def __init__(
        self, sink: _Sink, name: str, labels: Labels | None = None, subsets: Sequence[str] = ()
    ) -> None:
        self._sink = sink
        inner = f"<name>{xml_text(name)}</name>{_labels(labels or {})}"
        head = f"<task>{inner}</task>"
        if subsets:  # a project's tasks have them
            tasks = "".join(
                f"<task><name>{one}</name><subset>{one}</subset></task>\n"
                for one in map(xml_text, subsets)
            )
            head = f"<project>{inner}<tasks>\n{tasks}</tasks></project>"
        self._write(
            '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
            f"<meta>{head}</meta>\n"
        )

    def image(
        self,
        number: int,
        name: str,
        size: tuple[int, int],
        shapes: Iterable[CvatShape],
        tags: Iterable[CvatTag] = (),
    ) -> None:
        """Write a frame: its number in CVAT's XML, its name, height and width in pixels."""
        self._write(image_text({"id": number, "name": name}, size, shapes, tags))

    def finish(self) -> None:
        """Write the end. The sink stays open."""
        self._write("</annotations>\n")

    def _write(self, text: str) -> None:
        self._sink.write(text.encode())


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
    parts += [f"<tag{_attributes({'label': tag.label})}></tag>\n" for tag in tags]
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


def xml_text(text: str) -> str:
    """A text as XML has it, without what it cannot hold."""
    return _plain(escape(text, {"\r": "&#13;"}))


def _shape_text(shape: CvatShape, decimals: int) -> str:
    left, top, right, bottom = shape.extent
    named: dict[str, object] = {"label": shape.label, "occluded": int(shape.occluded)}
    if shape.kind == MASK:
        named |= {"rle": ", ".join(map(str, shape.runs)), "left": int(left), "top": int(top)}
        named |= {"width": int(right - left), "height": int(bottom - top)}
    else:
        assert shape.kind == BOX  # a shard holds nothing else
        sides = zip(("xtl", "ytl", "xbr", "ybr"), shape.extent, strict=True)
        named |= {side: f"{value:.{decimals}f}" for side, value in sides}
    named["z_order"] = 0
    if shape.group:
        named["group_id"] = shape.group
    inner = "".join(
        f"<attribute{_attributes({'name': name})}>{xml_text(text)}</attribute>"
        for name, text in shape.attributes
    )
    return f"<{shape.kind}{_attributes(named)}>{inner}</{shape.kind}>\n"


def _attributes(named: Mapping[str, object]) -> str:
    return "".join(f" {name}={quoteattr(_plain(str(value)))}" for name, value in named.items())


def _plain(text: str) -> str:
    return text if text.isprintable() else _NOT_XML.sub("", text)
