"""All mutants, and a folder of them: each family of rules has one."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

from tests.mutants import boxes, example, framing, images, labels, names, pipeline, sets, task, zips  # noqa: F401  # they declare their mutants
from tests.mutants.registry import Content, Link, Mutant, declared
from tests.mutants.sound import LABEL_MAP


@functools.cache
def all_mutants() -> tuple[Mutant, ...]:
    """Every mutant, in the order of the families."""
    return tuple(declared())


def write_mutants(folder: str | Path) -> None:
    """Write all mutants into a folder."""
    for one in all_mutants():
        path = one.path(folder)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, one.content)
        if not one.is_folder:
            # Folders have a label map of their own, or are about having none.
            _write(os.path.join(os.path.dirname(path), "label_map.pbtxt"), LABEL_MAP)


def _write(path: str, content: Content) -> None:
    if isinstance(content, Link):
        if not os.path.lexists(path):
            os.symlink(content.target, path)
    elif isinstance(content, Mapping):
        os.makedirs(path, exist_ok=True)
        for name, inside in content.items():
            _write(os.path.join(path, name), inside)
    else:
        Path(path).write_bytes(content)
