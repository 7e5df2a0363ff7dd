"""The keys that play a part in a profile, as they are on the wire and as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tfod.check.finding import Problem
from tfod.check.rules.registry import Rule
from tfod.detection.keys import XMIN
from tfod.detection.roles import Roles

Said: TypeAlias = Sequence[tuple[Rule, Problem]]


BOX_PREFIX = XMIN.rpartition("/")[0]


def judged_keys(roles: Roles) -> frozenset[str]:
    """The keys whose values the rules judge by the part they play; the others only readers know."""
    judged = replace(
        roles,
        image_class_text=None,
        image_class_label=None,
        area=None,
        image_id=None,
        annotation_id=None,
    )
    return judged.all_keys


class RoleKeys:
    """The keys of a profile's roles: those of the wire as bytes, ``names`` as texts."""

    def __init__(self, roles: Roles) -> None:
        self.names = roles
        self.encoded = _wire(roles.encoded)
        self.format = _wire(roles.format)
        self.filename = _wire(roles.filename)
        self.source_id = _wire(roles.source_id)
        self.sha256 = _wire(roles.sha256)
        self.height = _wire(roles.height)
        self.width = _wire(roles.width)
        self.class_text = _wire(roles.class_text)
        self.class_label = _wire(roles.class_label)
        self.box = tuple(key.encode() for key in roles.box)
        self._renamed: dict[str, str] = {
            usual: own
            for usual, own in zip(Roles().by_name.values(), roles.by_name.values(), strict=True)
            if usual is not None and own is not None and own != usual
        }
        if len(roles.box) == 1:
            self._renamed[BOX_PREFIX] = roles.box[0]

    def in_own_words(self, said: Iterable[tuple[Rule, Problem]]) -> Said:
        """What rules say of the OD API's keys, said of the keys that this profile has instead."""
        if not self._renamed:
            return list(said)
        found = []
        for rule, problem in said:
            message = problem.message
            for usual, own in self._renamed.items():
                message = message.replace(usual, own)
            feature = self._renamed.get(problem.feature or "", problem.feature)
            found.append((rule, replace(problem, message=message, feature=feature)))
        return found


def _wire(key: str | None) -> bytes | None:
    return None if key is None else key.encode()
