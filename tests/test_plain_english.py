"""The counter of ``make lint``: a phrase that each pattern finds, and one that it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import plain_english

PHRASES = {
    "of-first": ("Of both parts.", "Of course it is optional."),
    "what-noun": ("What compresses a shard.", "See what to do next."),
    "who-noun": ("This is only for who has the token.", "The user who has the token may do this."),
    "of-noun": ("The boxes and those of the zip.", "The boxes of the zip."),
    "so-many": ("So many images are decoded.", "It has as many boxes as labels."),
    "is-no": ("The path is no folder.", "The path is no longer a folder."),
    "is-there": ("The file is there already.", "Is there a file?"),
    "of-its-own": ("A class with an id of its own.", "A class with its own id."),
    "as-x-has-it": ("A box as COCO has it.", "A box as COCO stores boxes."),
    "archaic": ("Write / in place of the backslash.", "Write / instead of the backslash."),
    "asked-given": ("Masks are asked for.", "Masks are requested."),
    "somebody": ("Nobody knows the offset.", "The offset is unknown."),
    "says-it": ("The record says nothing.", "The record has no size."),
    "come-go": ("This goes with the shard.", "This goes wrong."),
    "meant-made": ("It is unclear which is meant.", "It is meant to be read."),
    "behind": ("The bytes behind a record.", "No file is left behind."),
    "one-alone": ("Shards in text alone.", "Only the text of shards."),
    "per-unit": ("It has 8 bits a channel.", "It has 8 bits per channel."),
    "where-if": ("The size, None where unknown.", "The folder where it was."),
    "odd-start": ("Let the rules run.", "Which rules run?"),
    "other-than": ("It has another size than the image.", "It differs from each other image."),
    "vocabulary": ("Return the sound records.", "This sounds right."),
}


def found_in(text: str) -> set[str]:
    return {hit[1 : hit.index("]")] for _, hit in plain_english.hits_in(text)}


@pytest.mark.parametrize("name", plain_english.PATTERNS)
def test_a_phrase_of_each_pattern(name: str) -> None:
    translated, plain = PHRASES[name]
    assert name in found_in(translated)
    assert name not in found_in(plain)


def test_the_texts_of_python_source() -> None:
    source = '"""Docs."""\n# why\n# so\n\nx = f"a {b} c"  # end\ny = field(source="Other title")\n'
    texts = sorted(plain_english.python_texts(source))
    assert texts == [(1, "Docs."), (2, "why\nso"), (5, "a {} c"), (5, "end")]


@pytest.mark.parametrize(("limit", "status"), [("0", 1), ("124", 1), ("125", 0)])
def test_the_limit(
    tmp_path: Path,
    limit: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "page.md").write_text(
        "# A\n\n```\nof what is there\n```\n\nThis is no page, but a few.\n"
    )
    (tmp_path / "data.txt").write_text("Of what is no page.\n")
    monkeypatch.setattr("sys.argv", ["plain_english.py", "--limit", limit, str(tmp_path)])
    assert plain_english.main() == status
    printed = capsys.readouterr().out
    assert ("page.md:7: [is-no]" in printed) == bool(status)
    assert "1 phrases in 8 words" in printed
