"""Ordinary zips, and zips with forged headers."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """An entry of a zip; a field that is None has the right value."""

    name: str | bytes
    data: bytes = b""
    method: int = 8
    flags: int = 0
    mode: int = stat.S_IFREG | 0o644
    packed: bytes | None = None
    size: int | None = None
    packed_size: int | None = None
    crc: int | None = None
    version: int = 20
    start: int | None = None
    extra: bytes = b""
    own_name: bytes | None = None
    """The name in the local header."""


def forge(*items: Item) -> bytes:
    """Return a zip with the fields of its items."""
    body, directory = bytearray(), bytearray()
    for item in items:
        name = item.name.encode() if isinstance(item.name, str) else item.name
        flags = item.flags | (0x800 if isinstance(item.name, str) and not name.isascii() else 0)
        packed = item.packed
        if packed is None:
            packed = deflate(item.data) if item.method == 8 else item.data
        crc = zlib.crc32(item.data) if item.crc is None else item.crc
        size = len(item.data) if item.size is None else item.size
        packed_size = len(packed) if item.packed_size is None else item.packed_size
        common = (flags, item.method, 0, 0x21, crc, packed_size, size)
        start = len(body) if item.start is None else item.start
        if item.start is None:
            own_name = name if item.own_name is None else item.own_name
            own = (b"PK\3\4", 20, *common, len(own_name), 0)
            body += struct.pack("<4s5H3L2H", *own) + own_name + packed
        directory += struct.pack(
            "<4s6H3L5H2L",
            *(b"PK\1\2", 0x0314, item.version, *common),
            *(len(name), len(item.extra), 0, 0, 0, item.mode << 16, start),
        )
        directory += name + item.extra
    count = len(items)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    return bytes(body + directory + end)


def deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def real_zip(files: Iterable[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return buffer.getvalue()


def as_zip64(data: bytes, size: int | None = None) -> bytes:
    """Return an archive with a zip64 end record, and another size of its directory."""
    _, _, _, _, count, old_size, offset, _ = struct.unpack("<4s4H2LH", data[-22:])
    head = (b"PK\6\6", 44, 45, 45, 0, 0)
    sizes = (count, count, old_size if size is None else size, offset)
    record = struct.pack("<4sQ2H2L4Q", *head, *sizes)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(data) - 22, 1)
    end = (b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return data[:-22] + record + locator + struct.pack("<4s4H2LH", *end)


def quoting_zip() -> bytes:
    """Return a zip whose entries quote the headers of later ones and share a kernel (Fifield)."""
    kernel = deflate(bytes(1 << 20))
    names = [f"{number}.record" for number in range(5)]
    items = []
    total = b"".join(
        struct.pack("<4s5H3L2H", b"PK\3\4", 20, 8, 8, 0, 0x21, 0, 0, 0, len(one), 0) + one.encode()
        for one in names
    )
    header = len(total) // len(names)
    for number, name in enumerate(names):
        packed_size = header * (len(names) - number - 1) + len(kernel)
        items.append(Item(name, b"", flags=8, start=number * header, packed_size=packed_size))
    body = total + kernel
    data = forge(*items)
    directory, end = data[:-22], bytearray(data[-22:])
    end[16:20] = len(body).to_bytes(4, "little")
    return body + directory + bytes(end)
