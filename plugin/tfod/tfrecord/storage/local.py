"""Local files of any size, also where Python has offsets of 32 bits."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class LocalFile(io.FileIO):
    """An unbuffered local file."""

    if sys.platform == "emscripten":
        # In a browser, Python passes offsets as C longs, which end at 2 GiB. So the position is
        # counted here, and reached by relative steps.
        _position = 0

        def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
            if whence == os.SEEK_CUR:
                offset += self._position
            elif whence == os.SEEK_END:
                offset += os.fstat(self.fileno()).st_size
            if offset < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            step = 1 << 30
            super().seek(0)
            for start in range(0, offset, step):
                super().seek(min(step, offset - start), os.SEEK_CUR)
            self._position = offset
            return offset

        def tell(self) -> int:
            return self._position

        def readinto(self, buffer: WriteableBuffer, /) -> int:
            count = super().readinto(buffer)
            self._position += count
            return count

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self._position += len(data)
            return data
