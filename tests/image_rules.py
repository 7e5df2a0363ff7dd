"""The findings of the rules for images."""

from __future__ import annotations

from tfod.checker.analysis.encoded_images import ImageFacts
from tfod.checker.finding import Finding
from tfod.checker.rules.registry import all_rules


def problems_by_code(facts: ImageFacts) -> dict[str, Finding]:
    """Return the findings of an image by code."""
    checks = {rule.code: getattr(rule.check, "__wrapped__", None) for rule in all_rules().values()}
    images = {code: check for code, check in checks.items() if check and code[:3] == "IMG"}
    return {code: finding for code, check in images.items() for finding in check(facts)}
