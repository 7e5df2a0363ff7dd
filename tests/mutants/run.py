"""Mutants as parameters of slow tests, in their folders, and zipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.registry import Content, Mutant
from tests.mutants.sound import LABEL_MAP
from tests.zip_forge import real_zip

_FEW = os.environ.get("HYPOTHESIS_PROFILE") == "few"


def parameters_of(
    mutants: Iterable[Mutant], family_suffices: Callable[[Mutant], bool] = lambda _: False
) -> Iterator[Any]:
    """Parameters of a slow test: a failing and a passing mutant per rule; others are slow.

    With ``family_suffices``, or with few examples, one per family of rules, such as BOX.
    tests/checker/test_mutants.py checks the report of each mutant.
    """
    seen = set()
    for one in mutants:
        kind = one.code[:3] if _FEW or family_suffices(one) else one.code
        is_first = (kind, one.fires) not in seen
        seen |= {(kind, one.fires), (one.code[:3], one.fires)}
        yield pytest.param(one, marks=[] if is_first else pytest.mark.slow, id=one.name)


@contextmanager
def in_its_folder(mutant: Mutant, folder: str | Path) -> Iterator[None]:
    """The folder that a trainer is started in: paths in its configuration are relative to it."""
    before = os.getcwd()
    if "pipeline_config" in mutant.options:
        os.chdir(mutant.path(folder))
    try:
        yield
    finally:
        os.chdir(before)


def zipped(mutant: Mutant) -> bytes:
    """The zip that a user uploads."""
    if mutant.is_folder:
        return real_zip(files_of(mutant.content))
    if mutant.ending == ".zip":
        return mutant.content
    return real_zip([(f"shard{mutant.ending}", mutant.content), ("label_map.pbtxt", LABEL_MAP)])


def files_of(content: Content, name: str = "") -> Iterator[tuple[str, bytes]]:
    """The names and bytes of the files of a mutant."""
    if isinstance(content, bytes):
        yield name, content
    elif isinstance(content, Mapping):
        for inner, part in content.items():
            yield from files_of(part, f"{name}/{inner}".lstrip("/"))
