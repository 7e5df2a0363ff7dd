"""Random access into a shard: byte spans that are read when somebody asks for them, and an index.

An image that was imported is a span (file, offset, length) until its bytes are wanted. The file
is held open from the moment its spans are made, so that images stay readable while an export
replaces the shard they come from; when too many files are open the oldest is closed, and a file
that is not the same any more when it is opened again is refused instead of misread.
"""

from __future__ import annotations

import array
import io
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast, overload

import numpy as np

from tfod.errors import ShardError
from tfod.tfrecord.compression import Compression, InflatingStream
from tfod.tfrecord.damage import bad_data
from tfod.tfrecord.framing import FRAME_BYTES, HEADER_BYTES, length_in_header, masked_crc32c
from tfod.tfrecord.reader import read_records, shard_compression
from tfod.tfrecord.storage.open import read_at, zip_entry
from tfod.tfrecord.storage.urls import is_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


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
    """Offset and length of each payload: from headers alone where the file is plain."""
    offset = index = 0
    is_sound = _open_files.compression(shard) is Compression.NONE
    while is_sound and offset < shard.size:
        length = length_in_header(_open_files.read(shard, offset, HEADER_BYTES))
        is_sound = length is not None and offset + FRAME_BYTES + length <= shard.size
        if length is not None and is_sound:
            yield offset + HEADER_BYTES, length
            offset, index = offset + FRAME_BYTES + length, index + 1
    if not is_sound:  # compressed; or the walk through all of it knows what is wrong and says it
        for record in read_records(shard.path):
            if record.number >= index:
                yield record.payload_offset, record.length


class _OpenFiles:
    """The shards that are open for random access, least recently used first."""

    def __init__(self) -> None:
        self._files: OrderedDict[ShardIdentity, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, path: str) -> ShardIdentity:
        with self._lock:
            opened = _OpenFile(path)
            shard = opened.identity()
            if shard in self._files:
                opened.close()
                self._files.move_to_end(shard)
            else:
                self._keep(shard, opened)
            return shard

    def compression(self, shard: ShardIdentity) -> Compression:
        with self._lock:
            return self._file(shard).compression

    def read(self, shard: ShardIdentity, offset: int, length: int) -> bytes:
        with self._lock:
            return self._file(shard).read(offset, length)

    def close(self) -> None:
        with self._lock:
            while self._files:
                self._files.popitem()[1].close()

    def _file(self, shard: ShardIdentity) -> _OpenFile:
        if shard not in self._files:
            try:
                self._keep(shard, _OpenFile(shard.path))
            except (OSError, ShardError):
                raise _changed(shard) from None
        self._files.move_to_end(shard)
        # Another file of that name, or another content in the same file.
        if self._files[shard].is_spooled or self._files[shard].identity() == shard:
            return self._files[shard]
        self._files.pop(shard).close()
        raise _changed(shard)

    def _keep(self, shard: ShardIdentity, opened: _OpenFile) -> None:
        self._files[shard] = opened
        while len(self._files) > _MAX_OPEN_FILES:
            self._files.popitem(last=False)[1].close()


class _OpenFile:
    """A shard that is open: a file, an entry of a zip, or its plain bytes in a temporary file.

    Attributes:
        compression: of the shard itself.
        is_spooled: whether its plain bytes lie in an unnamed temporary file, since nothing seeks
            in what is packed or zipped; then it needs the shard's own file no more.
    """

    def __init__(self, path: str) -> None:
        if is_url(path):
            cause = "is remote, and its records are read one by one only as they come"
            raise ShardError(cause, shard=path, fix="copy it here first")
        self._path = path
        self._entry = zip_entry(path)
        self._file: BinaryIO = open(self._entry.archive if self._entry else path, "rb", buffering=0)
        self.is_spooled = False
        try:
            whole = self._entry.stream(self._file) if self._entry else self._file
            self.compression = shard_compression(whole.read(HEADER_BYTES))
        except BaseException:
            self._file.close()
            raise

    def identity(self) -> ShardIdentity:
        """Which file it is; for an entry its archive, but with its own path and size."""
        status = os.fstat(self._file.fileno())
        size = self._entry.size if self._entry else status.st_size
        return ShardIdentity(self._path, status.st_dev, status.st_ino, size, status.st_mtime_ns)

    def read(self, offset: int, length: int) -> bytes:
        """Some of the plain bytes; fewer at the end."""
        is_plain = self.compression is Compression.NONE and self._entry is None
        if not is_plain and not self.is_spooled:
            self._spool()
        return read_at(self._file.fileno(), length, offset)

    def close(self) -> None:
        self._file.close()

    def _spool(self) -> None:
        plain = tempfile.TemporaryFile(buffering=0)
        packed = cast(io.FileIO, _FromStart(self._file.fileno()))
        stream: BinaryIO = cast(BinaryIO, self._entry.stream(packed) if self._entry else packed)
        try:
            if self.compression is not Compression.NONE:
                stream = cast(BinaryIO, InflatingStream(stream))
            shutil.copyfileobj(stream, plain, 1 << 20)
        except OSError as error:
            plain.close()
            cause = f"cannot be decompressed into {tempfile.gettempdir()} ({error.strerror})"
            fix = "make room there, set TMPDIR, or decompress the shard yourself"
            raise ShardError(cause, shard=self._path, fix=fix) from None
        self._file.close()
        self._file, self.is_spooled = plain, True


class _FromStart(io.RawIOBase):
    """An open file from its start on, whatever forked processes that share it read meanwhile."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._position = 0

    def readable(self) -> bool:
        return True

    def seek(self, position: int, _: int = os.SEEK_SET) -> int:
        self._position = position
        return position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer)
        data = read_at(self._handle, len(target), self._position)
        target[: len(data)] = data
        self._position += len(data)
        return len(data)


def _changed(shard: ShardIdentity) -> ShardError:
    cause = "was replaced, changed or removed since it was read"
    return ShardError(cause, shard=shard.path, fix="import the dataset again")


_open_files = _OpenFiles()
