"""A format of the server, of which the tests only need the name.

Fact: formats import ``bindings`` and ``util``, and then the registry, which is importing them.
"""

from __future__ import annotations

from cvat.apps.dataset_manager.bindings import GetCVATDataExtractor  # noqa: F401
from cvat.apps.dataset_manager.formats.registry import exporter, importer
from cvat.apps.dataset_manager.util import make_zip_archive  # noqa: F401


@importer(name="COCO", ext="JSON, ZIP", version="1.0")
@exporter(name="COCO", ext="ZIP", version="1.0")
def _not_called(*_: object) -> None:
    raise NotImplementedError
