"""How severe findings are: the user, the receiver, the profile, the case or the rule says it."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType

from tfod.checker.finding import Severity
from tfod.checker.profiles.profile import OFF, Severities
from tfod.checker.rules.registry import all_rules


def levels_of(
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
            named = (table[one] for table in tables for one in names if one in table)
            levels[name] = next(named, severity)
    missing, feature = levels["NAM001"], levels["EXA003"]
    if missing is None or (feature is not None and feature.rank >= missing.rank):
        # EXA003 reports the missing name no less severely.
        levels["NAM001:required"] = levels["NAM009:required"] = OFF
    return levels


def severities_of(
    select: Collection[str] | None,
    ignore: Collection[str],
    configured: Severities,
    typed: Severities,
) -> Severities:
    """What the user says of rules, by code; all names are codes or families.

    Args:
        select: only these; None for all.
        ignore: not these. Of a family and a code the code is stronger, of equals ``ignore`` is.
        configured: severities of a file, which do not turn on what is not selected.
        typed: severities of the command line, which do.
    """
    rules = all_rules()
    found = set(rules if select is None else ())
    for length in (3, 6):  # families, then codes
        found |= {code for code in rules if code[:length] in (select or ())}
        found -= {code for code in rules if code[:length] in ignore}
    off = dict.fromkeys(rules.keys() - found, OFF)
    return {**_by_code(configured), **off, **_by_code(typed)}


def _by_code(severities: Severities) -> Severities:
    """The same with each family's rules in its place."""
    found = {}
    for rule in all_rules().values() if severities else ():
        name = rule.code if rule.code in severities else rule.family
        if name in severities:
            found[rule.code] = severities[name]
    return found
