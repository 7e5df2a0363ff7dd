"""The formats as CVAT's registry wants them: plain functions with the signatures that it calls."""

from __future__ import annotations

from typing import Any

VERSION = "1.0"
BOXES = "TFRecord"
MASKS = "TFRecord Masks"


def register(registry: Any) -> None:
    """Add our exporters and importers to CVAT's registry, but for those it has already.

    Args:
        registry: the module ``cvat.apps.dataset_manager.formats.registry``.
    """
    for name, export in ((BOXES, _export_boxes), (MASKS, _export_masks)):
        display_name = f"{name} {VERSION}"
        if display_name not in registry.EXPORT_FORMATS:
            registry.exporter(name=name, ext="ZIP", version=VERSION)(export)
        if display_name not in registry.IMPORT_FORMATS:
            registry.importer(name=name, ext="ZIP", version=VERSION)(_import)


def _export_boxes(
    dst_file: Any, temp_dir: str, instance_data: Any, save_images: bool = False, **_: Any
) -> None:
    from tfod.cvat.server.export import export_zip

    export_zip(dst_file, temp_dir, instance_data, save_images=save_images, save_masks=False)


def _export_masks(
    dst_file: Any, temp_dir: str, instance_data: Any, save_images: bool = False, **_: Any
) -> None:
    from tfod.cvat.server.export import export_zip

    export_zip(dst_file, temp_dir, instance_data, save_images=save_images, save_masks=True)


def _import(
    src_file: Any,
    temp_dir: str,
    instance_data: Any,
    load_data_callback: Any = None,
    **options: Any,
) -> None:
    # Of both formats: what a shard holds decides.
    from tfod.cvat.server.importer import import_zip

    import_zip(src_file, temp_dir, instance_data, load_data_callback, **options)
