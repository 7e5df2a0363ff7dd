"""The names of a record, and names that stand for all of a batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Letters of any script, digits and a few signs, and dots that neither begin nor follow a part.
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_PLAIN_NAMES = re.compile(r"(?:\w[\w ()/-]*(?:(?<!/)\.[\w ()/-]+)+\0)*")


class NameFacts(NamedTuple):
    """The names of a record. None is a feature that is not there, or that has no value.

    ``format`` is that of the encoded bytes, None where there are none or they are unknown. The
    last two say whether no other rule reports that the feature is missing.
    """

    filename: str | None
    source_id: str | None
    format: str | None
    has_objects: bool = True
    name_is_looked_at: bool = True
    id_is_looked_at: bool = True


def plain_names(names: Sequence[str | None]) -> set[str]:
    """A name for each ending behind the last dot; none where a name is not a plain one."""
    # Most names of a shard differ by their numbers alone.
    shapes = "\0".join(filter(None, names)).encode().translate(_DIGITS).decode().split("\0")
    different = set(shapes)
    if len(shapes) != len(names) or _PLAIN_NAMES.fullmatch("\0".join([*different, ""])) is None:
        return set()
    endings = {shape.rpartition(".")[2] for shape in different}
    return set() if any("0" in one for one in endings) else {f"image.{one}" for one in endings}
