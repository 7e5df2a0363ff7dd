"""The table of rules, the pages in docs/rules and the code agree."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from runpy import run_path

import pytest
from tfod.checker.advice import fill_in, split_command
from tfod.checker.finding import FAMILIES
from tfod.checker.profiles.profile import READY
from tfod.checker.reporters.wording import describe_overrides
from tfod.checker.rules.registry import all_rules

from tests.commands import Run

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "rules"
RULES = all_rules()
_DECLARATION = re.compile(r'^ *@?\w*rule\(\s*"([A-Z]{3}\d{3}) ', re.MULTILINE)


def test_the_pages_are_those_of_the_code() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in PAGES.iterdir()}
    assert written == run_path(str(PAGES.parent / "write_rules.py"))["pages"](), "run: make docs"


def test_every_code_of_the_sources_is_declared_once() -> None:
    sources = (path.read_text() for path in (ROOT / "plugin" / "tfod").rglob("*.py"))
    declared = Counter(code for source in sources for code in _DECLARATION.findall(source))
    assert set(declared) == set(RULES) and set(declared.values()) == {1}


def test_codes_and_titles() -> None:
    for family in FAMILIES:
        numbers = [int(code[3:]) for code in RULES if code.startswith(family)]
        assert numbers == sorted(set(numbers)) and numbers
    titles = [rule.title for rule in RULES.values()]
    assert [title for title, times in Counter(titles).items() if times > 1] == []
    assert [title for title in titles if len(title) > 60 or title.endswith(".")] == []
    for profile in READY.values():
        assert set(profile.severities) <= {*FAMILIES, *RULES}, profile.name


@pytest.mark.parametrize("code", RULES)
def test_texts_are_sentences(code: str) -> None:
    rule = RULES[code]
    sentence, command = split_command(rule.fix)
    assert not command or sentence.endswith(":")
    for text in (rule.why, f"{sentence[:-1]}." if command else sentence):
        assert text == text.strip() and text.endswith(".") and not text.endswith("..")
        assert "\n" not in text and "  " not in text
        assert not text[0].islower() or re.match(r"(tfod |[a-z]+[_./])", text)
    assert rule.source == rule.source.strip() and rule.source and not rule.source.endswith(".")
    assert rule.title == rule.title.strip() and rule.title
    if code[:3] in ("EXA", "BOX", "IMG", "NAM") and code not in ("EXA010", "BOX010"):
        # A place first; a command is the second way.
        assert re.search(r"\{(script|tool|image|file)\}", sentence)
        assert not command or re.search(r", or |\. To ", sentence)


def test_the_command_lists_all(run: Run) -> None:
    printed = run("rules").out
    assert printed.startswith("TFR  the framing of records in the file\n  TFR001  ")
    assert max(map(len, printed.splitlines())) <= 80
    assert re.findall(r"^  ([A-Z]{3}\d{3}) ", printed, re.MULTILINE) == list(RULES)


@pytest.mark.parametrize("name", ["IMG001", "img001"])
def test_the_command_explains_a_rule(name: str, run: Run) -> None:
    printed, rule = " ".join(run("rules", name).out.split()), RULES["IMG001"]
    assert printed.startswith(f"IMG001, {rule.severity.value}: {rule.title} Why: {rule.why} ")
    assert f" Fix: {fill_in(rule.fix)} Source: {rule.source} Profiles: off in cvat" in printed


@pytest.mark.parametrize("family", FAMILIES)
def test_the_command_explains_a_family(family: str, run: Run) -> None:
    printed = run("rules", family.lower()).out
    codes = [code for code in RULES if code.startswith(family)]
    assert re.findall(r"^([A-Z]{3}\d{3}),", printed, re.MULTILINE) == codes
    # Only words without a space may be longer.
    long = [line for line in printed.splitlines() if len(line) > 80]
    assert [line for line in long if " " in line.strip()] == []


def test_unknown_rules_and_overrides(run: Run) -> None:
    for name, hint in (("TFR0O1", "did you mean TFR0"), ("?", "tfod rules lists them all")):
        assert f"there is no rule or family {name!r}; {hint}" in run("rules", name).refused()
    assert "off in image_label" in dict(describe_overrides(RULES["BOX001"]))["Profiles"]
    assert list(describe_overrides(RULES["TFR001"])) == []
