"""CVAT's own XML, written as it streams past: "CVAT 1.1", as servers import it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol
from xml.sax.saxutils import escape, quoteattr

from tfod.check.cvat_shapes import BOX, MASK, CvatShape
from tfod.check.cvat_xml import CvatTag

_QUOTED = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class DocumentWriter:
    """Writes one frame after the other.

    Args:
        sink: takes the bytes.
        name: of the task.
    """

    def __init__(self, sink: _Sink, name: str) -> None:
        self._sink = sink
        self._write(
            '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
            f"<meta><task><name>{_plain(escape(name))}</name></task></meta>\n"
        )

    def image(
        self,
        number: int,
        name: str,
        size: tuple[int, int],
        shapes: Iterable[CvatShape],
        tags: Iterable[CvatTag] = (),
    ) -> None:
        """Write a frame.

        Args:
            number: that it has in CVAT's XML.
            name: exactly as the task has it.
            size: height and width in pixels.
            shapes: boxes and masks.
            tags: classes of the whole image.
        """
        height, width = size
        frame = {"id": number, "name": name, "width": width, "height": height}
        parts = [f"<image{_attributes(frame)}>\n"]
        parts += [_shape_text(one) for one in shapes]
        parts += [f"<tag{_attributes({'label': tag.label})}></tag>\n" for tag in tags]
        self._write("".join(parts) + "</image>\n")

    def finish(self) -> None:
        """Write the end. The sink stays open."""
        self._write("</annotations>\n")

    def _write(self, text: str) -> None:
        self._sink.write(text.encode())


def _shape_text(shape: CvatShape) -> str:
    left, top, right, bottom = shape.extent
    named: dict[str, object] = {"label": shape.label, "occluded": int(shape.occluded)}
    if shape.kind == MASK:
        named |= {"rle": ", ".join(map(str, shape.runs)), "left": int(left), "top": int(top)}
        named |= {"width": int(right - left), "height": int(bottom - top)}
    else:
        assert shape.kind == BOX  # a shard holds nothing else
        sides = zip(("xtl", "ytl", "xbr", "ybr"), shape.extent, strict=True)
        named |= {side: f"{value:.2f}" for side, value in sides}
    named["z_order"] = 0
    if shape.group:
        named["group_id"] = shape.group
    inner = "".join(
        f"<attribute{_attributes({'name': name})}>{_plain(escape(text))}</attribute>"
        for name, text in shape.attributes
    )
    return f"<{shape.kind}{_attributes(named)}>{inner}</{shape.kind}>\n"


def _attributes(named: Mapping[str, object]) -> str:
    return "".join(
        f" {name}={quoteattr(_plain(str(value)), _QUOTED)}" for name, value in named.items()
    )


def _plain(text: str) -> str:
    """Without what XML cannot say at all: control characters and halves of surrogate pairs."""
    if text.isprintable():
        return text
    return "".join(letter for letter in text if letter in "\t\n\r" or not _is_forbidden(letter))


def _is_forbidden(letter: str) -> bool:
    code = ord(letter)
    return code < 0x20 or 0xD800 <= code <= 0xDFFF or code in (0xFFFE, 0xFFFF)
