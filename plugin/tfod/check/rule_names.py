"""Names of rules and families as people write them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tfod.check.rules.registry import FAMILIES, all_rules
from tfod.errors import TfodError


def no_such_rule(name: object) -> str:
    """What to say about a name of no rule; near ones are named."""
    near = difflib.get_close_matches(str(name).upper(), [*FAMILIES, *all_rules()], n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "tfod rules lists them all"
    return f"there is no rule or family {name!r}; {hint}"


def require_rule_names(names: Iterable[object], where: str) -> None:
    """Hold that each name is a rule's code or a family.

    Args:
        names: what was given.
        where: what to name in the message: a file and the place in it, an option.

    Raises:
        TfodError: one of them is neither.
    """
    known = {*FAMILIES, *all_rules()}
    for name in names:
        if name not in known:
            raise TfodError(f"{where}: {no_such_rule(name)}")
