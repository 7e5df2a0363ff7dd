"""Escaping of texts from shards, so that they cannot control a terminal or a page."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

_ESCAPED = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: escape sequences of terminals
    "\xad\u180e\u200b\u2060-\u2064\ufeff"  # invisible, so that different names look alike
    "\xa0\u1680\u2000-\u200a\u202f\u205f"  # special spaces
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction: "gpj.exe" reads as "exe.jpg"
    "\u2028\u2029"  # line and paragraph separators
    "\u206a-\u206f\ufff9-\ufffb\U000e0000-\U000e007f"  # deprecated formats, annotations, tags
    "\ufffe\uffff\ud800-\udfff"  # not characters; invalid in XML and UTF-8
    "]"
)
"""Joiners (U+200C, U+200D) are kept, because Persian, Indic scripts and emoji need them."""
WIDTH = 80
"""Maximum line width for a terminal; only longer words and names exceed it."""
_MAX_NAME_LENGTH = 40
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    r"""Escape control characters: ``\x1b``, ``\u202e``, ``\n``."""
    return _ESCAPED.sub(_escape, text)


def shorten_name(name: str) -> str:
    """Truncate and escape a class name, to draw it on an image."""
    if len(name) > _MAX_NAME_LENGTH:
        name = name[: _MAX_NAME_LENGTH - 1] + "…"
    return visible(name)


def escape_json(document: str) -> str:
    """Replace the same characters by JSON escapes in a JSON document, except for line breaks.

    Half a surrogate pair, which strict parsers reject, gets a second backslash.
    """
    return _ESCAPED.sub(_escape_in_json, document)


def columns(text: str) -> int:
    """Return the width of a text on a terminal: 2 for a CJK character, 0 for a combining one."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def format_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, with the first column left-aligned, the others right-aligned."""
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        pads = [" " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = (pad + cell for pad, cell in zip(pads[1:], row[1:], strict=True))
        yield "  ".join((row[0] + pads[0], *cells)).rstrip()


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if code <= 0xFF:
        return _SHORT_ESCAPES.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escape_in_json(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\n":
        return character
    if "\ud800" <= character <= "\udfff":
        return f"\\\\u{ord(character):04x}"
    pairs = character.encode("utf-16-be").hex()
    return "".join(f"\\u{pairs[start : start + 4]}" for start in range(0, len(pairs), 4))
