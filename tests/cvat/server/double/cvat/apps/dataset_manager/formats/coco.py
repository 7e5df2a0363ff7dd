"""A format of the server's own, as short as they are: a file with the names of the items.

Fact: format modules import ``bindings`` and ``util``, then the registry that is importing them.
"""

from __future__ import annotations

import os.path as osp
from typing import Any

from cvat.apps.dataset_manager.bindings import GetCVATDataExtractor
from cvat.apps.dataset_manager.formats.registry import exporter, importer
from cvat.apps.dataset_manager.util import make_zip_archive


@exporter(name="COCO", ext="ZIP", version="1.0")
def _export(
    dst_file: Any, temp_dir: str, instance_data: Any, save_images: bool = False, **_: Any
) -> None:
    with GetCVATDataExtractor(instance_data, include_images=save_images) as extractor:
        names = [item.id for item in extractor]
    with open(osp.join(temp_dir, "names.txt"), "w") as file:
        file.write("\n".join(names))
    make_zip_archive(temp_dir, dst_file)


@importer(name="COCO", ext="JSON, ZIP", version="1.0")
def _import(
    src_file: Any,
    temp_dir: str,
    instance_data: Any,
    load_data_callback: Any = None,
    **kwargs: Any,
) -> None:
    return None
