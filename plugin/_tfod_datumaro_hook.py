"""Start-up hook: tells Datumaro about tfod's formats when, and only when, it is imported.

Run by ``tfod_datumaro.pth`` in every Python start of this environment, so it imports nothing,
costs microseconds and cannot fail a program. ``TFOD_ACTIVATE=0`` turns it off.
"""

import sys

_MODULES = frozenset(
    (
        "datumaro.components.environment",
        "datumaro.cli.commands",
        "datumaro.cli.__main__",
    )
)


class _Finder:
    """A finder that finds nothing itself; it adds our patch to the loaders of three modules."""

    def find_spec(self, name, path=None, target=None):
        if name not in _MODULES:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return _with_patch(spec)
        return None


def _with_patch(spec):
    execute = getattr(spec.loader, "exec_module", None)
    if execute is None:
        return spec

    def exec_module(module):
        execute(module)
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

    try:
        spec.loader.exec_module = exec_module
    except AttributeError:
        pass  # a loader that cannot be patched loads its module as ever
    return spec


def install():
    """Put the finder in front, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
