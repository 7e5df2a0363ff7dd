"""The rules as people read them: ``tfod rules``, the pages of ``docs`` and that of the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfod.check.finding import FAMILIES, Rule
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import READY
from tfod.check.receivers import RECEIVERS


def by_family(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """The rules of each family that has any, in the order of the families."""
    families: dict[str, list[Rule]] = {family: [] for family in FAMILIES}
    for rule in rules:
        families[rule.family].append(rule)
    return {family: members for family, members in families.items() if members}


def parts(rule: Rule) -> Iterator[tuple[str, str]]:
    """All that is said about a rule below its title: a heading, and the text."""
    yield "Why", rule.why
    yield "Fix", rule.fix
    if rule.repair:
        yield "Repair", f"tfod repair: {rule.repair}"
    yield "Source", rule.source
    yield from changes(rule)


def changes(rule: Rule) -> Iterator[tuple[str, str]]:
    """Who gives a rule another severity, or turns it off: ``Profiles``, ``off in cvat``.

    CVAT is the one of which no task is known.
    """
    ready = {one.name: Policy(one.severities) for one in READY.values()}
    receivers = {one.name: Policy(receiver=one.severities(None)) for one in RECEIVERS.values()}
    for heading, word, policies in (("Profiles", "in", ready), ("Receivers", "for", receivers)):
        found = {name: policy.severity(rule.code) for name, policy in policies.items()}
        said = [
            f"{one.value if one else 'off'} {word} {name}"
            for name, one in found.items()
            if one is not rule.severity
        ]
        if said:
            yield heading, ", ".join(said)
