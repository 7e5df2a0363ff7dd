"""A server of the double in this process, with our formats.

The installed Datumaro decides which server it is; ``CVAT_DOUBLE=2.15`` selects the old one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DOUBLE = Path(__file__).parent / "double"

django = pytest.importorskip("django")
pytest.importorskip("datumaro")

sys.path.insert(0, str(DOUBLE))


@pytest.fixture(scope="session", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        database = tmp_path_factory.mktemp("database") / "db.sqlite3"
        patch.setenv("CVAT_DOUBLE_DATABASE", str(database))
        patch.setenv("DJANGO_SETTINGS_MODULE", "tfod.cvat.django_settings")
        django.setup()
        from cvat.apps.dataset_manager.formats import registry

        assert "TFRecord 1.0" in registry.EXPORT_FORMATS
        yield


@pytest.fixture(autouse=True)
def no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EMPTY_FRAMES", "OTHER_FRAMES", "LABEL_MAPS"):
        monkeypatch.delenv(f"TFOD_CVAT_{name}", raising=False)


@pytest.fixture
def temp_root(tmp_path: Path) -> Path:
    """The folder in which the server creates its temporary folders."""
    root = tmp_path / "server" / "tmp"
    root.mkdir(parents=True)
    return root
