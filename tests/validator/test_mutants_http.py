"""The mutants of the checker, uploaded: the service says what the command line says."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.make import all_mutants, write_mutants
from tests.mutants.registry import Inside, Mutant
from tests.validator.conftest import Service

_SAID_BY_FORM = {"profile", "decode", "cvat_labels", "cvat_xml", "label_map"}
"""Options of a mutant that an upload can have, too."""


@pytest.mark.slow  # tests/check/test_mutants.py holds the report, test_api.py the way to it
def test_mutants(service: Service, tmp_path: Path) -> None:
    write_mutants(tmp_path)
    chosen = [one for one in all_mutants() if _can_be_uploaded(one, tmp_path)]
    assert len(chosen) > 250
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: _codes(service, one, tmp_path), chosen))
    wrong = {
        one.name: (sorted(codes), sorted(one.expected))
        for one, codes in zip(chosen, found, strict=True)
        if codes != one.expected
    }
    assert wrong == {}


def _can_be_uploaded(mutant: Mutant, folder: Path) -> bool:
    path = mutant.path(folder)
    return (
        set(mutant.options) <= _SAID_BY_FORM
        and os.path.isfile(path)
        and os.path.getsize(path) < 64 << 20
        and mutant.code != "TFR013"  # a file that cannot be read
    )


def _codes(service: Service, mutant: Mutant, folder: Path) -> set[str]:
    path = Path(mutant.path(folder))
    options = {
        name: path / value if isinstance(value, Inside) else value
        for name, value in mutant.options.items()
    }
    files: list[tuple[str, Any]] = [("file", (path.name, path.read_bytes()))]
    for neighbour in path.parent.glob("*.pbtxt"):
        if "label_map" not in options and path.suffix != ".zip":
            files.append(("file", (neighbour.name, neighbour.read_bytes())))
    if "label_map" in options:
        named = Path(options.pop("label_map"))
        files.append(("file", (named.name, named.read_bytes())))
    for name in ("cvat_labels", "cvat_xml", "profile"):
        if name in options and os.path.isfile(options[name]):
            given = Path(options.pop(name))
            files.append((name, (given.name, given.read_bytes())))
    answer = service.upload(files, **options).json()
    assert answer["state"] == "finished", (mutant.name, answer)
    return set(answer["report"]["counts"]["by_code"])
