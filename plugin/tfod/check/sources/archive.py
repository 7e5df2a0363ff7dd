"""Reading zips that may be hostile: entries are streamed under limits, nothing is unpacked to disk.

What the archive says of itself is used only to find the data. How much unpacks, from how little,
and with which checksum is checked while reading.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, NoReturn, cast

from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import Place
from tfod.check.rules.archive import (
    bomb,
    damaged_directory,
    damaged_entry,
    duplicate_entry,
    overlapping_entry,
    too_many_entries,
    too_much_in_all,
)
from tfod.check.rules.registry import RuleProblems, problems_of
from tfod.errors import TfodError
from tfod.tfrecord.storage.zip_directory import (
    Directory,
    DirectoryError,
    Entry,
    find_overlaps,
    read_directory,
    same_file_key,
)
from tfod.tfrecord.storage.zip_files import EntryStream

_STEP = 1 << 18


class ArchiveDamageError(TfodError):
    """An entry cannot be read further; the reason was reported."""


@dataclass(frozen=True)
class ArchiveLimits:
    """Where reading stops.

    Attributes:
        entries: how many are looked at.
        total_bytes: how much is unpacked in all.
        ratio: how many times its packed size an entry may unpack to. Deflate reaches 1032;
            annotations without images 10 to 50, the same record again and again 290.
        ratio_from: how many bytes of an entry unpack before the ratio is looked at.
        directory_bytes: how long a directory is loaded; 100,000 entries take up 10 to 30 MB.
    """

    entries: int = 100_000
    total_bytes: int = 64 << 30
    ratio: float = 200.0
    ratio_from: int = 4 << 20
    directory_bytes: int = 32 << 20


class Archive:
    """A zip whose entries can be read, in one or several passes.

    Attributes:
        name: what reports call it.
        entries: regular files that are safe to read, in the order of the directory.
        refused: files that are not read, since a finding says why.
        readable: whether there is a directory at all.
    """

    def __init__(
        self,
        path: str,
        name: str,
        collector: Collector | None = None,
        limits: ArchiveLimits | None = None,
    ) -> None:
        """Open the archive, check its directory, and begin a pass.

        Raises:
            OSError: the file cannot be opened or read.
        """
        self.name = name
        self.entries: list[Entry] = []
        self.refused: list[Entry] = []
        self.readable = False
        self._limits = limits or ArchiveLimits()
        self._problems: list[tuple[RuleProblems, Place]] = []  # of the directory
        self._file = open(path, "rb", buffering=0)
        try:
            self._read_directory()
        except BaseException:
            self._file.close()
            raise
        self.begin(collector)

    def begin(self, collector: Collector | None) -> None:
        """Begin a pass over the entries: what limits count is 0 again.

        Args:
            collector: takes what is wrong with the directory, and with entries that are read;
                None for a pass that reports nothing.
        """
        self._collector = collector
        self._unpacked: dict[int, int] = {}  # bytes, by number of the entry
        self._total = 0
        self._reported: set[tuple[int | None, str]] = set()
        self._settled: set[int] = set()  # entries that were read to the end, or given up
        if collector is not None:
            for found, place in self._problems:
                collector.add_all(found, place)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; streams of entries end with it."""
        self._file.close()

    def place(self, entry: Entry | None = None) -> Place:
        """Where findings about an entry, or about the whole archive, are."""
        return Place(shard=self.name if entry is None else f"{self.name}:{entry.shown}")

    def open(self, entry: Entry) -> BinaryIO:
        """The entry's bytes as an unbuffered stream with ``read`` and ``readinto``.

        Reading raises :class:`ArchiveDamageError` where a limit is reached, and at the end where
        size or checksum are wrong. Several may be open, but not in several threads.
        """
        return cast(BinaryIO, _CheckedStream(self, self._file, entry))

    def read(self, entry: Entry, most: int) -> bytes:
        """At most so many bytes of an entry.

        Raises:
            ArchiveDamageError: it cannot be read so far.
        """
        return b"".join(read_parts(self.open(entry), most))

    def drain(self, entry: Entry) -> None:
        """Read an entry to its end for the sake of limits and checksum, unless that was done."""
        if entry.number not in self._settled:
            with suppress(ArchiveDamageError):
                for _ in read_parts(self.open(entry)):
                    pass

    def _read_directory(self) -> None:
        limits = self._limits
        try:
            directory = read_directory(self._file, limits.entries, limits.directory_bytes)
        except DirectoryError as error:
            self._problems.append((damaged_directory(str(error)), self.place()))
            return
        self.readable = True
        if not directory.complete:
            found = too_many_entries(directory.promised, len(directory.entries))
            self._problems.append((found, self.place()))
        refused = self._refuse(directory)
        for entry in directory.entries:
            if not entry.is_folder:
                (self.refused if entry.number in refused else self.entries).append(entry)

    def _refuse(self, directory: Directory) -> set[int]:
        """Check the entries; return the numbers of those that are not to be read."""
        refused: set[int] = set()
        for entry in directory.entries:
            found = [*problems_of(entry)]
            if entry.damage:
                found += damaged_directory(entry.damage)
            if found:  # whether or not these rules are on
                refused.add(entry.number)
                self._problems.append((found, self.place(entry)))
        for overlap in find_overlaps(directory):
            refused.add(overlap.entry.number)
            self._problems.append((overlapping_entry(overlap), self.place(overlap.entry)))
        return refused | self._replaced(directory)

    def _replaced(self, directory: Directory) -> set[int]:
        """Entries that unpacking writes over; all that are one file are problems."""
        replaced: set[int] = set()
        known: dict[int, Entry] = {}  # by hash: a hostile archive's names are long
        for entry in directory.entries:
            key = same_file_key(entry.path)
            earlier = known.get(hash(key))
            known[hash(key)] = entry
            if earlier is None or same_file_key(earlier.path) != key:
                continue
            if entry.is_folder and earlier.is_folder:
                continue
            self._problems.append((duplicate_entry(entry, earlier), self.place(entry)))
            if earlier.path == entry.path:
                replaced.add(earlier.number)
        return replaced


def read_parts(stream: BinaryIO, most: int | None = None) -> Iterator[bytes]:
    """The bytes of a stream, or the first ones, in parts."""
    left = most
    while part := stream.read(_STEP if left is None else min(_STEP, left)):
        yield part
        left = None if left is None else left - len(part)


class _CheckedStream(EntryStream):
    """The unpacked bytes of one entry; what is wrong with it goes to the archive's collector."""

    def __init__(self, archive: Archive, file: io.FileIO, entry: Entry) -> None:
        super().__init__(entry, file)
        self._archive = archive

    def account(self, unpacked: int, packed: int) -> None:
        archive, limits = self._archive, self._archive._limits
        before = archive._unpacked.get(self._entry.number, 0)
        if unpacked > before:  # a second reading of the same bytes does not count
            archive._unpacked[self._entry.number] = unpacked
            archive._total += unpacked - before
        if unpacked > limits.ratio_from and unpacked > limits.ratio * packed:
            self._refuse(bomb(unpacked, packed, limits.ratio))
        if archive._total > limits.total_bytes:
            self._refuse(too_much_in_all(limits.total_bytes), whole=True)

    def settle(self) -> None:
        self._archive._settled.add(self._entry.number)

    def give_up(self, cause: str) -> NoReturn:
        self._refuse(damaged_entry(cause))

    def _refuse(self, found: RuleProblems, *, whole: bool = False) -> NoReturn:
        """Report what is wrong with this entry, or the whole archive, once, and end its reading."""
        archive = self._archive
        key = (None if whole else self._entry.number, found[0][0].code)
        if archive._collector is not None and key not in archive._reported:
            archive._reported.add(key)
            archive._collector.add_all(found, archive.place(None if whole else self._entry))
        self.settle()
        raise ArchiveDamageError(f"{archive.place(self._entry).shard}: cannot be read further")
