"""Random access into a shard: byte spans that are read when somebody asks for them, and an index.

A picture that was imported is a span (file, offset, length) until its bytes are wanted. The file
is held open from the moment its spans are made, so that pictures stay readable while an export
replaces the shard they come from; when too many files are open the oldest is closed, and a file
that is not the same any more when it is opened again is refused instead of misread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, TypeAlias, overload

import numpy as np

from tfod.compression import Compression, InflatingStream
from tfod.damage import HEADER_BYTES
from tfod.errors import ShardError
from tfod.records import Record, masked_crc32c, read_records, shard_compression


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


@dataclass(frozen=True)
class ByteSpan:
    """Some bytes of a shard's uncompressed content, read on demand.

    Can be copied, pickled and sent to another process. Calling it reads it, since that is how
    Datumaro asks for lazy data.
    """

    __slots__ = ("length", "offset", "shard")

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

    def __getstate__(self) -> tuple[ShardIdentity, int, int]:
        return self.shard, self.offset, self.length

    def __setstate__(self, state: tuple[ShardIdentity, int, int]) -> None:
        for name, value in zip(("shard", "offset", "length"), state, strict=True):
            object.__setattr__(self, name, value)


def identify(path: str | os.PathLike[str]) -> ShardIdentity:
    """Note which file a path is now, and keep it open for the spans that will point into it."""
    return _open_files.open(os.path.abspath(os.fspath(path)))


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
        spans = [(record.payload_offset, record.length) for record in _headers(self._shard)]
        self._spans = np.array(spans, np.int64).reshape(-1, 2)

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
            raise ShardError(
                "the checksum of the data is wrong, the record was changed after it was written",
                shard=self.path,
                record=index % len(self),
                offset=span.offset - HEADER_BYTES,
                remedy="download or export the shard again",
            )
        return payload


def _headers(shard: ShardIdentity) -> Iterator[Record]:
    """Records without their payloads: from headers alone where the file is plain and seekable."""
    if _open_files.compression(shard) is not Compression.NONE:
        yield from read_records(shard.path)
        return
    offset = index = 0
    while offset < shard.size:
        head = _open_files.read(shard, offset, HEADER_BYTES)
        length = int.from_bytes(head[:8], "little")
        end = offset + HEADER_BYTES + length + 4
        sound = len(head) == HEADER_BYTES and end <= shard.size
        if not sound or masked_crc32c(head[:8]) != int.from_bytes(head[8:], "little"):
            # The careful walk knows what is wrong and says it.
            yield from (record for record in read_records(shard.path) if record.number >= index)
            return
        yield Record(index, offset, _NO_BUFFER, 0, length)
        offset, index = end, index + 1


_NO_BUFFER = bytearray()


class _OpenFiles:
    """The shards that are open for random access, least recently used first."""

    def __init__(self) -> None:
        self._files: OrderedDict[ShardIdentity, tuple[BinaryIO | _Spool, Compression]] = (
            OrderedDict()
        )
        self._lock = threading.Lock()

    def open(self, path: str) -> ShardIdentity:
        with self._lock:
            file = open(path, "rb", buffering=0)
            shard = _identity_of(path, file)
            if shard in self._files:
                file.close()
                self._files.move_to_end(shard)
            else:
                self._keep(shard, file)
            return shard

    def compression(self, shard: ShardIdentity) -> Compression:
        with self._lock:
            return self._file(shard)[1]

    def read(self, shard: ShardIdentity, offset: int, length: int) -> bytes:
        with self._lock:
            file, compression = self._file(shard)
            if compression is not Compression.NONE and not isinstance(file, _Spool):
                spool = _Spool.of(file, shard)
                file.close()
                self._files[shard] = (spool, compression)
                return os.pread(spool.fileno(), length, offset)
            return os.pread(file.fileno(), length, offset)

    def _file(self, shard: ShardIdentity) -> _OpenFile:
        if shard in self._files:
            self._files.move_to_end(shard)
            kept = self._files[shard]
            # Written over in place: another content in the same file.
            if isinstance(kept[0], _Spool) or _identity_of(shard.path, kept[0]) == shard:
                return kept
            raise _changed(shard)
        try:
            file = open(shard.path, "rb", buffering=0)
        except OSError:
            raise _changed(shard) from None
        if _identity_of(shard.path, file) != shard:
            file.close()
            raise _changed(shard)
        return self._keep(shard, file)

    def _keep(self, shard: ShardIdentity, file: BinaryIO) -> _OpenFile:
        compression = shard_compression(os.pread(file.fileno(), HEADER_BYTES, 0))
        self._files[shard] = (file, compression)
        while len(self._files) > _MAX_OPEN_FILES:
            self._files.popitem(last=False)[1][0].close()
        return self._files[shard]


class _Spool:
    """A compressed shard's plain bytes in an unnamed temporary file: deflate cannot seek."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    @classmethod
    def of(cls, compressed: BinaryIO, shard: ShardIdentity) -> _Spool:
        plain = tempfile.TemporaryFile(buffering=0)
        compressed.seek(0)
        try:
            with InflatingStream(compressed) as stream:
                shutil.copyfileobj(stream, plain, 1 << 20)
        except OSError as error:
            plain.close()
            raise ShardError(
                f"cannot be decompressed into {tempfile.gettempdir()} ({error.strerror})",
                shard=shard.path,
                remedy="make room there, set TMPDIR, or decompress the shard yourself",
            ) from None
        return cls(plain)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


def _identity_of(path: str, file: BinaryIO) -> ShardIdentity:
    status = os.fstat(file.fileno())
    return ShardIdentity(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _changed(shard: ShardIdentity) -> ShardError:
    return ShardError(
        "was replaced, changed or removed since it was read",
        shard=shard.path,
        remedy="import the dataset again",
    )


_OpenFile: TypeAlias = tuple[BinaryIO | _Spool, Compression]
_open_files = _OpenFiles()
