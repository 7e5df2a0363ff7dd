"""The function that makes the zip of an export. Formats import it from this module.

Fact: the zip is not compressed, and has all files of the folder.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any


def make_zip_archive(src_path: str, dst_path: Any) -> None:
    with zipfile.ZipFile(dst_path, "w") as archive:
        for path in Path(src_path).rglob("*"):
            if path.is_file():
                archive.write(path, path.relative_to(src_path))
