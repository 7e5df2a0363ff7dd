"""A server of the double in this process: Django set up, our formats registered.

Which server it is follows from the installed Datumaro; ``CVAT_DOUBLE=2.15`` chooses the old one.
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
    """What a worker of the server does before its first job."""
    with pytest.MonkeyPatch.context() as patch:
        database = tmp_path_factory.mktemp("database") / "db.sqlite3"
        patch.setenv("CVAT_DOUBLE_DATABASE", str(database))
        patch.setenv("DJANGO_SETTINGS_MODULE", "tfod.cvat.django_settings")
        django.setup()
        from cvat.apps.dataset_manager.views import get_export_formats

        assert "TFRecord 1.0" in [one.DISPLAY_NAME for one in get_export_formats()]
        yield


@pytest.fixture(autouse=True)
def no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EMPTY_FRAMES", "OTHER_FRAMES", "LABEL_MAPS"):
        monkeypatch.delenv(f"TFOD_CVAT_{name}", raising=False)


@pytest.fixture
def temp_root(tmp_path: Path) -> Path:
    """Where the server makes its temporary folders; nothing may be left in it, or beside it."""
    root = tmp_path / "server" / "tmp"
    root.mkdir(parents=True)
    return root
