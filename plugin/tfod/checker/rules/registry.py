"""The one place where a rule is declared: docs, ``tfod rules`` and the service come from here.

A rule is a function that yields a :class:`~tfod.checker.finding.Finding` for each thing that
is wrong: of a batch of records (:func:`rule`), or of what the shards of a data set add up to
(:func:`dataset_rule`). The decorator says the rest: code, severity, title, why it matters, what to
do, who says so.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tfod.checker.finding import FAMILIES, Finding, Rule, Severity
from tfod.errors import TfodError

if TYPE_CHECKING:
    from tfod.checker.analysis.batch import Batch, ClassUse
    from tfod.checker.analysis.encoded_images import ImageFacts
    from tfod.checker.analysis.result import DatasetResult
    from tfod.checker.finding import Findings
    from tfod.sources.resolved import LabelMapFile

_HEADING = re.compile(r"([A-Z]{3}\d{3}) (error|warning|info): (.+)")

_RULES: dict[str, Rule] = {}
BatchCheck: TypeAlias = "Callable[[Batch], Iterable[Finding]]"
DatasetCheck: TypeAlias = "Callable[[DatasetResult], Iterable[Finding]]"
Check = TypeVar("Check", bound="Callable[[Any], Iterable[Finding]]")


def rule(
    heading: str, *, why: str, fix: str, source: str, **more: Any
) -> Callable[[BatchCheck], BatchCheck]:
    """Declare a rule that looks at a batch of records.

    Args:
        heading: ``TFR002 error: empty file``: the code (its family and three digits, never given to
            another rule again), the severity unless a profile or the command line says otherwise,
            and what is wrong in a few words.
        why: what comes of it.
        fix: what to do.
        source: who says so: a specification, a file of a project, an issue.
        more: ``repair``, ``once`` and ``cases`` of :class:`Rule`.

    Raises:
        ValueError: the heading is ill-formed, of no family, or its code is taken.
    """
    return _declaration(heading, why=why, fix=fix, source=source, **more)


def dataset_rule(
    heading: str, *, why: str, fix: str, source: str, **more: Any
) -> Callable[[DatasetCheck], DatasetCheck]:
    """Declare a rule that looks at what the shards of a data set add up to, as :func:`rule`."""
    return _declaration(heading, why=why, fix=fix, source=source, of_dataset=True, **more)


def _declaration(heading: str, **more: Any) -> Callable[[Check], Check]:
    match = _HEADING.fullmatch(heading)
    if match is None or match[1][:3] not in FAMILIES:
        raise ValueError(f"{heading!r} is not a code, a severity and a title")
    code, severity, title = match.groups()
    if code in _RULES:
        raise ValueError(f"{code} is taken by {_RULES[code].title!r}")

    def declare(check: Check) -> Check:
        _RULES[code] = Rule(code, Severity(severity), title, check=check, **more)
        return check

    return declare


def detection_rule(heading: str, *, why: str, fix: str, source: str, **more: Any) -> None:
    """Declare the rule that reports the problems of its code, at which importers may stop, too."""
    declare = rule(heading, why=why, fix=fix, source=source, **more)
    declare(lambda batch: batch.problems(heading[:6]))


def each_image(check: Callable[[ImageFacts], Iterable[Finding]]) -> BatchCheck:
    """A rule about what a record has for an image, and says about it; see :func:`_of_rows`."""

    @functools.wraps(check)
    def of_batch(batch: Batch) -> Iterator[Finding]:
        for facts in batch.image_kinds:
            for found in check(facts):
                yield from _of_rows(batch, batch.rows_by_image.get(facts, []), found)

    return of_batch


def each_class(check: Callable[[ClassUse], Iterable[Finding]]) -> BatchCheck:
    """A rule about what an object says about its class; see :func:`_of_rows`."""

    @functools.wraps(check)
    def of_batch(batch: Batch) -> Iterator[Finding]:
        for use in batch.class_uses:
            for found in check(use):
                yield from _of_rows(batch, batch.rows_by_class[use.text, use.label], found)

    return of_batch


def _of_rows(batch: Batch, rows: list[int], found: Finding) -> Iterator[Finding]:
    """A finding without a place for each record; of its key is said what the records call it."""
    key = found.feature
    if key is not None and (own := batch.own(key)) != key:
        found = found._replace(message=found.message.replace(key, own), feature=own)
    return batch.findings(rows, lambda row: found.at(batch.place(row)), found.case)


def each_label_map(check: Callable[[LabelMapFile], Iterable[Finding]]) -> DatasetCheck:
    """A rule about a label map, whose findings are at its file."""

    @functools.wraps(check)
    def of_dataset(result: DatasetResult) -> Iterator[Finding]:
        for name, file in result.dataset.label_maps.items():
            yield from (found._replace(shard=name) for found in check(file))

    return of_dataset


@functools.cache  # asked for fifteen times in a check
def all_rules() -> Mapping[str, Rule]:
    """Every rule by its code, in the order of the families and codes.

    The package declares them all when it is imported, which it is before this module.
    """
    order = list(FAMILIES)
    codes = sorted(_RULES, key=lambda code: (order.index(code[:3]), code))
    return MappingProxyType({code: _RULES[code] for code in codes})


def run_rules(subject: Batch | DatasetResult, findings: Findings, *, of_dataset: bool) -> None:
    """Let the rules that are on look at a batch, or at a data set; keep what they find."""
    for one in all_rules().values():
        is_on = any(map(findings.levels.get, map(one.name, ("", *one.cases))))
        if one.of_dataset is of_dataset and is_on:
            subject.max_detailed = findings.most - len(findings.listed.get(one.code, ()))
            findings.add(one, one.check(subject))


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
