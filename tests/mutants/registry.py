"""The attributes of a mutant, and how it is declared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class Link:
    """A symbolic link instead of a file."""

    target: str


Content: TypeAlias = "bytes | Link | Mapping[str, Content]"
"""A file, or a folder of them by name."""
LIMITS = ("max_record_bytes", "max_archive_bytes", "max_archive_entries")
"""Options of the library that the command reads from the environment."""


class Inside(str):
    """A path within the mutant's own folder, as the value of an option."""

    __slots__ = ()


@dataclass(frozen=True)
class Mutant:
    """A file or a folder, and the rules that a check must report.

    Attributes:
        code: of its rule.
        case: the change, in a few words joined by hyphens.
        content: its bytes, or the files of a folder.
        fires: whether the rule must fire; else it must not.
        also: other rules that cannot help to fire.
        ending: end of the file's name; a folder has none.
        at: the file within the folder or archive that the finding is about.
        record: number of the record that the finding is about.
        options: of ``tfod check``, by name with underscores.
        letter: of the alphabet, among the mutants of its rule.
    """

    code: str
    case: str
    content: Content
    fires: bool = True
    also: frozenset[str] = frozenset()
    ending: str = ".tfrecord"
    at: str = ""
    record: int | None = None
    options: Mapping[str, str | bool | int] = field(default_factory=dict)
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
        """The path among all mutants: each family has a folder."""
        return os.path.join(folder, self.code[:3], self.name)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that set its limits."""
        limits = ((name, self.options.get(name)) for name in LIMITS)
        return {f"TFOD_{name.upper()}": str(value) for name, value in limits if value is not None}

    def arguments(self, folder: str | Path) -> list[str]:
        """The arguments of ``tfod check``: the path and its options."""
        path = self.path(folder)
        arguments = [path]
        for name, value in self.options.items():
            if name in LIMITS:
                continue
            arguments.append(f"--{name.replace('_', '-')}")
            if value is not True:
                inside = isinstance(value, Inside)
                arguments.append(os.path.join(path, value) if inside else str(value))
        return arguments


def fail(name: str, content: Content, *also: str, **how: object) -> Mutant:
    """A mutant for which its rule must fire, and the rules in ``also``."""
    code, _, case = name.partition("-")
    return Mutant(code, case, content, True, frozenset(also), **how)


def near(name: str, content: Content, *also: str, **how: object) -> Mutant:
    """A near miss: its rule must not fire."""
    return replace(fail(name, content, *also, **how), fires=False)
