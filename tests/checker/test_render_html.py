"""The report as a page: self-contained, safe, and with images."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from tfod.checker.report import Report
from tfod.checker.reporters.drawing import choose_class_colour
from tfod.checker.reporters.html import render_html
from tfod.checker.reporters.samples import Sample

from tests.checker.reports import HOSTILE, found, hostile_report, make_report, sample, some_figures
from tests.commands import run_python
from tests.image_kinds import plain_image

pytestmark = pytest.mark.usefixtures("made_up_rules")

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Elements with their attributes, and the text; each element must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.html = html
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(report: Report, *samples: Sample) -> Page:
    return Page(render_html(report, samples))


IMAGE = plain_image((640, 320), 0)


def test_verdict_counts_fixes_and_sources() -> None:
    findings = [found("BOX903", f"box {n} is outside", record=n, offset=9 * n) for n in range(300)]
    text = page(make_report(findings, most=250, figures=some_figures())).text
    for words in (
        "300 errors in at least 250 of 1,204 images",
        "What to do next Box outside the image . Clip boxes to the image.",
        "error box outside the image Clip boxes to the image. 300 findings",
        "a.record 3 27 box 3 is outside",
        "Input: 1 file, 1 shard, 1,204 records",
        "Profile cvat : requested",
        "About the rule BOX903 Source: an issue",
        "The trainer stops on coordinates above 1.1.",
        "Fix: Clip boxes to the image.",
        "245 more findings",
        "and 50 more findings, not shown here",
        "автомобиль",
        "1920 × 1080",
        "a.record 1.2 MB",
    ):
        assert words in text, words


def test_other_verdicts() -> None:
    clean = page(make_report(figures=some_figures())).text
    assert "Valid: 1,204 images (1,000 decoded), 1 box" in clean and "by rule" not in clean
    empty = page(make_report(sources=[])).text
    assert "no records were read" in empty and "No file was read" in empty
    damaged = make_report([found("BOX903", "x", record=3)._replace(code="TFR004")])
    assert "1 error in 1 of 1,205 images" in page(damaged).text
    many = page(make_report(sources=[f"{number}.record" for number in range(3000)])).text
    assert "0.record and 2,999 more files" in many
    assert "490 more files" in many and "and 2,500 more files, not shown here" in many


def test_the_page_loads_and_runs_nothing() -> None:
    made = page(hostile_report(), sample(IMAGE, [[0, 0, 1, 1]]))
    policies = [one["content"] for one in made.all("meta") if "http-equiv" in one]
    assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    tags = {name for name, _ in made.elements}
    assert not tags & {"script", "iframe", "object", "embed", "form", "base", "audio", "video"}
    assert {"viewport", "color-scheme"} <= {one.get("name") for one in made.all("meta")}
    for _, attributes in made.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert "url(" not in render_html(hostile_report())


def test_everything_from_the_shard_is_text() -> None:
    fields = ({"shard": text, "item": text, "classes": (text,)} for text in HOSTILE)
    html = render_html(hostile_report(), [sample(b"x", [[0, 0, 1, 1]], **one) for one in fields])
    assert all(character == "\n" or character.isprintable() for character in html)
    text = Page(html).text
    for hostile in (*HOSTILE[:2], r"\u202egpj.exe", HOSTILE[6], "]]>&amp;<!["):
        assert hostile in text


def test_an_image_is_shown_with_its_findings() -> None:
    findings = [
        found("LAB906", "x", record=1, item="1.jpg"),
        *(found("BOX903", f"box {n} is outside", record=1, item="1.jpg") for n in range(3)),
        found("SET901", "b.record is missing"),
    ]
    made = page(make_report(findings), sample(IMAGE))
    assert len(made.all("image")) == 1
    # The most severe first, and each rule once.
    assert (
        "1.jpg error Box outside the image BOX903 × 3 box 0 is outside "
        "warning Class differs from the map by case or spaces LAB906 x record 1"
    ) in made.text
    targets = {str(one["href"]) for one in made.all("a")}
    assert targets == {"#LAB906", "#BOX903", "#SET901", "#image-1", "#enlarged-1"}
    assert targets <= {f"#{attributes.get('id')}" for _, attributes in made.elements}


def test_findings_link_to_the_cards_of_their_images() -> None:
    findings = [found("BOX903", "x", record=n, item=f"{n}.jpg") for n in range(3)]
    findings.append(found("LAB906", "x", record=1))  # the image has no name
    made = page(make_report(findings), sample(IMAGE), sample(IMAGE, record=2, item="2.jpg"))
    table = made.html[made.html.index("Findings by rule") :]
    links = re.findall(r'href="#image-(\d)"><bdi>(.+?)</bdi>', table)
    assert links == [("1", "1.jpg"), ("2", "2.jpg"), ("1", "1")] and "<bdi>0.jpg</bdi>" in table


def test_each_cause_names_its_images() -> None:
    findings = [
        *(found("BOX903", "x", record=n, item=f"{n}.jpg") for n in range(3)),
        found("SET901", "b.record is missing"),
        found("LAB906", "a warning", record=2, item="2.jpg"),
    ]
    made = page(make_report(findings), *(sample(IMAGE, record=n, item=f"{n}.jpg") for n in (1, 2)))
    steps = made.html[made.html.index("What to do next") : made.html.index("Images with")]
    assert re.findall(r'href="#(.+?)"', steps) == ["BOX903", "image-1", "image-2", "SET901"]
    report = make_report([found("BOX903", "x", fix="Clip it: tfod repair a b")])
    assert "<code>tfod repair a b</code>" in render_html(report)
    on_page = render_html(report, buttons={"BOX903": ["Clip", "Drop"]})
    assert "tfod repair" not in on_page and "Or use “Clip” or “Drop” above." in on_page
    assert "Or use" not in render_html(report, buttons={})


def test_classes_have_the_colour_of_their_boxes_in_the_statistics() -> None:
    made = page(make_report(figures=some_figures()), sample(IMAGE, [[0, 0, 1, 1]]))
    colour = choose_class_colour("person")
    assert colour in {one.get("fill") for one in made.all("rect")}
    assert colour in {one.get("stroke") for one in made.all("path")}


def test_four_images_are_seen_at_once_the_severest_first() -> None:
    codes = ["LAB906"] * 8 + ["SET901"]
    findings = [found(code, "x", record=n, item=f"{n}.jpg") for n, code in enumerate(codes)]
    samples = [sample(IMAGE, record=n, item=f"{n}.jpg") for n in range(9)]
    text = page(make_report(findings), *samples).text
    assert re.findall(r"(\d)\.jpg (?:error|warning)", text) == list("801234567")
    assert text.index("5 more images") < text.index("3.jpg warning")


def test_a_valid_report_shows_images_with_the_classes_on_their_boxes() -> None:
    boxes = [[0.25, 0.25, 0.5, 0.5], [0.5, 0.5, 0.75, 1.0]]
    made = page(make_report(), sample(IMAGE, boxes, classes=("a", "b")))
    assert "Some of the images" in made.text and "Images with findings" not in made.text
    names = [one for one in made.all("text") if (one.get("class") or "").startswith("tag-text")]
    assert len(names) == 2 and " b a 1.jpg record 1" in made.text


@pytest.mark.parametrize(
    ("absent", "message"),
    [("jinja2", "the HTML report needs jinja2"), ("PIL", "decoding images needs Pillow")],
)
def test_without_the_extra(absent: str, message: str) -> None:
    """A new process, in which a module cannot be imported."""
    code = f"""
import sys
sys.modules[{absent!r}] = None
from tests.checker.reports import found, make_report, sample
from tfod.errors import TfodError
from tfod.checker.reporters.html import render_html
from tfod.checker.reporters.text import render_text
report = make_report([found("BOX903", "x")._replace(code="BOX003")])
render_text(report, color=False)
try:
    render_html(report, [sample(b"x")])
except TfodError as error:
    print(error)
"""
    out = run_python("-c", code).out
    assert message in out and "pip install '.[validator]'" in out and out.count("\n") == 1
