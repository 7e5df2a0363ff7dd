"""The least that a program can do that copies a file and verifies it, for `tfod reshard`'s peer.

    python checked_copy.py SOURCE TARGET

It reads blocks, computes CRC-32C over them once for what was read and once for what is written,
and writes them. It knows nothing of records, and imports nothing but the checksum.
"""

from __future__ import annotations

import sys

import google_crc32c

_BLOCK = 1 << 19


def copy(source: str, target: str) -> tuple[int, int]:
    """Copy a file; return the checksums of what was read and of what was written."""
    block = bytearray(_BLOCK)
    view = memoryview(block)
    read = written = 0
    with open(source, "rb", buffering=0) as file, open(target, "wb", buffering=0) as copied:
        while count := file.readinto(block):
            data = bytes(view[:count])  # what the checksum takes
            read = google_crc32c.extend(read, data)
            written = google_crc32c.extend(written, data)
            copied.write(data)
    return read, written


if __name__ == "__main__":
    copy(*sys.argv[1:])
