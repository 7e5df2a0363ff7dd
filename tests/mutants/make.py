"""Write all mutants: ``python -m tests.mutants.make FOLDER``, from the checkout's root.

Each family of rules gets a folder; ``mutants.json`` says of each mutant what is expected and with
which options of ``tfod check``.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.mutants import (  # noqa: F401  # they declare their mutants
    boxes,
    example,
    framing,
    images,
    labels,
    names,
    pipeline,
    sets,
    task,
    zips,
)
from tests.mutants.registry import Content, Link, Mutant, declared
from tests.mutants.sound import LABEL_MAP


@functools.cache
def all_mutants() -> tuple[Mutant, ...]:
    """Every mutant, in the order of the families."""
    return tuple(declared())


def write_mutants(folder: str | Path) -> tuple[Mutant, ...]:
    """Write all mutants into a folder; return them."""
    mutants = all_mutants()
    for one in mutants:
        path = one.path(folder)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, one.content)
        if not one.is_folder:
            # Folders have a label map of their own, or are about having none.
            _write(os.path.join(os.path.dirname(path), "label_map.pbtxt"), LABEL_MAP)
    index = json.dumps([_described(one) for one in mutants], indent=1)
    Path(folder, "mutants.json").write_text(index + "\n")
    return mutants


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


def _described(mutant: Mutant) -> dict[str, Any]:
    return {
        "code": mutant.code,
        "path": mutant.path(""),
        "fires": mutant.fires,
        "codes": sorted(mutant.expected),
        "arguments": mutant.arguments("."),
        "environment": mutant.environment,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="FOLDER")
    mutants = write_mutants(parser.parse_args(arguments).folder)
    print(f"{len(mutants)} mutants of {len({one.code for one in mutants})} rules")


if __name__ == "__main__":
    main()
