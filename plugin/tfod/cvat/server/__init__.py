"""The formats for CVAT's registry: functions with the signatures that it calls.

May import ``datumaro``, ``checker`` and their dependencies, and the modules of ``cvat`` that the
client shares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VERSION = "1.0"
BOXES = "TFRecord"
MASKS = "TFRecord Masks"


def register(registry: Any) -> None:
    """Add our exporters and importers to CVAT's module ``registry``, unless it has the formats."""
    for name, save_masks in ((BOXES, False), (MASKS, True)):
        display_name = f"{name} {VERSION}"
        if display_name not in registry.EXPORT_FORMATS:
            registry.exporter(name=name, ext="ZIP", version=VERSION)(_exporter(save_masks))
        if display_name not in registry.IMPORT_FORMATS:
            registry.importer(name=name, ext="ZIP", version=VERSION)(_import)


def _exporter(save_masks: bool) -> Callable[..., None]:
    def export(
        dst_file: Any, temp_dir: str, instance_data: Any, save_images: bool = False, **_: Any
    ) -> None:
        from tfod.cvat.server.zip_export import export_zip

        export_zip(
            dst_file, temp_dir, instance_data, save_images=save_images, save_masks=save_masks
        )

    return export


def _import(
    src_file: Any, temp_dir: str, instance_data: Any, load_data_callback: Any = None, **options: Any
) -> None:
    # The same function imports both formats, since each shard shows whether it has masks.
    from tfod.cvat.server.zip_import import import_zip

    import_zip(src_file, temp_dir, instance_data, load_data_callback, **options)
