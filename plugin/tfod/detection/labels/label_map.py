"""Label maps: ``StringIntLabelMap`` text files with the ids of class names.

Source: object_detection/protos/string_int_label_map.proto and utils/label_map_util.py of
tensorflow/models. protobuf parses the text format with the descriptor of that message, so all legal
syntax is accepted: comments, commas, semicolons, ``<>``, both quotes, escapes, joined strings.
Since protobuf loads slowly, plain label maps, as CVAT and tfod write them, are parsed without it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfod.detection.labels.fuzzy_names import FuzzyNames, fold_name
from tfod.errors import LabelMapError, ShardError, truncate
from tfod.tfrecord.compression import HEAD_BYTES
from tfod.tfrecord.damage import detect_file_type
from tfod.tfrecord.framing import is_record_header
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.urls import is_url

_BYTE_ORDER_MARK = "\ufeff"
MAX_LABEL_MAP_BYTES = 4 << 20
"""Bytes; the label map of 20,000 classes of Open Images has 1.5 million."""
_STEP = 1 << 20
_NO_IDS: frozenset[int] = frozenset()
_PACKAGED = Path(__file__).parents[2] / "label_maps"
_CHECKOUT = Path(__file__).parents[4] / "label_maps"
_CURLY_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"})
# Like Datumaro, accept items without the word "item". A match must begin at the first of several
# blanks: otherwise a million blanks would take quadratic time.
_BRACE = re.compile(r"(?<!\s)(\s*)\{")
# A name up to the end of its line or item.
_UNQUOTED = re.compile(
    r"\b((?:display_)?name *: *)(?!\s)([^'\"{}\n#;,]*[^'\"{}\s#;,])(?= *(?:[,;}#\r\n]|$))"
)
_ITEM = re.compile(r"\s*item \{\s*id: ([1-9][0-9]{0,8})\s+name: '([\w .-]+)'\s*\}\s*", re.ASCII)
"""An item as written by CVAT and tfod, if its name needs no escapes."""


@dataclass(frozen=True)
class Keypoint:
    """A named keypoint of a class; ``id`` is its index in the keypoint lists of records."""

    id: int
    label: str


@dataclass(frozen=True)
class LabelMapItem:
    """A class of a label map.

    Attributes:
        id: value of ``image/object/class/label``.
        name: usual value of ``image/object/class/text``; '' if missing.
        display_name: name for users; '' if missing.
        keypoints: names of the keypoints of the class.
        frequency, instance_count, ancestor_ids, descendant_ids: kept, but not interpreted.
    """

    id: int
    name: str = ""
    display_name: str = ""
    keypoints: tuple[Keypoint, ...] = ()
    frequency: int | None = None
    instance_count: int | None = None
    ancestor_ids: tuple[int, ...] = ()
    descendant_ids: tuple[int, ...] = ()

    @property
    def class_name(self) -> str:
        """The name, else the display name, else the id as text."""
        return self.name or self.display_name or str(self.id)

    def with_name(self, name: str = "") -> LabelMapItem:
        """Return the item; without any name, it is called ``name``, or else by its id."""
        has_name = self.name or self.display_name
        return self if has_name else dataclasses.replace(self, name=name or self.class_name)


@dataclass(frozen=True)
class LabelMap:
    """The classes of a label map in the order of the file."""

    items: tuple[LabelMapItem, ...] = ()

    @classmethod
    def from_names(cls, names: Iterable[str]) -> LabelMap:
        """Create a label map that numbers names from 1, like the OD API's scripts."""
        return cls(tuple(LabelMapItem(i, name) for i, name in enumerate(names, start=1)))

    @functools.cached_property
    def class_names(self) -> Mapping[int, str]:
        """The name of each class by its id."""
        return {item.id: item.class_name for item in self.items}

    @functools.cached_property
    def _by_text(self) -> dict[str, LabelMapItem]:
        items: dict[str, LabelMapItem] = {}
        for field in ("name", "display_name"):
            for item in self.items:
                items.setdefault(getattr(item, field), item)
        items.pop("", None)
        return items

    @functools.cached_property
    def _by_id(self) -> dict[int, LabelMapItem]:
        return {item.id: item for item in reversed(self.items)}

    @functools.cached_property
    def ids_by_text(self) -> Mapping[str, AbstractSet[int]]:
        """The ids of all classes with a certain text as their name or display name."""
        ids: dict[str, set[int]] = {}
        for item in self.items:
            for text in filter(None, (item.name, item.display_name)):
                ids.setdefault(text, set()).add(item.id)
        return ids

    @functools.cached_property
    def fuzzy_names(self) -> FuzzyNames:
        """An index of the names and display names that tolerates typing errors."""
        return FuzzyNames(self.ids_by_text, fold_name)

    @functools.cached_property
    def id_range(self) -> tuple[int, int]:
        """The smallest and the largest id; 0, 0 if the label map is empty."""
        ids = self._by_id or (0,)
        return min(ids), max(ids)

    @property
    def names_of_shared_ids(self) -> dict[int, list[str]]:
        """The class names of each id that several classes share."""
        names_by_id: dict[int, list[str]] = {}
        for item in self.items:
            names_by_id.setdefault(item.id, []).append(item.class_name)
        return {class_id: names for class_id, names in names_by_id.items() if len(names) > 1}

    def find_ids(self, text: str) -> AbstractSet[int]:
        """Return the ids of all classes with this name or display name."""
        return self.ids_by_text.get(text, _NO_IDS)

    def find(self, text: str) -> LabelMapItem | None:
        """Return the class with this name, else the one with this display name, or None."""
        return self._by_text.get(text)

    def find_id(self, class_id: int) -> LabelMapItem | None:
        """Return the first class with this id, like the OD API, or None."""
        return self._by_id.get(class_id)

    def to_text(self) -> str:
        """Return the text format, in CVAT's documented layout: a tab, ``id``, ``name``."""
        return "".join(_format_item(item) for item in self.items)


def _format_item(item: LabelMapItem) -> str:
    lines = [f"id: {item.id}"]
    for field in ("name", "display_name"):
        text = getattr(item, field)
        if text:
            lines.append(f"{field}: '{_escape(text)}'")
    for point in item.keypoints:
        lines.append(f"keypoints {{ id: {point.id} label: '{_escape(point.label)}' }}")
    for field in ("ancestor_ids", "descendant_ids"):
        lines.extend(f"{field}: {value}" for value in getattr(item, field))
    for field in ("frequency", "instance_count"):
        if getattr(item, field) is not None:
            lines.append(f"{field}: {getattr(item, field)}")
    return "item {\n" + "".join(f"\t{line}\n" for line in lines) + "}\n\n"


def quote(text: str) -> str:
    """Return a text in double quotes, escaped for protobuf's text format."""
    return f'"{_escape(text)}"'


def _escape(text: str) -> str:
    from google.protobuf import text_encoding

    return str(text_encoding.CEscape(text, as_utf8=True))


def parse_label_map(text: str, source: str = "<text>") -> tuple[LabelMap, list[str]]:
    """Parse a label map's text.

    Curly quotes, names without quotes, items without the word ``item``, unknown fields and a byte
    order mark are invalid but unambiguous: they are tolerated and reported.

    Returns:
        The label map, and sentences about the tolerated deviations.

    Raises:
        LabelMapError: the text is not a label map; the message has line and column.
    """
    plain_items = _parse_plain_items(text)
    if plain_items is not None:
        return LabelMap(plain_items), []
    from tfod.detection.labels.message import ParseError, parse

    deviations: list[str] = []
    if text.startswith(_BYTE_ORDER_MARK):
        text = text.removeprefix(_BYTE_ORDER_MARK)
        deviations.append("a byte order mark was ignored; save the file as UTF-8 without one")
    try:
        message = parse(text)
    except (ParseError, UnicodeError) as error:
        repaired = text.translate(_CURLY_QUOTES)
        if repaired != text:
            deviations.append("curly quotes are read as straight quotes")
        with_items = _BRACE.sub(_insert_item, repaired)
        if with_items != repaired:
            deviations.append("items without the word 'item' are read as items")
        with_quotes = _UNQUOTED.sub(lambda name: name[1] + quote(name[2]), with_items)
        if with_quotes != with_items:
            deviations.append("names without quotes are read as names")
        try:
            message = parse(with_quotes, allow_unknown_field=True)
        except (ParseError, UnicodeError):
            raise LabelMapError(_explain(text, source, error)) from None
        # Unknown fields are harmless, but without a name this is a typing error or another file.
        if not message.item or not all(item.name or item.display_name for item in message.item):
            raise LabelMapError(_explain(text, source, error)) from None
        if with_quotes == text:
            deviations.append(f"unknown fields are ignored ({error})")
    return LabelMap(tuple(_to_item(item) for item in message.item)), [
        f"{source}: {deviation}" for deviation in deviations
    ]


def _parse_plain_items(text: str) -> tuple[LabelMapItem, ...] | None:
    """Return the items of a text with only plain items; None for other texts."""
    items, end = [], 0
    while match := _ITEM.match(text, end):
        items.append(LabelMapItem(int(match[1]), match[2]))
        end = match.end()
    return tuple(items) if end == len(text) else None


def _insert_item(brace: re.Match[str]) -> str:
    """Insert the missing word before a brace at the start of the text or a line, or after }."""
    blanks, before = brace[1], brace.string[max(0, brace.start() - 1) : brace.start()]
    return f"{blanks}item {{" if before in ("", "}") or "\n" in blanks else brace[0]


def _explain(text: str, source: str, error: Exception) -> str:
    start = text.lstrip()[:200].lower()
    if start.startswith(("<!doctype", "<html", "<?xml", "<!--")):
        return f"{source} is not a label map but an HTML page; download the raw file instead"
    if start.startswith("version https://git-lfs"):
        return f"{source} is not a label map but a Git LFS pointer; run git lfs pull"
    reason = str(error).replace("\n", " ").strip()
    if 'multiple "' in reason:
        location = reason.partition(" :")[0]
        return (
            f"{source} is not a label map ({location}: several classes in one item); begin each "
            "class with item {"
        )
    location, _, detail = reason.partition(" : ")
    detail = truncate(re.sub(r"^'.*': ", "", detail).rstrip("."))  # without the quoted line
    return (
        f"{source} is not a label map ({location}: {detail}); "
        "expected entries such as: item { id: 1 name: 'cat' }"
    )


def read_label_map(path: str | os.PathLike[str]) -> tuple[LabelMap, list[str]]:
    """Read a label map from a file or URL. Returns and raises like :func:`parse_label_map`."""
    name = os.fspath(path)
    return decode_label_map(read_text_file(name, MAX_LABEL_MAP_BYTES), name)


def read_text_file(name: str, max_bytes: int) -> bytes:
    """Read a file, zip entry or URL until it exceeds ``max_bytes``, or raise LabelMapError."""
    try:
        # Reading from a device might never end.
        if os.path.exists(name) and not os.path.isfile(name):
            kind = "a folder; pass a file" if os.path.isdir(name) else "not a regular file"
            raise LabelMapError(f"{name} cannot be read: it is {kind}")
        with open_shard(name) as (stream, _):
            data = bytearray()
            while len(data) <= max_bytes and (more := stream.read(_STEP)):
                data += more
    except OSError as error:
        raise LabelMapError(f"{name} cannot be read: {error.strerror}") from None
    except ShardError as error:
        raise LabelMapError(f"{name}: {error.cause}") from None
    return bytes(data)


def decode_label_map(data: bytes, name: str) -> tuple[LabelMap, list[str]]:
    """Parse a label map's bytes. Returns and raises like :func:`parse_label_map`."""
    if is_record_header(data):
        raise LabelMapError(f"{name} is a shard, not a label map; did you swap the two paths?")
    if len(data) > MAX_LABEL_MAP_BYTES:
        max_mib = MAX_LABEL_MAP_BYTES >> 20
        raise LabelMapError(f"{name} is too long for a label map (above {max_mib} MiB)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = _BYTE_ORDER_MARK + data.decode("utf-16", "replace")
        elif file_type := detect_file_type(data[:HEAD_BYTES]):
            raise LabelMapError(f"{name} is not a label map but {file_type[0]}") from None
        else:
            raise LabelMapError(
                f"{name} is not a label map (byte {error.start} is not UTF-8); save it as UTF-8"
            ) from None
    return parse_label_map(text, name)


def load_label_map(file_or_name: str | os.PathLike[str]) -> tuple[LabelMap, list[str]]:
    """Read a label map from a path or URL, or one that tfod ships by name (``coco``, …)."""
    name = os.fspath(file_or_name)
    # A folder with the name of a shipped label map does not hide it.
    if not os.path.isfile(name) and name in packaged_label_maps():
        return load_shipped_label_map(name), []
    require_label_map(name)
    return read_label_map(name)


def require_label_map(name: str) -> None:
    """Raise LabelMapError if neither a file nor a shipped label map of this name exists."""
    if not (is_url(name) or os.path.exists(name) or name in packaged_label_maps()):
        raise LabelMapError(
            f"{name}: no such label map; pass a file, or one of these names: "
            + ", ".join(packaged_label_maps())
        )


def load_shipped_label_map(name: str) -> LabelMap:
    """Return a label map that tfod ships, regardless of files in the working folder."""
    return read_label_map(packaged_folder() / f"{name}.pbtxt")[0]


def packaged_label_maps() -> list[str]:
    """Return the names of the label maps that tfod ships."""
    return sorted(path.stem for path in packaged_folder().glob("*.pbtxt"))


def packaged_folder() -> Path:
    """Return the folder of the label maps that tfod ships."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT  # only a wheel has the first


def _to_item(item: Any) -> LabelMapItem:
    return LabelMapItem(
        id=item.id,
        name=item.name,
        display_name=item.display_name,
        keypoints=tuple(Keypoint(point.id, point.label) for point in item.keypoints),
        frequency=item.frequency if item.HasField("frequency") else None,
        instance_count=item.instance_count if item.HasField("instance_count") else None,
        ancestor_ids=tuple(item.ancestor_ids),
        descendant_ids=tuple(item.descendant_ids),
    )
