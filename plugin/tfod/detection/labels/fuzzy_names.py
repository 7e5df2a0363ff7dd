"""Names that are the same but for what people spell differently, and those one letter off.

Records may have a million classes that a label map lacks, so that each is looked up, not compared
with every name as :mod:`difflib` would.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator

_LONGEST = 32
"""Letters: of longer names a typing error is seldom the matter."""
_MOST_NAMES = 1000
"""So many are known by their spellings with an error; a dozen of each take up memory."""
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\s_-]+(?=\d)")
_BETWEEN_WORDS = re.compile(r"[\s_-]+")


def folded(text: str) -> str:
    """A text without what people spell differently: case, spaces, hyphens and underscores.

    Between two digits these mean something: the road sign 1-1 is not the sign 11.
    """
    return _BETWEEN_WORDS.sub("", _BETWEEN_DIGITS.sub(".", text.casefold()))


def plain_letters(text: str) -> str:
    """What is left of a name without case, spaces and punctuation."""
    return "".join(letter for letter in text.casefold() if letter.isalnum())


class FuzzyNames:
    """Looks up names, each in a time that depends on its own length alone.

    Of names that are alike the first is found; ``folded`` takes a name to what all its spellings
    have in common.
    """

    def __init__(self, names: Iterable[str], folded: Callable[[str], str]) -> None:
        self._folded = folded
        self._by_spelling: dict[str, str] = {}
        for name in names:
            self._by_spelling.setdefault(folded(name), name)
        self._by_error: dict[str, str] = {}
        if len(self._by_spelling) <= _MOST_NAMES:
            for spelling, name in self._by_spelling.items():
                for one in _with_an_error(spelling):
                    self._by_error.setdefault(one, name)

    def same(self, text: str) -> str | None:
        """The name that the text is but for its spelling."""
        return self._by_spelling.get(self._folded(text))

    def nearest(self, text: str) -> str | None:
        """The same, or the name that has one letter more, less, changed, or out of its place."""
        same = self.same(text)
        if same is not None:
            return same
        errors = _with_an_error(self._folded(text))
        return next((self._by_error[one] for one in errors if one in self._by_error), None)


def _with_an_error(spelling: str) -> Iterator[str]:
    """The spelling, and all that it becomes without one of its letters.

    Two words have one of these in common when they are a letter apart.
    """
    if 2 < len(spelling) <= _LONGEST:
        yield spelling
        yield from (spelling[:at] + spelling[at + 1 :] for at in range(len(spelling)))


@functools.lru_cache(4)
def names_near_labels(labels: frozenset[str]) -> FuzzyNames:
    """The labels of a CVAT task, which differ by more than case and punctuation."""
    return FuzzyNames(sorted(labels), plain_letters)
