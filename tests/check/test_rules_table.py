"""The table of rules, the pages in docs/rules and the code agree."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tfod.check.findings.finding import FAMILIES
from tfod.check.profiles.profile import READY
from tfod.check.reporters.rules_pages import changes, full_text, markdown_pages, table
from tfod.check.rules.registry import all_rules
from tfod.cli import main as cli

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "rules"
RULES = all_rules()


def test_the_pages_are_those_of_the_code() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in PAGES.iterdir()}
    assert written == markdown_pages(RULES.values()), "run: make docs"


def test_every_code_of_the_sources_is_in_the_table_and_on_a_page() -> None:
    """Looked for in the sources' own text, past the registry."""
    declared = Counter(
        code
        for path in (ROOT / "plugin" / "tfod").rglob("*.py")
        for code in re.findall(
            r'^ *@?\w*rule\(\s*"([A-Z]{3}\d{3}) ', path.read_text(), re.MULTILINE
        )
    )
    assert set(declared) == set(RULES) and set(declared.values()) == {1}
    pages = markdown_pages(RULES.values())
    for code in RULES:
        assert f"\n## {code}\n" in pages[f"{code[:3]}.md"]
        assert f"[{code}]({code[:3]}.md#{code.lower()})" in pages["README.md"]
        assert f"  {code}  " in table(RULES.values())


def test_every_family_has_rules_in_the_order_of_their_numbers() -> None:
    """A number that a rule had which is gone is given to no other."""
    for family in FAMILIES:
        numbers = [int(code[3:]) for code in RULES if code.startswith(family)]
        assert numbers == sorted(set(numbers)) and numbers


def test_titles_are_unique_and_short() -> None:
    titles = [rule.title for rule in RULES.values()]
    assert [title for title, times in Counter(titles).items() if times > 1] == []
    assert [title for title in titles if len(title) > 60 or title.endswith(".")] == []


@pytest.mark.parametrize("code", RULES)
def test_texts_are_sentences(code: str) -> None:
    rule = RULES[code]
    for text in (rule.why, rule.fix):
        assert text == text.strip() and text.endswith(".") and not text.endswith("..")
        assert "\n" not in text and "  " not in text
        assert not text[0].islower() or re.match(r"(tfod |[a-z]+[_./])", text)
    assert rule.source == rule.source.strip() and rule.source and not rule.source.endswith(".")
    assert rule.title == rule.title.strip() and rule.title


def test_profiles_speak_of_rules_that_exist() -> None:
    for profile in READY.values():
        assert set(profile.severities) <= {*FAMILIES, *RULES}, profile.name


class TestCommand:
    def test_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["rules"]) == 0
        output = capsys.readouterr().out
        assert output.startswith("TFR  framing: the file as a sequence of records\n  TFR001  ")
        assert max(map(len, output.splitlines())) <= 80
        assert re.findall(r"^  ([A-Z]{3}\d{3}) ", output, re.MULTILINE) == list(RULES)

    @pytest.mark.parametrize("name", ["IMG001", "img001"])
    def test_one_rule(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["rules", name]) == 0
        output = " ".join(capsys.readouterr().out.split())
        rule = RULES["IMG001"]
        assert output.startswith(f"IMG001, {rule.severity.value}: {rule.title} Why: {rule.why} ")
        assert f" Fix: {rule.fix} Source: {rule.source} Profiles: off in cvat" in output

    def test_a_family(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["rules", "box"]) == 0
        output = capsys.readouterr().out
        assert re.findall(r"^([A-Z]{3}\d{3}),", output, re.MULTILINE) == [
            code for code in RULES if code.startswith("BOX")
        ]

    @pytest.mark.parametrize(
        ("name", "hint"),
        [("TFR0O1", "did you mean TFR0"), ("?", "tfod rules lists them all")],
    )
    def test_unknown(self, name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["rules", name]) == 2
        output = capsys.readouterr().err
        assert output.startswith(f"tfod: there is no rule or family {name!r}; {hint}")
        assert output.count("\n") == 1

    def test_markdown(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["rules", "--markdown"]) == 0
        assert capsys.readouterr().out.startswith("# The rules of `tfod check`\n")
        assert cli.main(["rules", "TFR003", "--markdown"]) == 0
        output = capsys.readouterr().out
        assert re.findall(r"^## (.*)$", output, re.MULTILINE) == ["TFR003"]

    def test_write(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "docs" / "rules"
        assert cli.main(["rules", "--write", str(folder)]) == 0
        assert {path.name for path in folder.iterdir()} == set(markdown_pages(RULES.values()))
        assert cli.main(["rules", "BOX", "--write", str(folder)]) == 2
        assert "leave out the code" in capsys.readouterr().err


def test_full_texts_fit_eighty_columns() -> None:
    for rule in RULES.values():
        # Only what has no space to break at may be longer.
        long = [line for line in full_text(rule).splitlines() if len(line) > 80]
        assert [line for line in long if " " in line.strip()] == []


def test_changes_of_a_family_reach_its_rules() -> None:
    assert "off in image_label" in dict(changes(RULES["BOX001"]))["Profiles"]
    assert list(changes(RULES["TFR001"])) == []
