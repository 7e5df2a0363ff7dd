"""The zip that formats end with; the module is called as in CVAT, since formats import it so.

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
