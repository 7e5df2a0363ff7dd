"""Runs functions of ours when, and only when, somebody imports certain modules.

``tfod_datumaro.pth`` runs :func:`install` in every Python start of this environment, so that
Datumaro knows tfod's formats as soon as it is imported; the Django app for CVAT waits for CVAT's
registry of formats. So this module imports nothing, costs microseconds and cannot fail a program.
``TFOD_ACTIVATE=0`` turns the start-up hook off.
"""

import sys

_DATUMARO_MODULES = (
    "datumaro.components.environment",
    "datumaro.cli.commands",
    "datumaro.cli.__main__",
)


class _Finder:
    """A finder that finds nothing itself; it adds our functions to the loaders of modules."""

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
        pass  # a loader that cannot be patched loads its module as ever
    return spec


def when_imported(name, callback):
    """Call ``callback(module)`` right after the module of this name has been executed.

    The callback must not raise: the import would fail.
    """
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
            "TFOD_ACTIVATE=0 turns this off",
            RuntimeWarning,
            stacklevel=2,
        )


def install():
    """Wait for Datumaro; may be called again."""
    for name in _DATUMARO_MODULES:
        when_imported(name, _patch_datumaro)
