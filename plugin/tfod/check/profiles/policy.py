"""How severe findings are: the user, the receiver, the profile, the case or the rule says it."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import NamedTuple

from tfod.check.finding import Findings, Severity
from tfod.check.profiles.profile import OFF, Severities
from tfod.check.rules.registry import all_rules


class Policy(NamedTuple):
    """How severe the findings of each rule are; a code is stronger than its family.

    Attributes:
        profile, receiver, user: what each says; the last is the strongest.
    """

    profile: Severities = MappingProxyType({})
    receiver: Severities = MappingProxyType({})
    user: Severities = MappingProxyType({})

    def severity(self, code: str, case_severity: Severity | None = None) -> Severity | None:
        """The severity of a rule's findings, or of those whose case has another; None when off."""
        for severities in (self.user, self.receiver, self.profile):
            for name in (code, code[:3]):
                if name in severities:
                    return severities[name]
        return case_severity or all_rules()[code].severity

    @property
    def codes(self) -> frozenset[str]:
        """The rules that are on."""
        return frozenset(code for code in all_rules() if self.severity(code) is not None)

    def apply(self, findings: Findings) -> Findings:
        """Findings as severe as this says."""
        found = Findings(findings.most, counts=findings.counts)
        for code, worst in findings.worst.items():
            found.worst[code] = self.severity(code, worst) or worst
        for code, listed in findings.listed.items():
            levels = {level: self.severity(code, level) or level for level in Severity}
            found.listed[code] = [
                one
                if levels[one.severity] is one.severity
                else one._replace(severity=levels[one.severity])
                for one in listed
            ]
        return found


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
