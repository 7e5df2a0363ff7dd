"""The formats exist right after the installation, and cost other programs nothing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from datumaro.components.environment import Environment
from tfod.datumaro import activation

from tests.commands import run_python

PLUGIN = Path(__file__).parents[2] / "plugin"
OURS = "tfod.datumaro.importer"
NAME_OF_IMPORTER = (
    "from datumaro.components.environment import Environment;"
    "e = Environment();"
    "print(e.importers['tf_detection_api'].__module__ if 'tf_detection_api' in e.importers"
    " else None)"
)
COUNT_OF_HOOKS = "sum(type(f).__module__ == '_tfod_import_hook' for f in sys.meta_path)"


def python(code: str, **environment: str) -> str:
    done = run_python("-c", code, **environment)
    assert done.code == 0, done.err
    return done.out.strip()


def test_the_hook_loads_no_tensorflow() -> None:
    code = NAME_OF_IMPORTER + ";import sys; print('tensorflow' in sys.modules)"
    assert python(code).splitlines() == [OURS, "False"]


def test_explicit_activation_without_the_hook() -> None:
    """For a CVAT server that finds tfod in a folder on its path."""
    code = "import tfod.datumaro; tfod.datumaro.activate();" + NAME_OF_IMPORTER
    assert python(code, TFOD_ACTIVATE="0") == OURS
    # Datumaro's importer checks whether TensorFlow is installed, and loads all of it.
    stand_in = (
        "import importlib.machinery, sys, types; found = types.ModuleType('tensorflow');"
        "found.__spec__ = importlib.machinery.ModuleSpec('tensorflow', None);"
        "sys.modules['tensorflow'] = found;"
    )
    late = stand_in + "import datumaro;" + NAME_OF_IMPORTER + ";" + code
    theirs, ours = python(late, TFOD_ACTIVATE="0").splitlines()
    assert (theirs != ours) and ours == OURS


def test_without_tensorflow() -> None:
    """Datumaro 1.13 omits its own plugin; Datumaro 0.3 cannot load it."""
    code = (
        "import importlib.util as u, sys; real = u.find_spec;"
        "u.find_spec = lambda n, p=None: None if n.startswith('tensorflow') else real(n, p);"
        "sys.modules['tensorflow'] = None;" + NAME_OF_IMPORTER
    )
    assert python(code) == OURS
    assert python(code, TFOD_ACTIVATE="0") == "None"


def test_repeated_activation_has_no_effect() -> None:
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


def test_a_program_without_datumaro_loads_nothing() -> None:
    modules = "sorted(m for m in sys.modules if 'tfod' in m or m == 'numpy')"
    code = f"import sys; print({modules}, {COUNT_OF_HOOKS})"
    by_file = ["_tfod_import_hook", "_tfod_startup"][: 1 if sys.version_info >= (3, 15) else 2]
    assert python(code) == f"{by_file} 1"
    assert python(code, TFOD_ACTIVATE="0") == f"{by_file} 0"


def test_a_failing_activation_breaks_nothing(tmp_path: Path) -> None:
    """If tfod cannot be imported, a warning is printed, and Datumaro works."""
    (tmp_path / "tfod").mkdir()
    (tmp_path / "tfod" / "__init__.py").write_text("raise RuntimeError('broken')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r});import warnings;"
        "warnings.simplefilter('error', SyntaxWarning);"
        "from datumaro.components.environment import Environment;"
        "print('coco' in Environment().importers)"
    )
    assert python(code) == "True"


def test_the_start_up_files_only_name_the_hook() -> None:
    """An import until Python 3.14, a name for 3.15 (PEP 829), and no code in either."""
    assert (PLUGIN / "tfod_datumaro.pth").read_text() == "import _tfod_startup\n"
    name = (PLUGIN / "tfod_datumaro.start").read_text().strip()
    module, _, function = name.partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    # Both files together install the hook once.
    code = f"import sys, pkgutil; import _tfod_startup; pkgutil.resolve_name({name!r})();"
    code += f"print({COUNT_OF_HOOKS})"
    assert python(code) == "1"
    for value in ("0", "off", "No", "FALSE"):
        assert python(code, TFOD_ACTIVATE=value) == "0"


def test_the_finder_does_not_find_other_modules() -> None:
    import _tfod_import_hook as hook

    finder = hook._Finder({"datumaro.cli.commands": print})
    assert finder.find_spec("json") is None
    hook.install()
    assert sum(isinstance(one, hook._Finder) for one in sys.meta_path) == 1


def test_names_of_datumaros_own_modules() -> None:
    import tfod.datumaro as ours

    for name in ("TfDetectionApiBase", "TfDetectionApiExtractor"):
        assert name in ours.__all__ and getattr(ours, name).NAME == "tf_detection_api"
    for name in ours.__all__:
        assert getattr(ours, name) is not None
    with pytest.raises(AttributeError):
        _ = ours.NoSuchName
