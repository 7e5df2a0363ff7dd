"""Look-up of names that differ only in spelling or by one typing error.

It stays fast for records with a million classes, unlike comparing all names with :mod:`difflib`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator

_MAX_LETTERS = 32
"""Longer names are looked up without typing errors."""
_MAX_NAMES = 1000
"""Larger sets are looked up without typing errors: every name takes a dozen entries."""
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\s_-]+(?=\d)")
_BETWEEN_WORDS = re.compile(r"[\s_-]+")


def fold_name(text: str) -> str:
    """Return a name without case, spaces, hyphens and underscores.

    Between two digits they are significant: the road sign 1-1 is not the sign 11.
    """
    return _BETWEEN_WORDS.sub("", _BETWEEN_DIGITS.sub(".", text.casefold()))


def strip_punctuation(text: str) -> str:
    """Return the letters and digits of a name, without case."""
    return "".join(letter for letter in text.casefold() if letter.isalnum())


class FuzzyNames:
    """An index of names with a look-up time that depends only on the length of the name.

    The first of several matches wins. ``fold`` maps all spellings of a name to the same text.
    """

    def __init__(self, names: Iterable[str], fold: Callable[[str], str]) -> None:
        self._fold = fold
        self._by_spelling: dict[str, str] = {}
        for name in names:
            self._by_spelling.setdefault(fold(name), name)
        self._by_error: dict[str, str] = {}
        if len(self._by_spelling) <= _MAX_NAMES:
            for spelling, name in self._by_spelling.items():
                for variant in _with_one_deletion(spelling):
                    self._by_error.setdefault(variant, name)

    def find_same(self, text: str) -> str | None:
        """Return the name that differs only in spelling, or None."""
        return self._by_spelling.get(self._fold(text))

    def find_nearest(self, text: str) -> str | None:
        """Return the same name, or one with a letter more, less, changed or moved, or None."""
        same = self.find_same(text)
        if same is not None:
            return same
        variants = _with_one_deletion(self._fold(text))
        return next((self._by_error[x] for x in variants if x in self._by_error), None)


def _with_one_deletion(spelling: str) -> Iterator[str]:
    """Yield the spelling and its variants without one letter, which similar spellings share."""
    if 2 < len(spelling) <= _MAX_LETTERS:
        yield spelling
        yield from (spelling[:i] + spelling[i + 1 :] for i in range(len(spelling)))


@functools.lru_cache(4)
def index_labels(labels: frozenset[str]) -> FuzzyNames:
    """Return an index of the labels of a CVAT task, ignoring case and punctuation."""
    return FuzzyNames(sorted(labels), strip_punctuation)
