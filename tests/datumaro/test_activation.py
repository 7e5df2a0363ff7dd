"""Our formats are there right after installation, and nowhere in the way."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from datumaro.components.environment import Environment
from tfod.datumaro import activation

from tests.commands import run_python

PLUGIN = Path(__file__).parents[2] / "plugin"


def python(code: str, **environment: str) -> str:
    done = run_python("-c", code, **environment)
    assert done.code == 0, done.err
    return done.out.strip()


NAME_OF_IMPORTER = (
    "from datumaro.components.environment import Environment;"
    "e = Environment();"
    "print(e.importers['tf_detection_api'].__module__ if 'tf_detection_api' in e.importers"
    " else None)"
)


def test_ours_is_the_one_that_is_used_and_loads_no_tensorflow() -> None:
    code = NAME_OF_IMPORTER + ";import sys; print('tensorflow' in sys.modules)"
    assert python(code).splitlines() == ["tfod.datumaro.importer", "False"]


def test_explicit_activation_without_the_hook() -> None:
    """As in a CVAT server that finds tfod in a folder on its path; the hook is off."""
    code = "import tfod.datumaro; tfod.datumaro.activate();" + NAME_OF_IMPORTER
    assert python(code, TFOD_ACTIVATE="0") == "tfod.datumaro.importer"
    # Datumaro's own asks whether TensorFlow is there, and loads all of it.
    stand_in = (
        "import importlib.machinery, sys, types; found = types.ModuleType('tensorflow');"
        "found.__spec__ = importlib.machinery.ModuleSpec('tensorflow', None);"
        "sys.modules['tensorflow'] = found;"
    )
    late = stand_in + "import datumaro;" + NAME_OF_IMPORTER + ";" + code
    theirs, ours = python(late, TFOD_ACTIVATE="0").splitlines()
    assert (theirs != ours) and ours == "tfod.datumaro.importer"


def test_ours_is_there_where_tensorflow_is_not() -> None:
    """Datumaro 1.13 leaves its own plugin out then; the 0.3 line fails to load it."""
    code = (
        "import importlib.util as u, sys; real = u.find_spec;"
        "u.find_spec = lambda n, p=None: None if n.startswith('tensorflow') else real(n, p);"
        "sys.modules['tensorflow'] = None;" + NAME_OF_IMPORTER
    )
    assert python(code) == "tfod.datumaro.importer"
    assert python(code, TFOD_ACTIVATE="0") == "None"


def test_twice_is_once() -> None:
    activation.activate()
    activation.activate()
    environment = Environment()
    from tfod.datumaro.importer import TfDetectionApiImporter

    assert environment.importers["tf_detection_api"] is TfDetectionApiImporter
    groups = getattr(environment.importers, "extension_groups", None)
    if groups is not None:
        for extension in (".tfrecord", ".record"):
            names = [name for name, _ in groups[extension]]
            assert names.count("tf_detection_api") == 1


def test_a_program_without_datumaro_pays_next_to_nothing() -> None:
    """Not timed against a limit here (benchmarks do): it must load nothing at all."""
    code = (
        "import sys; print(sorted(m for m in sys.modules if 'tfod' in m or m == 'numpy'),"
        "sum(type(f).__module__ == '_tfod_import_hook' for f in sys.meta_path))"
    )
    by_file = ["_tfod_import_hook", "_tfod_startup"][: 1 if sys.version_info >= (3, 15) else 2]
    assert python(code) == f"{by_file} 1"
    assert python(code, TFOD_ACTIVATE="0") == f"{by_file} 0"


def test_a_failing_activation_breaks_nothing(tmp_path: Path) -> None:
    """A tfod that cannot be imported is a warning, and Datumaro works on."""
    broken = tmp_path / "tfod"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('broken')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r});import warnings;"
        "warnings.simplefilter('error', SyntaxWarning);"
        "from datumaro.components.environment import Environment;"
        "print('coco' in Environment().importers)"
    )
    assert python(code) == "True"


def test_the_start_up_files_only_name_the_hook() -> None:
    """A plain import until Python 3.14, a name for 3.15 (PEP 829), and no code in either."""
    assert (PLUGIN / "tfod_datumaro.pth").read_text() == "import _tfod_startup\n"
    module, _, name = (PLUGIN / "tfod_datumaro.start").read_text().strip().partition(":")
    hook = importlib.import_module(module)
    assert callable(getattr(hook, name))


@pytest.mark.parametrize("value", ["0", "off", "No", "FALSE"])
def test_both_files_start_it_once_or_not_at_all(value: str) -> None:
    code = (
        "import sys, pkgutil; import _tfod_startup;"
        f"pkgutil.resolve_name({(PLUGIN / 'tfod_datumaro.start').read_text().strip()!r})();"
        "print(sum(type(f).__module__ == '_tfod_import_hook' for f in sys.meta_path))"
    )
    assert python(code) == "1"
    assert python(code, TFOD_ACTIVATE=value) == "0"


def test_the_finder_finds_nothing_by_itself() -> None:
    import _tfod_import_hook as hook

    finder = hook._Finder({"datumaro.cli.commands": print})
    assert finder.find_spec("json") is None
    hook.install()
    assert sum(isinstance(one, hook._Finder) for one in sys.meta_path) == 1


@pytest.mark.parametrize("name", ["TfDetectionApiBase", "TfDetectionApiExtractor"])
def test_names_of_datumaros_own_modules(name: str) -> None:
    import tfod.datumaro as ours

    assert name in ours.__all__
    assert getattr(ours, name).NAME == "tf_detection_api"
    for other in ours.__all__:
        assert getattr(ours, other) is not None
    with pytest.raises(AttributeError):
        _ = ours.NoSuchName
