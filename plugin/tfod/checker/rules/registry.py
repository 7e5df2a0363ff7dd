"""The registry of rules, from which the docs, ``tfod rules`` and the validator read them.

A rule is a function that yields a :class:`~tfod.checker.finding.Finding` for each defect of a batch
of records (:func:`rule`) or of all shards of a dataset (:func:`dataset_rule`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tfod.checker.finding import FAMILIES, Finding, Rule, Severity
from tfod.errors import TfodError, excerpt, suggest

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
    heading: str, *, why: str, fix: str, source: str, **options: Any
) -> Callable[[BatchCheck], BatchCheck]:
    """Declare a rule that checks a batch of records.

    Args:
        heading: code, default severity and title, such as ``TFR002 error: empty file``. A code is
            a family and three digits, and is never reused for another rule.
        why: consequence of the defect.
        fix: instruction to remove the defect. Reports replace ``{script}`` (that wrote the shard),
            ``{tool}`` (in which boxes are drawn), ``{box}``, ``{image}`` and ``{file}``. It may end
            with another way, a command: ``, or drop them: tfod repair SOURCE repaired``.
        source: evidence for the rule: a specification, a file of a project, or an issue.
        options: ``explains`` (codes separated by spaces), ``on_page``, ``repair``, ``once`` and
            ``cases`` of :class:`Rule`.

    Raises ValueError if the heading is malformed, its family is unknown, or its code is in use.
    """
    return _make_decorator(heading, why=why, fix=fix, source=source, **options)


def dataset_rule(
    heading: str, *, why: str, fix: str, source: str, **options: Any
) -> Callable[[DatasetCheck], DatasetCheck]:
    """Declare a rule that checks the results of all shards of a dataset; see :func:`rule`."""
    return _make_decorator(heading, why=why, fix=fix, source=source, of_dataset=True, **options)


def _make_decorator(
    heading: str, *, explains: str = "", **options: Any
) -> Callable[[Check], Check]:
    match = _HEADING.fullmatch(heading)
    if match is None or match[1][:3] not in FAMILIES:
        raise ValueError(f"{excerpt(heading)} is not a code, a severity and a title")
    code, severity, title = match.groups()
    if code in _RULES:
        raise ValueError(f"{code} is already used by {excerpt(_RULES[code].title)}")

    def declare(check: Check) -> Check:
        _RULES[code] = Rule(
            code,
            Severity(severity),
            title,
            check=check,
            explains=frozenset(explains.split()),
            **options,
        )
        return check

    return declare


def detection_rule(heading: str, *, why: str, fix: str, source: str, **options: Any) -> None:
    """Declare a rule for problems that reading detections reports, and that can stop an import."""
    declare = rule(heading, why=why, fix=fix, source=source, **options)
    declare(lambda batch: batch.problems(heading[:6]))


def each_image(check: Callable[[ImageFacts], Iterable[Finding]]) -> BatchCheck:
    """Turn a check of image facts into a check of all images of a batch."""

    @functools.wraps(check)
    def check_batch(batch: Batch) -> Iterator[Finding]:
        for facts in batch.image_kinds:
            for finding in check(facts):
                yield from _repeat_in_rows(batch, batch.rows_by_image.get(facts, []), finding)

    return check_batch


def each_class(check: Callable[[ClassUse], Iterable[Finding]]) -> BatchCheck:
    """Turn a check of a class text and id into a check of all objects of a batch."""

    @functools.wraps(check)
    def check_batch(batch: Batch) -> Iterator[Finding]:
        for use in batch.class_uses:
            for finding in check(use):
                yield from _repeat_in_rows(batch, batch.rows_by_class[use.text, use.label], finding)

    return check_batch


def _repeat_in_rows(batch: Batch, rows: list[int], finding: Finding) -> Iterator[Finding]:
    """Yield a finding once per record, with the feature key that the records use."""
    key = finding.feature
    if key is not None and (batch_key := batch.key_for(key)) != key:
        message = finding.message.replace(key, batch_key)
        finding = finding._replace(message=message, feature=batch_key)
    return batch.findings(rows, lambda row: finding.at(batch.locate(row)), finding.case)


def each_label_map(check: Callable[[LabelMapFile], Iterable[Finding]]) -> DatasetCheck:
    """Turn a check of a label map into a check of all label maps of a dataset."""

    @functools.wraps(check)
    def check_dataset(result: DatasetResult) -> Iterator[Finding]:
        for name, file in result.dataset.label_maps.items():
            yield from (finding._replace(shard=name) for finding in check(file))

    return check_dataset


@functools.cache  # a check calls this about fifteen times
def all_rules() -> Mapping[str, Rule]:
    """Return every rule by its code, ordered by family and code."""
    order = list(FAMILIES)
    codes = sorted(_RULES, key=lambda code: (order.index(code[:3]), code))
    return MappingProxyType({code: _RULES[code] for code in codes})


@functools.cache  # names are looked up for each batch
def _rules_with_names() -> list[tuple[Rule, list[str]]]:
    """Return every rule with the names of its cases in levels."""
    rules = all_rules().values()
    return [(item, [item.name(case) for case in ("", *item.cases)]) for item in rules]


def run_rules(subject: Batch | DatasetResult, findings: Findings, *, of_dataset: bool) -> None:
    """Run all active rules on a batch or a dataset, and add their findings."""
    for item, names in _rules_with_names():
        if item.of_dataset is of_dataset and any(map(findings.levels.get, names)):
            subject.max_detailed = findings.max_listed - len(findings.listed.get(item.code, ()))
            findings.add(item, item.check(subject))


def describe_unknown_rule(name: object) -> str:
    """Return the error message for an unknown rule, with similar names."""
    similar = suggest(str(name).upper(), [*FAMILIES, *all_rules()], limit=3)
    return f"there is no rule or family {excerpt(name)}; {similar or 'tfod rules lists them all'}"


def require_rule_names(names: Iterable[object], location: str) -> None:
    """Raise TfodError if a name is not a code or family; the message begins with ``location``."""
    valid_names = {*FAMILIES, *all_rules()}
    for name in names:
        if name not in valid_names:
            raise TfodError(f"{location}: {describe_unknown_rule(name)}")
