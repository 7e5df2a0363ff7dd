"""XML and JSON documents. XML is read safely: no document type, no entities, no network, bounded
memory.

Annotations come from anywhere. A document type is refused outright: neither CVAT nor any writer
of Pascal VOC writes one, and billion laughs and external entities cannot do without (CWE-776,
CWE-611).
"""

from __future__ import annotations

import codecs
import contextlib
import html
import io
import json
import math
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from tfod.errors import ShardError, TfodError, how_to_install
from tfod.sources.format_recognition import CVAT_FILE
from tfod.tfrecord.storage.archive import read_valid_zip, require_readable
from tfod.tfrecord.storage.urls import is_zip
from tfod.tfrecord.storage.zip_entry import ZipEntry

_LONGEST_PARSED = 64 << 20
"""Bytes of a document that is held whole; the annotations of one image have some thousand."""
_MOST_HELD = 2_000_000
"""Elements and attributes in one child of the root, which is held whole: some 400 MB. A track has
ten in each frame."""
_LONGEST_QUOTE = 40
_LONGEST_VALUE = 60
_CAPITALS = re.compile(rb"<[/\w]*[A-Z]")


_SAFE = {
    "load_dtd": False,
    "dtd_validation": False,
    "no_network": True,
    "resolve_entities": False,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}


@contextlib.contextmanager
def open_xml(path: str, called: str = "") -> Iterator[tuple[Any, str]]:
    """Open an XML file, or the ``annotations.xml`` of a zip, as a stream and its name.

    ``called`` is what messages call the file instead of its path.

    Raises:
        TfodError: the file cannot be read, or the zip has no such file or several.
    """
    if not (os.path.isfile(path) and is_zip(path)):
        with reading(path), Path(path).open("rb") as file:
            yield file, path
        return
    shown = called or path
    try:
        content = read_valid_zip(path)
        entry = _cvat_entry(content.entries.values(), shown)
        require_readable(entry, content)
        with reading(shown), entry.open() as stream:
            yield stream, f"{shown}, {entry.shown}"
    except ShardError as error:
        raise TfodError(str(error).replace(path, shown)) from None


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """What the system says of a file that cannot be read becomes a TfodError."""
    try:
        yield
    except OSError as error:
        raise TfodError(f"{name} cannot be read: {error.strerror or error}") from None


def _cvat_entry(entries: Iterable[ZipEntry], path: str) -> ZipEntry:
    found = [one for one in entries if posixpath.basename(one.inside) == CVAT_FILE]
    if not found:
        raise TfodError(f"{path} holds no {CVAT_FILE}; export the task as CVAT for images 1.1")
    depth = min(one.inside.count("/") for one in found)
    nearest = [one for one in found if one.inside.count("/") == depth]
    if len(nearest) > 1:
        names = ", ".join(one.shown for one in nearest[:3])
        raise TfodError(f"{path} holds several {CVAT_FILE} ({names}); name one task's file")
    return nearest[0]


def iterate(stream: Any, name: str, root: str, tags: Collection[str]) -> Iterator[Any]:
    """Walk through a large document; each child of the root is dropped when the next is asked for.

    A child that is not asked for is dropped as well, and none is held beyond a limit.

    Args:
        stream: the document.
        name: what errors call it.
        root: tag that the document's root has to have.
        tags: of the root's children to be given.

    Raises:
        TfodError: no well-formed XML, of another root, or with a document type; with the line; or a
            child of the root that holds too much.
    """
    depth = held = 0
    with _lxml(name) as etree:
        for event, element in etree.iterparse(stream, events=("start", "end"), **_SAFE):
            if event == "start":
                depth += 1
                if depth == 1:
                    _check(element.getroottree(), name, root)
                    continue
                held += 1 + len(element.attrib)
                if held > _MOST_HELD:
                    child = [element, *element.iterancestors()][-2]
                    raise TfodError(
                        f"{name}: <{child.tag}> in line {child.sourceline} holds more than "
                        f"{_MOST_HELD:,} elements and attributes, as no export does; export the "
                        "task again, or in parts"
                    )
                continue
            depth -= 1
            if depth != 1:
                continue
            held = 0
            if element.tag in tags:
                yield element
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]


def parse(path: str) -> Any:
    """The root of a small document; names of elements become lowercase, as VOC's should be.

    Raises:
        TfodError: it cannot be read, is not well-formed XML, has a document type, or is too long.
    """
    with reading(path), _lxml(path) as etree:
        if os.path.getsize(path) > _LONGEST_PARSED:
            most = _LONGEST_PARSED >> 20
            raise TfodError(f"{path} has more than {most} MiB, too much for one image")
        # Not the file, whose name lxml would take for UTF-8.
        data = Path(path).read_bytes()
        tree = etree.parse(io.BytesIO(data), etree.XMLParser(**_SAFE))
    _check(tree, path, None)
    if _CAPITALS.search(data.replace(b"\0", b"")):  # of UTF-16, too
        for one in tree.iter("*"):
            one.tag = one.tag.lower()
    return tree.getroot()


def number_in(element: Any, tag: str, path: str, *, finite: bool = True) -> float:
    """The number in a child of an element; as :func:`parse_number`."""
    found = element.find(tag)
    text = "" if found is None else (found.text or "").strip()
    line = (element if found is None else found).sourceline
    return parse_number(text, f"{path}, line {line}: <{tag}> has", finite)


def _check(tree: Any, name: str, root: str | None) -> None:
    if tree.docinfo.internalDTD is not None or tree.docinfo.doctype:
        raise TfodError(f"{name} has a document type, which is not read; delete <!DOCTYPE …>")
    tag = tree.getroot().tag
    if root is not None and tag != root:
        raise TfodError(f"{name} is another kind of XML: its root is <{tag}>, not <{root}>")


@contextlib.contextmanager
def _lxml(name: str) -> Iterator[Any]:
    """The module, if it is installed; its errors about a document become one line."""
    try:
        from lxml import etree
    except ImportError:
        raise TfodError(f"reading XML needs lxml; {how_to_install('validator')}") from None
    try:
        yield etree
    except etree.XMLSyntaxError as error:
        reason = " ".join(str(error.msg).split())
        # lxml appends line and column to the message of a parser's error, not to that of a pull.
        line = "" if ", line " in reason else f", line {error.lineno or 1}"
        raise TfodError(
            f"{name} is not well-formed XML ({reason}{line}); export it again"
        ) from None


def read_json(path: str) -> Any:
    """Read a JSON file.

    Raises:
        TfodError: it cannot be read or is no JSON, with the line.
    """
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        raise TfodError(f"{path} cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise TfodError(
            f"{path} is not valid JSON ({error.msg}, line {error.lineno}, column {error.colno}); "
            "save it again"
        ) from None
    except UnicodeDecodeError as error:
        raise TfodError(
            f"{path} is not valid JSON (byte {error.start} is not UTF-8); save it as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise TfodError(f"{path} is not JSON that can be read ({reason}); save it again") from None


def parse_number(text: str, where: str, finite: bool = True) -> float:
    """A number in a text of annotations.

    Raises:
        TfodError: it is none, or must be finite and is not; the line begins with ``where``.
    """
    with contextlib.suppress(ValueError):
        value = float(text)
        if not finite or math.isfinite(value):
            return value
    raise TfodError(f"{where} {text[:_LONGEST_QUOTE]!r} where a number is expected; correct it")


def open_text(path: str, newline: str | None = None) -> io.TextIOWrapper:
    """Open a text in UTF-8 or UTF-16, which its first two bytes tell apart."""
    file = Path(path).open("rb")
    head = file.peek(2)[:2]
    plain: dict[tuple[bool, ...], str]
    plain = {(False, True): "utf-16-le", (True, False): "utf-16-be"}
    encoding = plain.get(tuple(byte == 0 for byte in head), "utf-8-sig")
    if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    return io.TextIOWrapper(file, encoding, newline=newline)


def read_lines(path: str, blanks: str | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a text that are not empty, without blanks at their ends, and their numbers.

    ``blanks`` are the characters that are left out; None for all of them.

    Raises:
        TfodError: it cannot be read, or is not UTF-8.
    """
    try:
        with reading(path), open_text(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.strip(blanks)
    except UnicodeDecodeError as error:
        raise TfodError(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters and halves of surrogate pairs, which XML cannot hold at all."""


def xml_text(text: str) -> str:
    """A text as XML has it, without what it cannot hold."""
    return xml_plain(html.escape(text, quote=False).replace("\r", "&#13;"))


def xml_attribute(text: str) -> str:
    """A text in quotes as XML has it at an attribute, without what XML cannot hold."""
    found = html.escape(text).replace("\n", "&#10;").replace("\r", "&#13;").replace("\t", "&#9;")
    return f'"{xml_plain(found)}"'


def xml_plain(text: str) -> str:
    """A text without what XML cannot hold."""
    return text if text.isprintable() else _NOT_XML.sub("", text)


def quoted(value: Any) -> str:
    """A value as JSON has it, cut short."""
    if type(value) is int:  # an id, which every annotation has
        return str(value)
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
