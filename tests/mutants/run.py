"""Check a mutant as a program does, without the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tfod.check.check import Options, check_sources
from tfod.check.profiles.file import load_profile
from tfod.check.records.images import read_most_decoded
from tfod.check.references.cvat_task import load_task
from tfod.check.references.pipeline import TrainingConfig
from tfod.check.report import Report
from tfod.tfrecord.storage.archive import ZipLimits

from tests.mutants.registry import Content, Inside, Mutant
from tests.mutants.sound import LABEL_MAP
from tests.zip_forge import real_zip

_SIMPLE = ("label_map", "max_record_bytes")
_FEW = os.environ.get("HYPOTHESIS_PROFILE") == "few"


def parameters_of(
    mutants: Iterable[Mutant], family_suffices: Callable[[Mutant], bool] = lambda _: False
) -> Iterator[Any]:
    """Parameters of a slow test: the first mutants that fail and pass a rule; the others are slow.

    Where ``family_suffices``, the first that fail and pass a family of rules, such as BOX; and so
    for all of them where few examples are asked for. tests/check/test_mutants.py holds what is
    reported of each.
    """
    seen = set()
    for one in mutants:
        kind = one.code[:3] if _FEW or family_suffices(one) else one.code
        is_first = (kind, one.fires) not in seen
        seen |= {(kind, one.fires), (one.code[:3], one.fires)}
        yield pytest.param(one, marks=[] if is_first else pytest.mark.slow, id=one.name)


@contextmanager
def in_its_folder(mutant: Mutant, folder: str | Path) -> Iterator[None]:
    """Where a trainer is started: its configuration names files relative to that."""
    before = os.getcwd()
    if "pipeline_config" in mutant.options:
        os.chdir(mutant.path(folder))
    try:
        yield
    finally:
        os.chdir(before)


def check_mutant(mutant: Mutant, folder: str | Path, **more: Any) -> Report:
    """The report on a mutant that lies in a folder of all mutants."""
    path = mutant.path(folder)
    given = {
        name: os.path.join(path, value) if isinstance(value, Inside) else value
        for name, value in mutant.options.items()
    }
    found: dict[str, Any] = {name: given[name] for name in _SIMPLE if name in given}
    if "profile" in given:
        found["profile"] = load_profile(given["profile"])
    if "decode" in given:
        found["decode"] = read_most_decoded(given["decode"])
    described = [given.get(name) for name in ("cvat_labels", "cvat_xml", "images")]
    if any(described):
        found["task"] = load_task(*described)
    if "pipeline_config" in given:
        found["training_config"] = TrainingConfig(given["pipeline_config"])
    found["archive_limits"] = ZipLimits(
        total_bytes=given.get("max_archive_bytes", ZipLimits.total_bytes),
        entries=given.get("max_archive_entries", ZipLimits.entries),
    )
    with in_its_folder(mutant, folder):
        return check_sources(mutant.sources(folder), Options(**found, **more))


def zipped(mutant: Mutant) -> bytes:
    """The mutant as a user uploads it: a zip as it is, anything else in one."""
    if isinstance(mutant.content, bytes):
        if mutant.ending == ".zip":
            return mutant.content
        files = {f"shard{mutant.ending}": mutant.content, "label_map.pbtxt": LABEL_MAP}
        return real_zip(files.items())
    return real_zip(dict(_files(mutant.content)).items())


def _files(content: Mapping[str, Content], folder: str = "") -> Iterator[tuple[str, bytes]]:
    for name, one in content.items():
        if isinstance(one, bytes):
            yield folder + name, one
        elif isinstance(one, Mapping):
            yield from _files(one, f"{folder}{name}/")
