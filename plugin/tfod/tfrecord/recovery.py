"""Reading on where the records in memory end, and getting past what is damaged."""

from __future__ import annotations

from tfod.kernel import WalkEnd
from tfod.tfrecord.damage import (
    Damage,
    DamageHandler,
    bad_data,
    bad_length,
    foreign_file,
    forged_length,
    looks_like,
    oversize,
    trailing_zeros,
    truncated,
)
from tfod.tfrecord.framing import FOOTER_BYTES, HEADER_BYTES, HeaderFinder
from tfod.tfrecord.read_buffer import ENDLESS, ReadBuffer

_HEAD_BYTES = 64  # that say what a file is instead of a shard


def raise_damage(damage: Damage) -> None:
    """What is done about a damage where nobody handles it.

    Raises:
        ShardError: always.
    """
    raise damage.to_error() from None


class Recovery:
    """What a walk does where a record is not whole or not sound.

    ``size`` is the byte at which the stream ends, or ENDLESS; records of more than ``limit`` bytes,
    with header and footer, are not read.
    """

    def __init__(
        self,
        buffer: ReadBuffer,
        name: str,
        size: int,
        on_damage: DamageHandler | None,
        limit: int | None,
    ) -> None:
        self._buffer = buffer
        self._name = name
        self._size = size
        self._on_damage = on_damage
        self._limit = limit
        self._headers = HeaderFinder()

    def go_on(self, end: WalkEnd, position: int, index: int) -> tuple[int, int] | None:
        """Get behind the position in the buffer at which the walk has ended.

        Returns:
            The position of the next record and how many were passed over; None at the end.
        """
        if end is WalkEnd.LENGTH_CHECKSUM:
            return self._pass_bad_length(position, index)
        buffer = self._buffer
        if buffer.have - position < HEADER_BYTES:
            return self._read_on(position, index)
        length = int.from_bytes(buffer.content[position : position + 8], "little")
        wanted = HEADER_BYTES + length + FOOTER_BYTES
        if end is not WalkEnd.DATA_CHECKSUM:
            return self._read_whole(position, index, wanted)
        self._report(bad_data(self._name, index, buffer.base + position))
        return position + wanted, 1

    def _read_on(self, position: int, index: int) -> tuple[int, int] | None:
        """Read more behind the last whole record."""
        buffer = self._buffer
        if buffer.refill(position):
            return 0, 0
        if buffer.have:
            rest = bytes(buffer.content[: buffer.have])
            self._report(
                truncated(self._name, index, buffer.base, HEADER_BYTES, buffer.have)
                # A length may begin with zeros, but no header is zeros up to its checksum.
                if any(rest) or buffer.have <= 8
                else trailing_zeros(self._name, index, buffer.base, buffer.have)
            )
        elif self._size not in (ENDLESS, buffer.base):
            # The file has become shorter since its size was asked for.
            missing = self._size - buffer.base
            self._report(truncated(self._name, index, buffer.base, missing, 0))
        return None

    def _read_whole(self, position: int, index: int, wanted: int) -> tuple[int, int] | None:
        """Read until the whole record is there; pass over one that cannot be had."""
        buffer = self._buffer
        offset = buffer.base + position
        if offset + wanted > self._size and self._size != ENDLESS:
            return self._pass_long_claim(position, index, wanted, self._size - offset)
        if self._limit is not None and wanted > self._limit:
            return self._pass_oversize(position, index, wanted)
        if buffer.refill(position, wanted):
            return 0, 0
        # The end is known from now on: what claims more is not read up to here once more.
        self._size = buffer.base + buffer.have
        return self._pass_long_claim(0, index, wanted, buffer.have)

    def _pass_oversize(self, position: int, index: int, wanted: int) -> tuple[int, int] | None:
        buffer, limit = self._buffer, self._limit or 0
        offset = buffer.base + position
        behind = position + wanted
        if behind > buffer.have:
            got = buffer.skip(position, wanted)
            if got < wanted:
                self._report(truncated(self._name, index, offset, wanted, got))
                return None
            behind = 0
        self._report(oversize(self._name, index, offset, wanted, limit))
        return behind, 1

    def _pass_long_claim(
        self, position: int, index: int, wanted: int, got: int
    ) -> tuple[int, int] | None:
        """A record claims more than there is: the end was cut off, or the length is forged."""
        offset = self._buffer.base + position
        damage = truncated(self._name, index, offset, wanted, got)
        if self._on_damage is None:
            self._report(damage)
        found, _ = self._search(position + 1)
        if found is None:
            self._report(damage)
            return None
        skipped = self._buffer.base + found - offset
        self._report(forged_length(self._name, index, offset, wanted, skipped))
        return found, 1

    def _pass_bad_length(self, position: int, index: int) -> tuple[int, int] | None:
        buffer, name = self._buffer, self._name
        offset = buffer.base + position
        head = bytes(buffer.content[position : min(buffer.have, position + _HEAD_BYTES)])
        if len(head) < _HEAD_BYTES and not any(head):  # whether only zeros follow is not seen yet
            buffer.refill(position)
            position, head = 0, bytes(buffer.content[: min(buffer.have, _HEAD_BYTES)])
        if self._on_damage is None:
            if index == 0:
                self._report(foreign_file(name, head))
            self._report(bad_length(name, index, offset) if any(head) else
                         trailing_zeros(name, index, offset))  # fmt: skip
        if index == 0 and looks_like(head):
            self._report(foreign_file(name, head))
            return None
        found, only_zeros = self._search(position + 1)
        skipped = buffer.base + (buffer.have if found is None else found) - offset
        if found is not None:
            self._report(bad_length(name, index, offset, skipped, resumed=True))
            return found, 1
        if only_zeros and not any(head):
            self._report(trailing_zeros(name, index, offset, skipped))
        elif index == 0:
            self._report(foreign_file(name, head))
        else:
            self._report(bad_length(name, index, offset, skipped))
        return None

    def _search(self, position: int) -> tuple[int | None, bool]:
        """Look for the next plausible record header.

        Returns:
            Its position in the buffer, or None at the end of the stream; then also whether all that
            was passed over is zeros.
        """
        buffer, only_zeros = self._buffer, True
        while True:
            data = buffer.array[: buffer.have]
            for found, length in self._headers.find(data, buffer.base, position):
                if self._fits(buffer.base + found, length):
                    return found, False
            only_zeros = only_zeros and not data[position:].any()
            kept = max(position, buffer.have - HEADER_BYTES + 1)
            del data  # or the buffer would seem to be in use
            if not buffer.refill(kept):
                return None, only_zeros
            position = 0

    def _fits(self, offset: int, length: int) -> bool:
        whole = HEADER_BYTES + length + FOOTER_BYTES
        if self._size != ENDLESS:
            return offset + whole <= self._size
        return self._limit is None or whole <= self._limit

    def _report(self, damage: Damage) -> None:
        (self._on_damage or raise_damage)(damage)
