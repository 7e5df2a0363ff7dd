"""A format of the server's own, which no test calls.

Fact: format modules import ``bindings`` and ``util``, then the registry that is importing them.
"""

from __future__ import annotations

from typing import Any

from cvat.apps.dataset_manager.bindings import GetCVATDataExtractor  # noqa: F401
from cvat.apps.dataset_manager.formats.registry import exporter, importer
from cvat.apps.dataset_manager.util import make_zip_archive  # noqa: F401


@exporter(name="COCO", ext="ZIP", version="1.0")
def _export(
    dst_file: Any, temp_dir: str, instance_data: Any, save_images: bool = False, **_: Any
) -> None:
    raise NotImplementedError("of the server's own formats the names are enough")


@importer(name="COCO", ext="JSON, ZIP", version="1.0")
def _import(
    src_file: Any, temp_dir: str, instance_data: Any, load_data_callback: Any = None, **kwargs: Any
) -> None:
    return None
