"""Random access into a shard: byte spans that are read lazily, and an index of records.

An imported image is a span until its bytes are needed. The file stays open, so that images remain
readable while an export replaces their shard; a file that has changed when it is opened again
causes an error. A shard that is compressed or in a zip is unpacked to a temporary file first.
"""

from __future__ import annotations

import array
import os
import shutil
import tempfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, cast, overload

import numpy as np

from tfod.errors import ShardError
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.damage import bad_data, damaged_compression
from tfod.tfrecord.framing import FRAME_BYTES, HEADER_BYTES, decode_length, masked_crc32c
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.storage.open import find_zip_entry, open_shard, read_at
from tfod.tfrecord.storage.urls import is_url


def _open_file_limit() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 256
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(64, min(soft, 8192) // 2)  # the program needs files, too


_MAX_OPEN_FILES = _open_file_limit()


class ShardIdentity(NamedTuple):
    """The identity of a file, since another shard may get the same path later."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """A range of bytes in the uncompressed shard, read on demand.

    A span can be copied and pickled. A call also reads it, because Datumaro calls lazy data.
    """

    shard: ShardIdentity
    offset: int
    length: int

    def read(self) -> bytes:
        """Return the bytes; raise ShardError if the shard was replaced, changed or removed."""
        data = _open_files.read(self.shard, self.offset, self.length)
        if len(data) != self.length:
            raise _changed(self.shard)
        return data

    def __call__(self, *_: object) -> bytes:
        return self.read()


def identify(path: str | os.PathLike[str]) -> ShardIdentity:
    """Return the identity of the file at a path, and keep it open for spans of it."""
    text = os.fspath(path)
    return _open_files.open(text if is_url(text) else os.path.abspath(text))


def close_files() -> None:
    """Close all shards, because Windows cannot replace open files; spans open them again."""
    _open_files.close()


class RecordIndex(Sequence[bytes]):
    """The records of a shard by number: ``RecordIndex(path)[17]`` is the payload of record 17.

    Creating it reads only the headers of an uncompressed shard; payloads are read on access, and
    their checksums verified. Raises ShardError if the framing is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._shard = identify(path)
        spans = array.array("q")
        for span in _payload_spans(self._shard):
            spans.extend(span)
        self._spans = np.frombuffer(spans, np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._spans)

    def span(self, index: int) -> ByteSpan:
        """Return the span of a payload; ``index`` may be negative, as for a list."""
        offset, length = self._spans[index].tolist()
        return ByteSpan(self._shard, offset, length)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        span = self.span(index)
        with_checksum = ByteSpan(span.shard, span.offset, span.length + 4).read()
        payload = with_checksum[:-4]
        if masked_crc32c(payload) != int.from_bytes(with_checksum[-4:], "little"):
            raise bad_data(self.path, index % len(self), span.offset - HEADER_BYTES).to_error()
        return payload


def _payload_spans(shard: ShardIdentity) -> Iterator[tuple[int, int]]:
    offset = 0
    size = _open_files.size(shard)
    while offset < size:
        length = decode_length(_open_files.read(shard, offset, HEADER_BYTES))
        if length is None or offset + FRAME_BYTES + length > size:
            break
        yield offset + HEADER_BYTES, length
        offset += FRAME_BYTES + length
    if offset < size:  # reading the records raises an error that describes the damage
        for record in read_records(shard.path):
            if record.offset >= offset:
                yield record.payload_offset, record.length


class _OpenFile(NamedTuple):
    """An open file; ``is_copy`` if it is a temporary copy with the uncompressed bytes."""

    file: BinaryIO
    is_copy: bool


class _OpenFiles:
    """The open shards, least recently used first; sizes and offsets are uncompressed."""

    def __init__(self) -> None:
        self._files: OrderedDict[ShardIdentity, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, path: str) -> ShardIdentity:
        with self._lock:
            return self._open(path)

    def size(self, shard: ShardIdentity) -> int:
        with self._lock:
            # In a browser, a file without a name, such as a temporary copy, has no status.
            return os.lseek(self._file(shard), 0, os.SEEK_END)

    def read(self, shard: ShardIdentity, offset: int, length: int) -> bytes:
        with self._lock:
            return read_at(self._file(shard), length, offset)

    def close(self) -> None:
        with self._lock:
            while self._files:
                self._files.popitem()[1].file.close()

    def _file(self, shard: ShardIdentity) -> int:
        if shard not in self._files:
            self._require_same(shard)
        if shard not in self._files:
            self._keep(shard, _OpenFile(_plain_copy(shard.path), is_copy=True))
            self._require_same(shard)
        self._files.move_to_end(shard)
        opened = self._files[shard]
        # A program may have changed the content without replacing the file.
        if not opened.is_copy and _identify(shard.path, opened.file) != shard:
            self._files.pop(shard).file.close()
            raise _changed(shard)
        return opened.file.fileno()

    def _require_same(self, shard: ShardIdentity) -> None:
        try:
            is_same = self._open(shard.path) == shard
        except (OSError, ShardError):
            is_same = False
        if not is_same:
            raise _changed(shard)

    def _open(self, path: str) -> ShardIdentity:
        if is_url(path):
            cause = "is remote, so its records can only be read in order"
            raise ShardError(cause, shard=path, fix="download the shard first")
        entry = find_zip_entry(path)
        file: BinaryIO = open(entry.archive if entry else path, "rb", buffering=0)
        shard = _identify(path, file, entry.size if entry else None)
        is_compressed = entry or PeekedStream(file).compression is not Compression.NONE
        if is_compressed or shard in self._files:
            file.close()
        else:
            self._keep(shard, _OpenFile(file, is_copy=False))
        return shard

    def _keep(self, shard: ShardIdentity, opened: _OpenFile) -> None:
        self._files[shard] = opened
        while len(self._files) > _MAX_OPEN_FILES:
            self._files.popitem(last=False)[1].file.close()


def _identify(path: str, file: BinaryIO, size: int | None = None) -> ShardIdentity:
    status = os.fstat(file.fileno())
    size = status.st_size if size is None else size
    return ShardIdentity(path, status.st_dev, status.st_ino, size, status.st_mtime_ns)


def _plain_copy(path: str) -> BinaryIO:
    copy = tempfile.TemporaryFile(buffering=0)
    compression = Compression.NONE
    try:
        with open_shard(path) as (stream, _):
            peeked = PeekedStream(stream)
            compression = peeked.compression
            shutil.copyfileobj(cast(BinaryIO, peeked.plain()), copy, 1 << 20)
    except (zlib.error, EOFError) as error:
        copy.close()
        raise damaged_compression(path, compression.value, str(error)).to_error() from None
    except OSError as error:
        copy.close()
        cause = f"cannot be decompressed into {tempfile.gettempdir()} ({error.strerror})"
        fix = "free disk space there, set TMPDIR, or decompress the shard yourself"
        raise ShardError(cause, shard=path, fix=fix) from None
    return copy


def _changed(shard: ShardIdentity) -> ShardError:
    cause = "was replaced, changed or removed since it was read"
    return ShardError(cause, shard=shard.path, fix="import the dataset again")


_open_files = _OpenFiles()
