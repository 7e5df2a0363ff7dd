"""Severities of findings, as set by the user, the receiver, the profile, the case or the rule."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType

from tfod.checker.finding import Severity
from tfod.checker.profiles.profile import OFF, Severities
from tfod.checker.rules.registry import all_rules


def resolve_levels(
    profile: Severities = MappingProxyType({}),
    receiver: Severities = MappingProxyType({}),
    user: Severities = MappingProxyType({}),
) -> dict[str, Severity | None]:
    """Return the severity of each rule and case, None for those that are off.

    The user takes precedence over the receiver, and the receiver over the profile; a case over its
    code, and a code over its family. A case or rule that none of them names has its own severity.
    """
    levels: dict[str, Severity | None] = {}
    for rule in all_rules().values():
        for case, severity in {"": rule.severity, **rule.cases}.items():
            name = rule.name(case)
            names = (name, rule.code, rule.family)
            tables = (user, receiver, profile)
            named = (table[key] for table in tables for key in names if key in table)
            levels[name] = next(named, severity)
    missing, feature = levels["NAM001"], levels["EXA003"]
    if missing is None or (feature is not None and feature.rank >= missing.rank):
        # EXA003 reports the missing name with at least the same severity.
        levels["NAM001:required"] = levels["NAM009:required"] = OFF
    return levels


def combine_severities(
    select: Collection[str] | None,
    ignore: Collection[str],
    configured: Severities,
    requested: Severities,
) -> Severities:
    """Return the user's severities by code; all names are codes or families.

    A code takes precedence over its family, and ``ignore`` over ``select``.

    Args:
        select: codes of the only rules to run; None for all.
        ignore: codes of rules to skip.
        configured: severities of a file, which do not turn on rules that are not selected.
        requested: severities of the command line, which do.
    """
    rules = all_rules()
    selected = set(rules if select is None else ())
    for length in (3, 6):  # families, then codes
        selected |= {code for code in rules if code[:length] in (select or ())}
        selected -= {code for code in rules if code[:length] in ignore}
    off = dict.fromkeys(rules.keys() - selected, OFF)
    return {**_expand_families(configured), **off, **_expand_families(requested)}


def _expand_families(severities: Severities) -> Severities:
    expanded = {}
    for rule in all_rules().values() if severities else ():
        name = rule.code if rule.code in severities else rule.family
        if name in severities:
            expanded[rule.code] = severities[name]
    return expanded
