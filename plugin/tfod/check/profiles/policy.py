"""Which rules apply, and how severely: the rule, the profile, the receiver and the user say it."""

from __future__ import annotations

import fnmatch
import ntpath
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType

from tfod.check.findings.finding import Severity
from tfod.check.profiles.profile import OFF, Severities
from tfod.check.rules.registry import Rule, all_rules
from tfod.tfrecord.storage.urls import is_url


@dataclass(frozen=True)
class Selection:
    """Rules that are wanted; names are codes or families.

    Attributes:
        select: only these; None for all.
        ignore: not these. Of a family and a code the code is stronger, of equals ``ignore`` is.
        severities: of those that are wanted.
    """

    select: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    severities: Severities = field(default_factory=dict)


@dataclass(frozen=True)
class Selections:
    """What a configuration and the command line say of rules, for every shard.

    Attributes:
        everywhere: of the configuration.
        by_path: of the configuration, by the pattern of the shards' paths; of several that match
            a later one is stronger.
        typed: on the command line, which is stronger than both. As in ruff ``select`` there
            replaces all of the configuration's but what it ignores for a path.
        folder: paths are relative to it; those of another machine are as they are.
        working_folder: the names of shards are relative to it.
    """

    everywhere: Selection = field(default_factory=Selection)
    by_path: Mapping[str, Selection] = field(default_factory=dict)
    typed: Selection = field(default_factory=Selection)
    folder: str = ""
    working_folder: str = ""

    def patterns_of(self, shard: str) -> tuple[str, ...]:
        """The patterns that match a shard, by its name in the report.

        A pattern matches a path, a file name, or a folder with all that is in it; ``*`` matches
        slashes, too. Shards in a zip are matched by their paths in it as well.
        """
        path = relative_path(shard, self.working_folder, self.folder)
        entry = path.rpartition(":")[2]
        names = {path, entry, entry.rpartition("/")[2]}
        return tuple(
            pattern for pattern, one in self._compiled.items() if any(map(one.fullmatch, names))
        )

    def names(self, family: str) -> bool:
        """Whether a rule of a family is selected, for whichever shards."""
        selections = (self.typed, self.everywhere, *self.by_path.values())
        return any(one[:3] == family for two in selections for one in two.select or ())

    @cached_property
    def _compiled(self) -> Mapping[str, re.Pattern[str]]:
        return {pattern: _compiled(pattern) for pattern in self.by_path}

    def severities(self, patterns: Sequence[str] = ()) -> Severities:
        """By code, what is stronger than receiver and profile, where these patterns match."""
        known = self._severities.get(patterns)
        if known is None:
            known = self._severities[tuple(patterns)] = self._severities_of(patterns)
        return known

    @cached_property
    def _severities(self) -> dict[Sequence[str], Severities]:
        return {}

    def _severities_of(self, patterns: Sequence[str]) -> Severities:
        configured = [self.everywhere, *(self.by_path[one] for one in patterns)]
        found: dict[str, Severity | None] = {}
        for one in configured:
            found.update(_by_code(one.severities))
        if self.typed.select is None:
            chosen = [*configured, self.typed]
        else:
            chosen = [self.typed, *(replace(one, select=None) for one in configured[1:])]
            found = {code: severity for code, severity in found.items() if severity is not OFF}
        found |= dict.fromkeys(all_rules().keys() - _selected(chosen), OFF)
        return {**found, **_by_code(self.typed.severities)}


@dataclass(frozen=True)
class Policy:
    """How severe each rule is, as the user, the receiver, the profile or the rule itself says.

    A code is stronger than its family.

    Attributes:
        profile, receiver, user: what each says; the last is the strongest.
        by_path: what the user says of single shards; None where that is the same for all.
        patterns: those of ``by_path`` that match the shards that this is for; None for all shards.
    """

    profile: Severities = field(default_factory=dict)
    receiver: Severities = field(default_factory=dict)
    user: Severities = field(default_factory=dict)
    by_path: Selections | None = None
    patterns: tuple[str, ...] | None = None

    def of(self, shard: str) -> Policy:
        """The policy for a shard, by its name in the report."""
        if self.by_path is None or self.patterns is not None:
            return self
        patterns = self.by_path.patterns_of(shard)
        return replace(self, user=self.by_path.severities(patterns), patterns=patterns)

    def severity(self, rule: Rule) -> Severity | None:
        """The severity of a rule; None when it is off."""
        for severities in (self.user, self.receiver, self.profile):
            for name in (rule.code, rule.family):
                if name in severities:
                    return severities[name]
        return rule.severity


def relative_path(name: str, working_folder: str, folder: str, paths: ModuleType = os.path) -> str:
    """A shard's name, which is relative to the working folder, relative to another; with slashes.

    Args:
        name: in the report; a URL stays what it is.
        working_folder: absolute.
        folder: absolute; empty where names are no paths of this machine.
        paths: the module for paths of the machine's kind.
    """
    if not folder or is_url(name):
        return name
    path: str = paths.join(working_folder, name)
    try:
        path = paths.relpath(path, folder)
    except ValueError:  # on another drive of Windows
        path = paths.normpath(path)
    return path.replace("\\", "/") if paths is ntpath else path


def _compiled(pattern: str) -> re.Pattern[str]:
    whole = pattern if is_url(pattern) else posixpath.normpath(pattern)
    shorter = f"/{whole}".replace("/**/", "/")[1:]  # two stars may be no folder at all
    forms = dict.fromkeys((whole, shorter, f"{whole}/*", f"{shorter}/*"))
    return re.compile("|".join(map(fnmatch.translate, forms)))


def _by_code(severities: Severities) -> Severities:
    """The same with each family's rules in its place."""
    found = {}
    for rule in all_rules().values() if severities else ():
        name = rule.code if rule.code in severities else rule.family
        if name in severities:
            found[rule.code] = severities[name]
    return found


def _selected(selections: Sequence[Selection]) -> set[str]:
    """Codes of the rules that are wanted; what comes later is stronger."""
    rules = all_rules()
    found = set(rules)
    for selection in selections:
        if selection.select is not None:
            found.clear()
        for length in (3, 6):  # families, then codes
            found |= {code for code in rules if code[:length] in (selection.select or ())}
            found -= {code for code in rules if code[:length] in selection.ignore}
    return found
