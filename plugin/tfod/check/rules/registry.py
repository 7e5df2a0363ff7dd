"""The one place where a rule is declared: docs, ``tfod rules`` and the service come from here.

A rule is a function that yields a :class:`~tfod.check.findings.finding.Problem` for each thing that
is wrong. The decorator says the rest: code, severity, title, why it matters, what to do, who says
so. Called by its name a rule returns its problems, each with the rule. What several rules look at
(a damage of the framing, a batch of boxes, …) is the only argument of each; :func:`problems_of`
finds the rules by its type.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ParamSpec, TypeAlias

from tfod.check.findings.finding import Problem, Severity
from tfod.detection.problems import DetectionProblem, Wrong
from tfod.errors import TfodError

_P = ParamSpec("_P")
_HEADING = re.compile(r"([A-Z]{3}\d{3}) (error|warning|info): (.+)")

FAMILIES = {
    "TFR": "framing: the file as a sequence of records",
    "EXA": "the record as a tf.train.Example",
    "BOX": "boxes",
    "LAB": "classes and the label map",
    "IMG": "the encoded image",
    "NAM": "names of images",
    "ZIP": "the archive around the shards",
    "SET": "shards as a set",
    "TSK": "the CVAT task it is meant for",
    "CFG": "the trainer's configuration",
}
"""The first three letters of a code, and what the rules of that family look at."""


@dataclass(frozen=True)
class Rule:
    """A rule and all that is said about it.

    ``subject`` is the type of the only argument of ``check``; None where it has several, or none.
    """

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    source: str
    subject: type | None
    check: Callable[..., Iterable[Problem]]

    @property
    def family(self) -> str:
        """The family's three letters."""
        return self.code[:3]


RuleProblems: TypeAlias = "list[tuple[Rule, Problem]]"
"""What rules have found, each problem with its rule."""
_RULES: dict[str, Rule] = {}


def rule(
    heading: str, *, why: str, fix: str, source: str
) -> Callable[[Callable[_P, Iterable[Problem]]], Callable[_P, RuleProblems]]:
    """Declare a rule.

    Args:
        heading: ``TFR002 error: empty file``: the code (its family and three digits, never given to
            another rule again), the severity unless a profile or the command line says otherwise,
            and what is wrong in a few words.
        why: what comes of it.
        fix: what to do.
        source: who says so: a specification, a file of a project, an issue.

    Raises:
        ValueError: the heading is ill-formed, of no family, or its code is taken.
    """
    match = _HEADING.fullmatch(heading)
    if match is None or match[1][:3] not in FAMILIES:
        raise ValueError(f"{heading!r} is not a code, a severity and a title")
    code, severity, title = match[1], Severity(match[2]), match[3]

    def declare(check: Callable[_P, Iterable[Problem]]) -> Callable[_P, RuleProblems]:
        if code in _RULES:
            raise ValueError(f"{code} is taken by {_RULES[code].title!r}")
        names = list(inspect.signature(check).parameters)
        subject = typing.get_type_hints(check)[names[0]] if len(names) == 1 else None
        own = _RULES[code] = Rule(code, severity, title, why, fix, source, subject, check)

        @functools.wraps(check)
        def problems(*args: _P.args, **kwargs: _P.kwargs) -> RuleProblems:
            return [(own, problem) for problem in check(*args, **kwargs)]

        return problems

    return declare


def detection_rule(heading: str, wrong: Wrong, *, why: str, fix: str, source: str) -> None:
    """Declare the rule that reports a problem of the detections, which also stops an import."""

    @rule(heading, why=why, fix=fix, source=source)
    def of_kind(problem: DetectionProblem) -> Iterator[Problem]:
        if problem.wrong is wrong:
            yield Problem(f"{problem.key} {problem.cause}", feature=problem.key)


@functools.cache  # asked for fifteen times in a check
def all_rules() -> Mapping[str, Rule]:
    """Every rule by its code, in the order of the families and codes.

    The package declares them all when it is imported, which it is before this module.
    """
    order = list(FAMILIES)
    codes = sorted(_RULES, key=lambda code: (order.index(code[:3]), code))
    return MappingProxyType({code: _RULES[code] for code in codes})


_by_subject: dict[type[Any], tuple[Rule, ...]] = {}


def rules_for(subject: type[Any]) -> tuple[Rule, ...]:
    """The rules that check a kind of subject, in the order of their codes."""
    if subject not in _by_subject:
        rules = all_rules().values()
        _by_subject[subject] = tuple(one for one in rules if one.subject is subject)
    return _by_subject[subject]


def problems_of(subject: object) -> Iterator[tuple[Rule, Problem]]:
    """Let every rule for this kind of subject look at it."""
    kind: type[Any] = type(subject)
    for one in rules_for(kind):
        for problem in one.check(subject):
            yield one, problem


def no_such_rule(name: object) -> str:
    """What to say about a name of no rule; near ones are named."""
    import difflib  # loaded for an error alone

    near = difflib.get_close_matches(str(name).upper(), [*FAMILIES, *all_rules()], n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "tfod rules lists them all"
    return f"there is no rule or family {name!r}; {hint}"


def require_rule_names(names: Iterable[object], where: str) -> None:
    """Refuse what is neither a rule's code nor a family.

    Raises:
        TfodError: one of the names is neither; it begins with ``where``, an option or a file.
    """
    known = {*FAMILIES, *all_rules()}
    for name in names:
        if name not in known:
            raise TfodError(f"{where}: {no_such_rule(name)}")
