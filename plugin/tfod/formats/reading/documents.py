"""Reading of XML, JSON and text files. XML is read safely, in bounded memory.

Annotations come from untrusted sources. A document type is refused, since neither CVAT nor writers
of Pascal VOC use it, and since billion laughs and external entities need it (CWE-776, CWE-611).
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
from tfod.tfrecord.progress import FILES_READ, PROGRESS
from tfod.tfrecord.storage.archive import read_valid_zip, require_readable
from tfod.tfrecord.storage.urls import is_zip
from tfod.tfrecord.storage.zip_entry import ZipEntry

_MAX_PARSED_BYTES = 64 << 20
"""Limit for a document that is kept in memory; the annotations of an image have a few kB."""
_MAX_CHILD_SIZE = 2_000_000
"""Limit of elements and attributes in a child of the root, which then takes some 400 MB."""
_MAX_QUOTED = 40
_MAX_JSON = 60
_UPPERCASE_TAG = re.compile(rb"<[/\w]*[A-Z]")
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
def open_xml(path: str, shown_path: str = "") -> Iterator[tuple[Any, str]]:
    """Open an XML file, or the ``annotations.xml`` in a zip, and yield a stream and its name.

    ``shown_path`` replaces the path in messages. Raises TfodError if the file cannot be read.
    """
    if not (os.path.isfile(path) and is_zip(path)):
        with convert_os_errors(path), Path(path).open("rb") as file:
            yield file, path
        return
    shown_path = shown_path or path
    try:
        content = read_valid_zip(path)
        entry = _find_cvat_entry(content.entries.values(), shown_path)
        require_readable(entry, content)
        with convert_os_errors(shown_path), entry.open() as stream:
            yield stream, f"{shown_path}, {entry.shown}"
    except ShardError as error:
        raise TfodError(str(error).replace(path, shown_path)) from None


@contextlib.contextmanager
def convert_os_errors(name: str) -> Iterator[None]:
    """Convert errors of the operating system to TfodError."""
    try:
        yield
    except OSError as error:
        raise TfodError(f"{name} cannot be read: {error.strerror or error}") from None


def _find_cvat_entry(entries: Iterable[ZipEntry], path: str) -> ZipEntry:
    matches = [entry for entry in entries if posixpath.basename(entry.inside) == CVAT_FILE]
    if not matches:
        raise TfodError(f"{path} contains no {CVAT_FILE}; export the task as CVAT for images 1.1")
    depth = min(entry.inside.count("/") for entry in matches)
    nearest = [entry for entry in matches if entry.inside.count("/") == depth]
    if len(nearest) > 1:
        names = ", ".join(entry.shown for entry in nearest[:3])
        raise TfodError(f"{path} contains several {CVAT_FILE} ({names}); pass the file of one task")
    return nearest[0]


def iterate_children(stream: Any, name: str, root: str, tags: Collection[str]) -> Iterator[Any]:
    """Yield the children of the root of a large document, and drop each one afterwards.

    Args:
        stream: binary stream of the document.
        name: name of the document in messages.
        root: expected tag of the root.
        tags: tags of the children to yield.

    Raises:
        TfodError: the document is malformed, has another root or a DOCTYPE, or is too large.
    """
    depth = size = 0
    with _import_lxml(name) as etree:
        for event, element in etree.iterparse(stream, events=("start", "end"), **_SAFE):
            if event == "start":
                depth += 1
                if depth == 1:
                    _check(element.getroottree(), name, root)
                    continue
                size += 1 + len(element.attrib)
                if size > _MAX_CHILD_SIZE:
                    child = [element, *element.iterancestors()][-2]
                    raise TfodError(
                        f"{name}: <{child.tag}> in line {child.sourceline} contains more than "
                        f"{_MAX_CHILD_SIZE:,} elements and attributes, unlike any export; export "
                        "the task again, or in parts"
                    )
                continue
            depth -= 1
            if depth != 1:
                continue
            size = 0
            if element.tag in tags:
                yield element
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]


def parse_xml(path: str) -> Any:
    """Parse a small document, and return its root with lowercase tags, or raise TfodError."""
    with convert_os_errors(path), Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size > _MAX_PARSED_BYTES:
            limit = _MAX_PARSED_BYTES >> 20
            raise TfodError(f"{path} has more than {limit} MiB, too much for one image")
        data = file.read()
    PROGRESS.add(FILES_READ)
    with _import_lxml(path) as etree:
        root = etree.fromstring(data, etree.XMLParser(**_SAFE))
    _check(root.getroottree(), path, None)
    if _UPPERCASE_TAG.search(data.replace(b"\0", b"")):  # NUL bytes occur in UTF-16
        for element in root.iter("*"):
            element.tag = element.tag.lower()
    return root


def read_number(element: Any, tag: str, path: str, *, finite: bool = True) -> float:
    """Parse the number in a child of an element, as :func:`parse_number` does."""
    child = element.find(tag)
    text = "" if child is None else (child.text or "").strip()
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value  # the usual case
    line = (element if child is None else child).sourceline
    return parse_number(text, f"{path}, line {line}: <{tag}> is", finite)


def _check(tree: Any, name: str, root: str | None) -> None:
    if tree.docinfo.internalDTD is not None or tree.docinfo.doctype:
        raise TfodError(f"{name} has a document type, which is not supported; delete <!DOCTYPE …>")
    tag = tree.getroot().tag
    if root is not None and tag != root:
        raise TfodError(f"{name} is another kind of XML: its root is <{tag}>, not <{root}>")


@contextlib.contextmanager
def _import_lxml(name: str) -> Iterator[Any]:
    """Yield the module, and convert its syntax errors to TfodError."""
    try:
        from lxml import etree
    except ImportError:
        raise TfodError(f"reading XML needs lxml; {how_to_install('validator')}") from None
    try:
        yield etree
    except etree.XMLSyntaxError as error:
        reason = " ".join(str(error.msg).split())
        # lxml appends the line to the messages of a parser, but not to messages of iterparse.
        reason += "" if ", line " in reason else f", line {error.lineno or 1}"
        raise TfodError(f"{name} is not well-formed XML ({reason}); export it again") from None


def read_json(path: str) -> Any:
    """Read a JSON file; raise TfodError if it cannot be read or is invalid."""
    with convert_os_errors(path):
        data = Path(path).read_bytes()
    try:
        return json.loads(data)
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
        raise TfodError(f"{path} cannot be read as JSON ({reason}); save it again") from None


def parse_number(text: str, location: str, finite: bool = True) -> float:
    """Parse a number; raise TfodError with ``location`` if it is invalid or not finite."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if not finite or math.isfinite(value):
            return value
    raise TfodError(f"{location} {text[:_MAX_QUOTED]!r} instead of a number; correct it")


def open_text(path: str, newline: str | None = None) -> io.TextIOWrapper:
    """Open a text file in UTF-8 or UTF-16, depending on its first two bytes."""
    file = Path(path).open("rb")
    head = file.peek(2)[:2]
    # An ASCII character in UTF-16 has one NUL byte, whose position shows the byte order.
    encodings: dict[tuple[bool, ...], str]
    encodings = {(False, True): "utf-16-le", (True, False): "utf-16-be"}
    encoding = encodings.get(tuple(byte == 0 for byte in head), "utf-8-sig")
    if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    return io.TextIOWrapper(file, encoding, newline=newline)


def read_lines(path: str, stripped: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not empty, or raise TfodError.

    ``stripped`` are the characters to remove at both ends; None for all whitespace.
    """
    try:
        with convert_os_errors(path), open_text(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.strip(stripped)
    except UnicodeDecodeError as error:
        raise TfodError(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None


_INVALID_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters and surrogates, which XML does not allow even if escaped."""


def escape_text(text: str) -> str:
    """Escape a text for XML, and remove characters that XML does not allow."""
    return remove_invalid(html.escape(text, quote=False).replace("\r", "&#13;"))


def quote_attribute(text: str) -> str:
    """Escape and quote the value of an XML attribute."""
    escaped = html.escape(text).replace("\n", "&#10;").replace("\r", "&#13;").replace("\t", "&#9;")
    return f'"{remove_invalid(escaped)}"'


def remove_invalid(text: str) -> str:
    """Remove the characters that XML does not allow."""
    return text if text.isprintable() else _INVALID_IN_XML.sub("", text)


def to_short_json(value: Any) -> str:
    """Format a value as JSON, truncated."""
    if type(value) is int:  # skips json for the ids of all annotations
        return str(value)
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _MAX_JSON else text[: _MAX_JSON - 1] + "…"
