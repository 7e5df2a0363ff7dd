"""An import hook, which calls functions of tfod after certain modules are imported.

Python calls :func:`start` whenever it starts in this environment, because of the files
``tfod_datumaro.start`` (Python 3.15, PEP 829) and ``tfod_datumaro.pth`` (earlier ones). The hook
adds the formats of tfod to Datumaro when Datumaro is imported; the Django app for CVAT waits for
the format registry of CVAT. Therefore this module imports only what Python has already imported.
"""

import os
import sys

_DATUMARO_MODULES = (
    "datumaro.components.environment",
    "datumaro.cli.commands",
    "datumaro.cli.__main__",
)


class _Finder:
    """A finder that adds callbacks to the loaders that other finders return."""

    def __init__(self, callbacks):
        self.callbacks = callbacks

    def find_spec(self, name, path=None, target=None):
        if name not in self.callbacks:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return _with_callback(spec, self.callbacks[name])
        return None


def _with_callback(spec, callback):
    execute = getattr(spec.loader, "exec_module", None)
    if execute is None:
        return spec

    def exec_module(module):
        execute(module)
        callback(module)

    try:
        spec.loader.exec_module = exec_module
    except AttributeError:
        pass  # the loader cannot be patched; it loads the module without the callback
    return spec


def when_imported(name, callback):
    """Call ``callback(module)`` after a module is executed; an exception makes the import fail."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            finder.callbacks.setdefault(name, callback)
            return
    sys.meta_path.insert(0, _Finder({name: callback}))


def _patch_datumaro(module):
    try:
        from tfod.datumaro.activation import PATCHES

        PATCHES[module.__name__](module)
    except Exception as error:
        import warnings

        warnings.warn(
            f"tfod could not add its formats to Datumaro ({error!r}); "
            "set TFOD_ACTIVATE=0 to disable this",
            RuntimeWarning,
            stacklevel=2,
        )


def start():
    """Install the hook, unless ``TFOD_ACTIVATE`` is ``0``, ``off``, ``no`` or ``false``."""
    if os.environ.get("TFOD_ACTIVATE", "1").lower() not in ("0", "off", "no", "false"):
        install()


def install():
    """Add the formats of tfod to Datumaro when it is imported; safe to call again."""
    for name in _DATUMARO_MODULES:
        when_imported(name, _patch_datumaro)
