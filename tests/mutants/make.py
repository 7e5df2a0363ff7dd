"""All mutants, and a folder of them per family of rules."""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

from tests.mutants import boxes, example, framing, images, labels, names, pipeline, sets, task, zips
from tests.mutants.registry import Content, Link, Mutant
from tests.mutants.sound import LABEL_MAP

FAMILIES = (boxes, example, framing, images, labels, names, pipeline, sets, task, zips)


@functools.cache
def all_mutants() -> tuple[Mutant, ...]:
    """Every mutant, in the order of the families."""
    letters: dict[tuple[str, bool], Iterator[str]] = defaultdict(lambda: iter(ascii_lowercase))
    return tuple(
        replace(mutant, letter=next(letters[mutant.code, mutant.fires]))
        for family in FAMILIES
        for mutant in family.mutants()
    )


def write_mutants(folder: str | Path) -> None:
    """Write all mutants into a folder."""
    for mutant in all_mutants():
        path = mutant.path(folder)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, mutant.content)
        if not mutant.is_folder:  # folders have their own label map, or none
            _write(os.path.join(os.path.dirname(path), "label_map.pbtxt"), LABEL_MAP)


def _write(path: str, content: Content) -> None:
    if isinstance(content, Link):
        if not os.path.lexists(path):
            os.symlink(content.target, path)
    elif isinstance(content, Mapping):
        os.makedirs(path, exist_ok=True)
        for name, part in content.items():
            _write(os.path.join(path, name), part)
    else:
        Path(path).write_bytes(content)
