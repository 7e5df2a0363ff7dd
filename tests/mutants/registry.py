"""How a mutant is declared: a function for each rule yields its failing files and near misses."""

from __future__ import annotations

import os
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class Link:
    """A symbolic link in place of a file."""

    target: str


Content: TypeAlias = "bytes | Link | Mapping[str, Content]"
"""A file, or a folder of them by name."""


class Inside(str):
    """A path within the mutant's own folder, as the value of an option."""

    __slots__ = ()


@dataclass(frozen=True)
class Mutant:
    """A file or a folder, and what a check must say of it.

    Attributes:
        case: what is odd about it, in a few words joined by hyphens.
        content: its bytes, or the files of a folder.
        fires: whether the rule must fire; else it must not.
        also: other rules that cannot help to fire.
        ending: of the file's name; a folder has none.
        at: the file within the folder or archive that the finding is about.
        record: number of the record that the finding is about.
        options: of ``tfod check``, by name with underscores.
        inside: names of those files and folders in it that are checked; empty for the whole of it.
        code, letter: given when it is declared.
    """

    case: str
    content: Content
    fires: bool = True
    also: frozenset[str] = frozenset()
    ending: str = ".tfrecord"
    at: str = ""
    record: int | None = None
    options: Mapping[str, str | bool | int] = field(default_factory=dict)
    inside: Sequence[str] = ()
    code: str = ""
    letter: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether it consists of several files."""
        return isinstance(self.content, Mapping)

    @property
    def name(self) -> str:
        """``BOX006-xmax-left-of-xmin-fail-a.tfrecord``."""
        expected = "fail" if self.fires else "pass"
        ending = "" if self.is_folder else self.ending
        return f"{self.code}-{self.case}-{expected}-{self.letter}{ending}"

    @property
    def expected(self) -> frozenset[str]:
        """All rules that must fire."""
        return self.also | {self.code} if self.fires else self.also

    def path(self, folder: str | Path) -> str:
        """Where it is, or will be, among all mutants: each family has a folder."""
        return os.path.join(folder, self.code[:3], self.name)

    def sources(self, folder: str | Path) -> list[str]:
        """What is checked."""
        path = self.path(folder)
        return [os.path.join(path, name) for name in self.inside] or [path]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that set its limits."""
        limits = ((name, self.options.get(name)) for name in LIMITS)
        return {f"TFOD_{name.upper()}": str(value) for name, value in limits if value is not None}

    def arguments(self, folder: str | Path) -> list[str]:
        """What comes behind ``tfod check``."""
        path = self.path(folder)
        found = self.sources(folder)
        for name, value in self.options.items():
            if name in LIMITS:
                continue
            found.append(f"--{name.replace('_', '-')}")
            if value is not True:
                found.append(os.path.join(path, value) if isinstance(value, Inside) else str(value))
        return found


LIMITS = ("max_record_bytes", "max_archive_bytes", "max_archive_entries")
"""Options of the library that are variables of the environment to the command."""
Declare: TypeAlias = Callable[[], Iterator[Mutant]]
_DECLARATIONS: list[tuple[str, Declare]] = []


def mutants_of(code: str) -> Callable[[Declare], Declare]:
    """Declare the mutants of a rule."""

    def declare(function: Declare) -> Declare:
        _DECLARATIONS.append((code, function))
        return function

    return declare


def fail(case: str, content: Content, *also: str, **how: object) -> Mutant:
    """A mutant of which the rule must fire, and those in ``also`` besides."""
    return Mutant(case, content, True, frozenset(also), **how)


def near(case: str, content: Content, *also: str, **how: object) -> Mutant:
    """A near miss: the rule must not fire."""
    return Mutant(case, content, False, frozenset(also), **how)


def declared() -> list[Mutant]:
    """All mutants of the modules that were imported, in the order of their declaration."""
    counts: Counter[tuple[str, bool]] = Counter()
    found = []
    for code, function in _DECLARATIONS:
        for one in function():
            letter = string.ascii_lowercase[counts[code, one.fires]]
            counts[code, one.fires] += 1
            found.append(replace(one, code=code, letter=letter))
    return found
