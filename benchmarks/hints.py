"""Precision and recall of the hints, beside peers, on sets made with a known share of defects.

    python benchmarks/hints.py [--peers FOLDER]

The sets are made of the images of ``tests/corpus``. Peers get an environment of their own in
FOLDER, which is made if it is not there. A hint on an image without a made defect counts as wrong,
also where the image, being real, has that defect by itself. Prints two tables in Markdown.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import tfod
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

_CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
_REAL = ("anki-overdrive-cars", "blood-cells", "drawn-rectangles", "hyphal-tips")
_OF_ONE_SIZE = ("anki-overdrive-cars", "blood-cells")
_EACH = 30
_CLEANVISION = """
import json, sys
from cleanvision import Imagelab
lab = Imagelab(data_path=sys.argv[1])
lab.find_issues(n_jobs=1, verbose=False)
names = [path.rpartition("/")[2] for path in lab.issues.index]
flags = {c[3:-6]: [n for n, on in zip(names, lab.issues[c]) if on]
         for c in lab.issues.columns if c.startswith("is_")}
sets = lab.info["near_duplicates"]["sets"] + lab.info["exact_duplicates"]["sets"]
sets = [[path.rpartition("/")[2] for path in one] for one in sets]
json.dump({"flags": flags, "sets": sets}, open(sys.argv[2], "w"))
"""
Change: TypeAlias = "Callable[[Image.Image], Image.Image]"


def _blurred(share: float) -> Change:
    return lambda image: image.filter(ImageFilter.GaussianBlur(share * max(image.size)))


def _cropped(share: float) -> Change:
    def crop(image: Image.Image) -> Image.Image:
        x, y = image.width * share / 2, image.height * share / 2
        return image.crop((round(x), round(y), round(image.width - x), round(image.height - y)))

    return crop


def _scaled(width: float, height: float) -> Change:
    return lambda image: image.resize(
        (max(round(image.width * width), 1), max(round(image.height * height), 1))
    )


def _leveled(factor: float, offset: float = 0) -> Change:
    return lambda image: image.point(lambda value: value * factor + offset)


def _bright(factor: float) -> Change:
    return lambda image: ImageEnhance.Brightness(image).enhance(factor)


def _halves(image: Image.Image) -> Image.Image:
    half = Image.new("RGB", image.size, (40, 90, 60))
    half.paste((180, 60, 40), (0, 0, image.width // 2, image.height))
    return half


COPIES: dict[str, tuple[Change, int]] = {
    "JPEG, quality 90": (lambda image: image, 90),
    "JPEG, quality 60": (lambda image: image, 60),
    "JPEG, quality 30": (lambda image: image, 30),
    "half the size": (_scaled(0.5, 0.5), 90),
    "another ratio": (_scaled(1, 0.75), 90),
    "2 % cropped": (_cropped(0.02), 90),
    "5 % cropped": (_cropped(0.05), 90),
    "10 % cropped": (_cropped(0.1), 90),
    "mirrored": (ImageOps.mirror, 90),
    "brighter by 30 %": (_bright(1.3), 90),
    "darker by 30 %": (_bright(0.7), 90),
}
"""What is done to a copy, and the quality that it is saved with."""
DEFECTS: dict[str, tuple[str, str, Change]] = {
    "dark": ("DAT051", "dark", _leveled(0.25)),
    "bright": ("DAT052", "light", _leveled(0.04, 245)),
    "blurred, 1 % of the side": ("DAT053", "blurry", _blurred(0.01)),
    "blurred, 2 % of the side": ("DAT053", "blurry", _blurred(0.02)),
    "one colour": (
        "DAT054",
        "low_information",
        lambda image: Image.new("RGB", image.size, image.getpixel((0, 0))),
    ),
    "two colours": ("DAT055", "low_information", _halves),
}
"""The rule, CleanVision's issue, and what is done to an image."""
SIZES: dict[str, tuple[str, str, Change]] = {
    "a sixth of the size": ("DAT056", "odd_size", _scaled(1 / 6, 1 / 6)),
    "eight times as wide as high": ("DAT057", "odd_aspect_ratio", _scaled(2, 1 / 3)),
}


@dataclass
class MadeSet:
    """Images by name and subset, and which of them have which defect.

    Attributes:
        images: encoded, by subset and name.
        defects: names of images, by defect.
        originals: of copies, by their name.
    """

    images: dict[str, dict[str, bytes]] = field(default_factory=dict)
    defects: dict[str, set[str]] = field(default_factory=dict)
    originals: dict[str, str] = field(default_factory=dict)

    def add(self, subset: str, name: str, image: bytes) -> None:
        self.images.setdefault(subset, {})[name] = image

    @property
    def count(self) -> int:
        return sum(map(len, self.images.values()))


@dataclass(frozen=True)
class Found:
    """What a tool says: images by rule or issue, pairs of copies, and the seconds that it took."""

    flags: Mapping[str, set[str]]
    pairs: set[frozenset[str]]
    seconds: float


def real_images(folders: Sequence[str] = _REAL) -> Iterator[tuple[str, bytes]]:
    """All images of these folders of the corpus, with a name for each."""
    for folder in folders:
        for shard in sorted((_CORPUS / folder).glob("*record")):
            for number, one in enumerate(tfod.read_detections(shard)):
                yield f"{folder}-{shard.stem}-{number:03d}.jpg", bytes(one.encoded)


def changed(image: bytes, change: Change, quality: int = 90) -> bytes:
    """An image after a change, as JPEG."""
    stream = io.BytesIO()
    change(Image.open(io.BytesIO(image)).convert("RGB")).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def copies() -> MadeSet:
    """All real images for training, and changed copies of some for validation."""
    made, real = MadeSet(), dict(real_images())
    for name, image in real.items():
        made.add("train", name, image)
    chance = random.Random(1)
    for number, (kind, (change, quality)) in enumerate(COPIES.items()):
        for name in chance.sample(sorted(real), _EACH):
            copy = f"copy-{number}-{name}"
            made.add("val", copy, changed(real[name], change, quality))
            made.originals[copy] = name
            made.defects.setdefault(kind, set()).add(copy)
    return made


def defective(
    defects: Mapping[str, tuple[str, str, Change]], folders: Sequence[str], each: int
) -> MadeSet:
    """Real images, of which so many have each defect."""
    made, real = MadeSet(), dict(real_images(folders))
    names = sorted(real)
    random.Random(2).shuffle(names)
    for defect, (_, _, change) in defects.items():
        chosen, names = names[:each], names[each:]
        made.defects[defect] = set(chosen)
        for name in chosen:
            made.add("train", name, changed(real[name], change))
    for name in names:
        made.add("train", name, real[name])
    return made


def ask_tfod(made: MadeSet, folder: Path) -> Found:
    """Check shards of the images with hints."""
    for subset, images in made.images.items():
        payloads = (tfod.encode_detection(_detection(*one)) for one in images.items())
        tfod.write_records(folder / "shards", subset, payloads)
    began = time.perf_counter()
    check = [sys.executable, "-m", "tfod", "check", "--hints", "--decode", "all", "--jobs", "1"]
    check += ["--max-findings", "100000", "--format", "json", str(folder / "shards")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    report = json.loads(done.stdout)
    by_record = {
        (f"{subset}.tfrecord", number): name
        for subset, images in made.images.items()
        for number, name in enumerate(images)
    }
    flags: dict[str, set[str]] = {}
    pairs = set()
    for one in report["findings"]:
        flags.setdefault(one["code"], set()).add(one["item"])
        if one["code"] in ("DAT058", "DAT059"):
            _, _, first = one["message"].partition("record ")
            number, _, shard = first.partition(" of ")
            shard = os.path.basename(shard.partition(" (")[0])
            pairs.add(frozenset((one["item"], by_record[shard, int(number)])))
    return Found(flags, pairs, seconds)


def _detection(name: str, image: bytes) -> tfod.Detection:
    width, height = Image.open(io.BytesIO(image)).size
    return tfod.Detection(
        filename=name, source_id=name, format="jpeg", height=height, width=width, encoded=image
    )


def ask_cleanvision(made: MadeSet, folder: Path, python: Path) -> Found:
    """Let CleanVision look at files of the images."""
    (folder / "files").mkdir(parents=True)
    for images in made.images.values():
        for name, image in images.items():
            (folder / "files" / name).write_bytes(image)
    began = time.perf_counter()
    command = [python, "-c", _CLEANVISION, folder / "files", folder / "found.json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    found = json.loads((folder / "found.json").read_text())
    pairs = {frozenset((one, other)) for some in found["sets"] for one in some for other in some}
    flags = {issue: set(names) for issue, names in found["flags"].items()}
    return Found(flags, {pair for pair in pairs if len(pair) == 2}, seconds)


def peers_python(folder: Path) -> Path:
    """The Python of the peers' environment, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "cleanvision"], check=True)
    return python


def _of(right: int, total: int) -> str:
    return f"{right / total:.2f}" if total else "–"


def copies_table(made: MadeSet, tools: Mapping[str, Found]) -> Iterator[str]:
    """Recall by kind of copy, and precision of all pairs.

    A pair of two copies of an image is right, too.
    """
    yield "| copies in another subset | " + " | ".join(f"{name}: recall" for name in tools) + " |"
    yield "|---|" + "---:|" * len(tools)
    right = {
        name: {pair for pair in one.pairs if len({made.originals.get(x, x) for x in pair}) == 1}
        for name, one in tools.items()
    }
    having = {name: set().union(*pairs) for name, pairs in right.items()}
    for kind, names in made.defects.items():
        cells = (_of(len(names & having[tool]), len(names)) for tool in tools)
        yield f"| {kind} | " + " | ".join(cells) + " |"
    cells = (f"{_of(len(right[name]), len(one.pairs))} ({len(one.pairs)} pairs)"
             for name, one in tools.items())  # fmt: skip
    yield "| **precision of all** | " + " | ".join(cells) + " |"


def defects_rows(
    made: MadeSet, defects: Mapping[str, tuple[str, str, Change]], tools: Mapping[str, Found]
) -> Iterator[str]:
    """Precision and recall of each defect; defects of one rule share its precision."""
    for defect, (code, issue, _) in defects.items():
        cells = []
        for tool, found in tools.items():
            mark = code if tool == "tfod" else issue
            said = found.flags.get(mark, set())
            alike = [name for name, one in defects.items() if mark in one[:2]]
            meant = set().union(*(made.defects[name] for name in alike))
            names = made.defects[defect]
            cells += [_of(len(said & meant), len(said)), _of(len(said & names), len(names))]
        yield f"| {defect} | `{code}` | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", type=Path, default=Path("/tmp/tfod-peers"), metavar="FOLDER")
    python = peers_python(parser.parse_args().peers)
    seconds: dict[str, float] = {}
    images = 0

    def ask(made: MadeSet) -> dict[str, Found]:
        nonlocal images
        images += made.count
        with tempfile.TemporaryDirectory() as folder:
            found = {
                "tfod": ask_tfod(made, Path(folder)),
                "CleanVision": ask_cleanvision(made, Path(folder), python),
            }
        for name, one in found.items():
            seconds[name] = seconds.get(name, 0) + one.seconds
        return found

    made = copies()
    print("\n".join(copies_table(made, ask(made))), end="\n\n")
    print("| defect | rule | tfod: precision | recall | CleanVision: precision | recall |")
    print("|---|---|---:|---:|---:|---:|")
    for defects, folders, each in ((DEFECTS, _REAL, _EACH), (SIZES, _OF_ONE_SIZE, 10)):
        made = defective(defects, folders, each)
        print("\n".join(defects_rows(made, defects, ask(made))))
    times = ", ".join(f"{name} {took:.1f} s" for name, took in seconds.items())
    print(f"\n{images:,} images, one process each, with its start: {times}")


if __name__ == "__main__":
    main()
