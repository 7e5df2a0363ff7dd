"""The report as a page: self-contained, safe, and with the images."""

from __future__ import annotations

import ast
import base64
import io
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tfod.check.findings.finding import Place
from tfod.check.findings.report import Report
from tfod.check.reporters.html.page import render_html
from tfod.check.reporters.html.samples import Sample
from tfod.check.reporters.html.thumbnails import thumbnail
from tfod.check.reporters.wording import page_advice
from tfod.check.rules import registry

from tests.check.reports import (
    HOSTILE,
    found,
    hostile_report,
    make_report,
    some_statistics,
)
from tests.image_kinds import plain_image

pytestmark = pytest.mark.usefixtures("made_up_rules")

NO_BOXES = np.zeros((0, 4), np.float32)
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Elements with their attributes, and the text; fails on elements that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
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


def sample(image: bytes | None = None, boxes: object = NO_BOXES, **fields: object) -> Sample:
    given = {
        "place": Place("a.record", 1, 2, "1.jpg"),
        "codes": ("BOX903",),
        "height": 320,
        "width": 640,
        "classes": ("person",),
        **fields,
    }
    return Sample(image=image, boxes=np.asarray(boxes, np.float32), **given)


def decoded(uri: str) -> Image.Image:
    kind, _, content = uri.partition(";base64,")
    assert kind == "data:image/jpeg"
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_verdict_counts_fixes_and_sources() -> None:
    findings = [found("BOX903", f"box {n} is outside", record=n, offset=9 * n) for n in range(300)]
    text = page(make_report(findings, most=250, statistics=some_statistics())).text
    for words in (
        "300 errors in at least 250 of 1,204 images",
        "What to do next Clip boxes to the image.",
        "a.record, record 3, byte 27",
        "196 more images",
        "and 50 more images, not shown here",
        "error box outside the image Clip boxes to the image. 300 findings",
        "What was checked: 1 file, 1 shard, 1,204 records",
        "Profile cvat : asked for",
        "Rule BOX903 , from an issue",
        "The trainer stops on coordinates above 1.1.",
        "What to do: Clip boxes to the image.",
        "195 more of these",
        "and 100 more in 1 shard, not shown here",
        "автомобиль",
        "1920 × 1080",
        "a.record 1.2 MB " + "ab" * 32,
    ):
        assert words in text, words


def test_a_clean_report_and_an_empty_one() -> None:
    clean = page(make_report(statistics=some_statistics()))
    assert "Valid: 1,204 images, 1 box" in clean.text and "by rule" not in clean.text
    assert "Who takes it, and who does not, is below." in clean.text
    empty = page(make_report(sources=[]))
    assert "There were no records" in empty.text and "No file was read" in empty.text


def test_the_repair_that_is_proposed_is_of_the_file_with_errors() -> None:
    wrong = replace(found("BOX903", "x", shard="b c.zip:a.record", record=1), code="IMG006")
    made = page(make_report([wrong], sources=["a.zip", "b c.zip"]))
    assert "tfod can fix this where it need not guess" in made.text
    assert "tfod repair 'b c.zip' repaired" in made.text


def test_the_page_loads_and_runs_nothing() -> None:
    made = page(hostile_report(), sample(IMAGE, [[0, 0, 1, 1]], codes=("LAB906",)))
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
    places = [Place(text, 1, 2, text) for text in HOSTILE]
    samples = [
        sample(
            b"x",
            [[0, 0, 1, 1]],
            place=place,
            classes=(text,),
            codes=("LAB906",),
        )
        for place, text in zip(places, HOSTILE, strict=True)
    ]
    html = render_html(hostile_report(), samples)
    assert all(character == "\n" or character.isprintable() for character in html)
    text = Page(html).text
    for hostile in (
        HOSTILE[0],
        HOSTILE[1],
        r"\u202egpj.exe",
        "{{ 7 * 7 }}{% raw %}",
        "]]>&amp;<![",
    ):
        assert hostile in text


def test_an_image_is_shown_once_with_all_that_was_found_in_it() -> None:
    findings = [
        found("LAB906", "x", record=1, item="1.jpg"),
        *(found("BOX903", f"box {n} is outside", record=1, item="1.jpg") for n in range(3)),
        found("BOX903", "z", record=2, item="2.jpg"),
        found("SET901", "b.record is missing"),
    ]
    made = page(make_report(findings), sample(IMAGE, codes=("LAB906", "BOX903")))
    assert len(made.all("image")) == 1
    assert (
        "In the files a.record error A shard of the set is missing SET901 b.record is" in made.text
    )
    # The severest first, and each rule once.
    assert (
        "Image by image 1.jpg error Box outside the image BOX903 × 3 box 0 is outside "
        "warning Class differs from the map by case or spaces LAB906 x a.record, record 1"
    ) in made.text
    assert "2.jpg error Box outside the image BOX903 z a.record, record 2" in made.text
    assert made.text.count("1.jpg error") == 1
    targets = {one["href"] for one in made.all("a")}
    assert targets == {"#LAB906", "#BOX903", "#SET901"}
    assert targets <= {f"#{one['id']}" for one in made.all("div") if "id" in one}


def test_an_image_of_each_rule_comes_before_the_second_of_one() -> None:
    codes = ["BOX903"] * 8 + ["SET901"]
    findings = [found(code, "x", record=n, item=f"{n}.jpg") for n, code in enumerate(codes)]
    names = re.findall(r"(\d)\.jpg error", page(make_report(findings)).text)
    assert names == ["0", "8", "1", "2"]  # four are seen at once


def test_damaged_records_are_counted_alike_everywhere() -> None:
    report = make_report([replace(found("BOX903", "x", record=3), code="TFR004")])
    text = page(report).text
    assert "1 error in 1 of 1,205 images" in text
    assert "1 shard, 1,204 of 1,205 records" in text


def test_a_valid_report_shows_images_with_the_classes_on_their_boxes() -> None:
    boxes = [[0.25, 0.25, 0.5, 0.5], [0.5, 0.5, 0.75, 1.0]]
    made = page(make_report(), sample(IMAGE, boxes, codes=(), classes=("a", "b")))
    assert "Some of the images" in made.text and "Image by image" not in made.text
    names = [one for one in made.all("text") if (one.get("class") or "").startswith("tag-text")]
    assert len(names) == 2 and " b a 1.jpg a.record, record 1" in made.text


@pytest.mark.parametrize(("boxes", "names"), [(24, 24), (25, 1)])
def test_of_many_boxes_only_the_offending_ones_have_their_class_on_them(
    boxes: int, names: int
) -> None:
    many = np.tile([0.1, 0.1, 0.2, 0.2], (boxes, 1))
    one = sample(IMAGE, many, offending={3}, classes=("person",) * boxes)
    made = page(make_report([found("BOX903", "x", record=1)]), one)
    tags = [one for one in made.all("text") if "tag-text" in (one.get("class") or "")]
    assert len(tags) == names
    assert [one["class"] for one in tags].count("tag-text bad") == 1


def test_advice_of_the_page_can_be_followed_on_the_page() -> None:
    """Where the command line names an option, the page says what can be done there."""
    sources = Path(registry.__file__).parent.glob("*.py")
    calls = [one.value for path in sources for one in ast.walk(ast.parse(path.read_text()))
             if isinstance(one, ast.keyword) and one.arg == "fix"]  # fmt: skip
    advice = [one.fix for one in registry.all_rules().values()]
    advice += [one.value for one in calls if isinstance(one, ast.Constant)]
    options = re.compile(r"--(?!symlinks)[a-z]")  # which is zip's
    commands = re.compile(r"tfod [^.;]*|Datumaro: [^)]*")  # to be run elsewhere, and so named
    reported = [text for text in advice if options.search(text)]
    assert len(reported) >= 6
    on_page = [commands.sub("", page_advice(text)) for text in reported]
    assert [text for text in on_page if options.search(text)] == []


def test_boxes_are_drawn_over_the_image() -> None:
    boxes = [[0.25, 0.25, 0.5, 0.5], [0.5, 0.5, 0.75, 1.0]]
    made = page(make_report([found("BOX903", "x")]), sample(IMAGE, boxes, offending={1}))
    # The offending one comes last, on top.
    paths = [one["d"] for one in made.all("path") if one.get("class") == "line"]
    assert paths == ["M250.0 125.0H500.0V250.0H250.0Z", "M500.0 250.0H750.0V500.0H500.0Z"]
    assert [one.get("class") for one in made.all("g")] == [None, "bad"]
    assert {"0 0 1000 500"} == {
        one["viewbox"] for one in made.all("svg") if "0 0 1000" in one["viewbox"]
    }
    assert "object 0: person" in made.text


def test_boxes_outside_the_image_are_seen() -> None:
    boxes = [[-0.1, 0.2, 0.5, 0.5], [300, 200, 400, 300], [np.inf, 0, 0.5, 0.5]]
    made = page(make_report([found("BOX903", "x")]), sample(IMAGE, boxes, offending={0, 1}))
    x, y, width, height = map(float, str(made.all("svg")[0]["viewbox"]).split())
    numbers = [
        float(n) for one in made.all("path") for n in re.findall(r"-?\d+\.\d", str(one["d"]))
    ]
    assert x < -100 and y == 0 and x + width > 1250 and y + height > 625
    assert min(numbers) == -100 and max(numbers) == 1250
    # The far one is a point at the corner: it gets a ring.
    assert [(one["cx"], one["cy"]) for one in made.all("circle")] == [("1250.0", "625.0")]


def test_boxes_that_cannot_be_drawn_are_counted() -> None:
    many = np.tile([0.1, 0.1, 0.2, 0.2], (230, 1))
    many[0, 0] = np.nan
    made = page(make_report([found("BOX903", "x")]), sample(IMAGE, many, offending={229}))
    assert len(made.all("g")) == 200 and "30 boxes not drawn" in made.text
    assert made.all("g")[-1] == {"class": "bad"}


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("JPEG", "RGB"),
        ("JPEG", "L"),
        ("JPEG", "CMYK"),
        ("PNG", "RGBA"),
        ("PNG", "LA"),
        ("PNG", "P"),
        ("PNG", "I;16"),
        ("PNG", "1"),
        ("GIF", "P"),
        ("BMP", "RGB"),
        ("WEBP", "RGB"),
        ("TIFF", "F"),
    ],
)
def test_images_of_any_kind_become_small_jpegs(kind: str, mode: str) -> None:
    uri, aspect = thumbnail(sample(plain_image((1000, 500), 0, kind, mode)))
    assert aspect == 2 and decoded(uri).size == (480, 240)


def test_sixteen_bits_are_not_all_white() -> None:
    file = io.BytesIO()
    Image.fromarray(np.tile(np.arange(0, 60000, 600, dtype=np.uint16), (50, 1))).save(file, "PNG")
    pixels = np.asarray(decoded(thumbnail(sample(file.getvalue()))[0]).convert("L"))
    assert pixels.min() < 20 and pixels.max() > 230 and 100 < pixels.mean() < 155


def test_a_small_image_stays_small_and_a_tall_one_fits() -> None:
    assert decoded(thumbnail(sample(plain_image((20, 10), 0)))[0]).size == (20, 10)
    tall, aspect = thumbnail(sample(plain_image((10, 4000), 0, "PNG")))
    assert decoded(tall).size[1] == 480 and aspect == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    "image",
    [
        None,
        b"",
        b"not an image",
        IMAGE[:200],
        plain_image((640, 320), 0, "PNG")[:-30],
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
    ],
    ids=["none", "empty", "garbage", "cut JPEG", "cut PNG", "PostScript"],
)
def test_what_does_not_decode_is_a_placeholder_of_the_same_shape(image: bytes | None) -> None:
    uri, aspect = thumbnail(sample(image))
    assert uri.startswith("data:image/svg+xml;base64,") and aspect == 2
    made = page(make_report([found("BOX903", "x")]), sample(image, [[0, 0, 1, 1]]))
    assert len(made.all("g")) == 1


@pytest.mark.parametrize("size", [(0, 0), (-5, 10), (1, 2**62)])
def test_absurd_sizes_of_records(size: tuple[int, int]) -> None:
    assert 1 / 6 <= thumbnail(sample(None, height=size[0], width=size[1]))[1] <= 6


def test_a_decompression_bomb_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    image = plain_image((300, 300), 0, "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 300 - 1)
    assert thumbnail(sample(image))[0].startswith("data:image/svg+xml")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 300)
    assert thumbnail(sample(image))[0].startswith("data:image/jpeg")


@pytest.mark.parametrize(
    ("absent", "output"), [("jinja2", "the HTML report needs jinja2"), ("PIL", "need Pillow")]
)
def test_without_the_extra_it_is_said_in_a_line(absent: str, output: str) -> None:
    """A fresh process, in which a module cannot be imported."""
    code = f"""
import sys
sys.modules[{absent!r}] = None
import numpy as np
from tests.check.reports import found, make_report
from tfod.errors import TfodError
from tfod.check.findings.finding import Place
from tfod.check.reporters.html.page import render_html
from tfod.check.reporters.text import render_text
from tfod.check.reporters.html.samples import Sample
report = make_report([found("BOX903", "x")])
render_text(report, color=False)
one = Sample(Place(), ("BOX903",), b"x", 1, 1, np.zeros((0, 4)), ())
try:
    render_html(report, [one])
except TfodError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    advice = "; pip install '.[validator]' in a clone of tfod\n"
    assert output in run.stdout and run.stdout.endswith(advice)
    assert run.stdout.count("\n") == 1


def test_thousands_of_files_do_not_make_a_page_of_files() -> None:
    made = page(make_report(sources=[f"{number}.record" for number in range(3000)]))
    assert "0.record and 2,999 more files" in made.text
    assert "990 more files" in made.text and "and 2,000 more files, not shown here" in made.text
