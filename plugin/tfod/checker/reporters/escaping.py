"""Texts from shards, made safe to show: nothing in them may steer what shows them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

_UNSEEN = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: escape sequences of terminals
    "\xad\u180e\u200b\u2060-\u2064\ufeff"  # nothing to see, so names look alike that differ
    "\xa0\u1680\u2000-\u200a\u202f\u205f"  # spaces that are not the space
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction: "gpj.exe" reads as "exe.jpg"
    "\u2028\u2029"  # separators of lines and paragraphs
    "\u206a-\u206f\ufff9-\ufffb\U000e0000-\U000e007f"  # deprecated formats, annotations, tags
    "\ufffe\uffff\ud800-\udfff"  # no characters at all; XML and UTF-8 refuse them
    "]"
)
"""Joiners (U+200C, U+200D) stay: Persian, Indic scripts and emoji are written with them."""
WIDTH = 80
"""Columns of a text for a terminal; only a word or a name that is longer goes beyond."""
_LONGEST_NAME = 40
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    r"""A text with its control characters spelled out: ``\x1b``, ``\u202e``, ``\n``."""
    return _UNSEEN.sub(_spell, text)


def shortened_name(name: str) -> str:
    """A class as it is written into an image."""
    if len(name) > _LONGEST_NAME:
        name = name[: _LONGEST_NAME - 1] + "…"
    return visible(name)


def escape_json(document: str) -> str:
    """A JSON document with the same characters as JSON's own escapes; line breaks stay.

    Half a surrogate pair, which strict parsers refuse, is spelled out with a second backslash.
    """
    return _UNSEEN.sub(_spell_in_json, document)


def columns(text: str) -> int:
    """Cells that a text takes on a terminal: 2 for a CJK character, 0 for a combining one."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def in_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table: the first column to the left, the others, which are numbers, to the right.

    Args:
        rows: texts, which are shown as they are; all of one length.
    """
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        pads = [" " * (width - columns(one)) for one, width in zip(row, widths, strict=True)]
        cells = (pad + one for pad, one in zip(pads[1:], row[1:], strict=True))
        yield "  ".join((row[0] + pads[0], *cells)).rstrip()


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _spell(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if code <= 0xFF:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _spell_in_json(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\n":
        return character
    if "\ud800" <= character <= "\udfff":
        return f"\\\\u{ord(character):04x}"
    pairs = character.encode("utf-16-be").hex()
    return "".join(f"\\u{pairs[start : start + 4]}" for start in range(0, len(pairs), 4))
