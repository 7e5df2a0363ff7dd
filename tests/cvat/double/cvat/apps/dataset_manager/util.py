"""What formats use of ``util``.

Fact: the zip is not compressed, and has every file below the folder under its relative path.
"""

from __future__ import annotations

import os
import os.path as osp
import zipfile
from typing import Any


def make_zip_archive(src_path: str, dst_path: Any) -> None:
    with zipfile.ZipFile(dst_path, "w") as archive:
        for folder, _, names in os.walk(src_path):
            for name in names:
                path = osp.join(folder, name)
                archive.write(path, osp.relpath(path, src_path))


def format_exception_chain(error: BaseException) -> str:
    """All messages from the error down to its first cause, in one text (new servers)."""
    messages: list[str] = []
    current: BaseException | None = error
    while current is not None:
        text = str(current).strip()
        if text and all(text not in one for one in messages):
            messages.append(text)
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
    return ": ".join(messages) or type(error).__name__
