"""CRC-32C, the checksum of TFRecord, by google-crc32c or by the compiled kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from tfod.kernel import WHY_NOT_COMPILED
from tfod.kernel.return_types import Bytes


def _choose_function() -> Callable[[Bytes], int]:
    try:
        import google_crc32c
    except ImportError:
        if WHY_NOT_COMPILED:
            raise ImportError(
                "tfod needs the package google-crc32c: pip install google-crc32c "
                f"(the compiled kernel, which would replace it, is not used: {WHY_NOT_COMPILED})"
            ) from None
        from tfod.kernel.compiled import crc32c

        return crc32c
    if google_crc32c.implementation != "c":
        warnings.warn(
            "google-crc32c runs without its C library here and is about 1000 times slower; "
            "reinstall it from a binary wheel: pip install --force-reinstall google-crc32c",
            RuntimeWarning,
            stacklevel=3,
        )
    function: Callable[[Bytes], int] = google_crc32c.value
    return function


crc32c = _choose_function()
"""The function that returns the CRC-32C of bytes."""
