"""What the rules say of what a record has for an image."""

from __future__ import annotations

from tfod.checker.analysis.encoded_images import ImageFacts
from tfod.checker.finding import Finding
from tfod.checker.rules.registry import all_rules


def problems_by_code(facts: ImageFacts) -> dict[str, Finding]:
    """What the rules say of what a record has for an image, by code."""
    checks = {one.code: getattr(one.check, "__wrapped__", None) for one in all_rules().values()}
    images = {code: check for code, check in checks.items() if check and code[:3] == "IMG"}
    return {code: said for code, check in images.items() for said in check(facts)}
