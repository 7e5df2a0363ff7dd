"""Random access into a shard: byte spans that are read when somebody asks for them, and an index.

An image that was imported is a span (file, offset, length) until its bytes are wanted. The file
is held open from the moment its spans are made, so that images stay readable while an export
replaces the shard they come from; of a shard that is compressed or in a zip, where nothing seeks,
the plain bytes are put into a temporary file once they are asked for. When too many files are open
the oldest is closed. One that is not the same any more when it is opened again is refused instead
of misread.
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
from tfod.tfrecord.framing import FRAME_BYTES, HEADER_BYTES, length_in_header, masked_crc32c
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.storage.open import open_shard, read_at, zip_entry
from tfod.tfrecord.storage.urls import is_url


def _open_file_limit() -> int:
    """Half of what this process may open: the rest is the program's."""
    try:
        import resource
    except ImportError:  # Windows
        return 256
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(64, min(soft, 8192) // 2)


_MAX_OPEN_FILES = _open_file_limit()


class ShardIdentity(NamedTuple):
    """A file as it was when it was read: the same path may hold another shard later."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Some bytes of a shard's uncompressed content, read on demand.

    Can be copied, pickled and sent to another process. Calling it reads it, since that is how
    Datumaro asks for lazy data.
    """

    shard: ShardIdentity
    offset: int
    length: int

    def read(self) -> bytes:
        """Return the bytes.

        Raises:
            ShardError: the shard was replaced, shortened or removed since the span was made.
        """
        data = _open_files.read(self.shard, self.offset, self.length)
        if len(data) != self.length:
            raise _changed(self.shard)
        return data

    def __call__(self, *_: object) -> bytes:
        return self.read()


def identify(path: str | os.PathLike[str]) -> ShardIdentity:
    """Note which file a path is now, and keep it open for the spans that will point into it."""
    text = os.fspath(path)
    return _open_files.open(text if is_url(text) else os.path.abspath(text))


def close_files() -> None:
    """Close all shards that are kept open: Windows does not replace a file that is.

    Spans of files that then stay as they are open them again; others say that theirs has changed.
    """
    _open_files.close()


class RecordIndex(Sequence[bytes]):
    """The records of one shard by number: ``RecordIndex(path)[17]`` is record 17's payload.

    Building it reads only the 12-byte headers of a plain shard; payloads are read, and their
    checksum is verified, when they are asked for.

    Raises:
        ShardError: the framing is damaged.
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
        """Where the payload of a record is; ``index`` may be negative, as in a list."""
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
        framed = ByteSpan(span.shard, span.offset, span.length + 4).read()
        payload = framed[:-4]
        if masked_crc32c(payload) != int.from_bytes(framed[-4:], "little"):
            raise bad_data(self.path, index % len(self), span.offset - HEADER_BYTES).to_error()
        return payload


def _payload_spans(shard: ShardIdentity) -> Iterator[tuple[int, int]]:
    """Offset and length of each payload, from headers alone."""
    offset = 0
    size = _open_files.size(shard)
    while offset < size:
        length = length_in_header(_open_files.read(shard, offset, HEADER_BYTES))
        if length is None or offset + FRAME_BYTES + length > size:
            break
        yield offset + HEADER_BYTES, length
        offset += FRAME_BYTES + length
    if offset < size:  # the walk through all of it knows what is wrong and says it
        for record in read_records(shard.path):
            if record.offset >= offset:
                yield record.payload_offset, record.length


class _OpenFile(NamedTuple):
    """A file that is held open; ``is_copy`` where it is a temporary one of plain bytes."""

    file: BinaryIO
    is_copy: bool


class _OpenFiles:
    """The shards that are open for random access, least recently used first."""

    def __init__(self) -> None:
        self._files: OrderedDict[ShardIdentity, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, path: str) -> ShardIdentity:
        with self._lock:
            return self._open(path)

    def size(self, shard: ShardIdentity) -> int:
        """How many plain bytes it has."""
        with self._lock:
            return os.fstat(self._file(shard)).st_size

    def read(self, shard: ShardIdentity, offset: int, length: int) -> bytes:
        """Some of the plain bytes; fewer at the end."""
        with self._lock:
            return read_at(self._file(shard), length, offset)

    def close(self) -> None:
        with self._lock:
            while self._files:
                self._files.popitem()[1].file.close()

    def _file(self, shard: ShardIdentity) -> int:
        """The descriptor of its plain bytes."""
        if shard not in self._files:
            self._require_same(shard)
        if shard not in self._files:
            self._keep(shard, _OpenFile(_plain_copy(shard.path), is_copy=True))
            self._require_same(shard)
        self._files.move_to_end(shard)
        opened = self._files[shard]
        # The content of a file may become another one in place.
        if not opened.is_copy and _identity(shard.path, opened.file) != shard:
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
        """Note which file it is, and keep it open if its bytes are those of the plain shard."""
        if is_url(path):
            cause = "is remote, and its records are read one by one only as they come"
            raise ShardError(cause, shard=path, fix="copy it here first")
        entry = zip_entry(path)
        file: BinaryIO = open(entry.archive if entry else path, "rb", buffering=0)
        shard = _identity(path, file, entry.size if entry else None)
        is_packed = entry or PeekedStream(file).compression is not Compression.NONE
        if is_packed or shard in self._files:
            file.close()
        else:
            self._keep(shard, _OpenFile(file, is_copy=False))
        return shard

    def _keep(self, shard: ShardIdentity, opened: _OpenFile) -> None:
        self._files[shard] = opened
        while len(self._files) > _MAX_OPEN_FILES:
            self._files.popitem(last=False)[1].file.close()


def _identity(path: str, file: BinaryIO, size: int | None = None) -> ShardIdentity:
    """Which file it is; of an entry of a zip its archive, but with its own path and size."""
    status = os.fstat(file.fileno())
    size = status.st_size if size is None else size
    return ShardIdentity(path, status.st_dev, status.st_ino, size, status.st_mtime_ns)


def _plain_copy(path: str) -> BinaryIO:
    """An unnamed temporary file with the plain bytes of a shard."""
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
        fix = "make room there, set TMPDIR, or decompress the shard yourself"
        raise ShardError(cause, shard=path, fix=fix) from None
    return copy


def _changed(shard: ShardIdentity) -> ShardError:
    cause = "was replaced, changed or removed since it was read"
    return ShardError(cause, shard=shard.path, fix="import the dataset again")


_open_files = _OpenFiles()
