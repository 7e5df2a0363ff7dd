"""Convert a dataset to TFRecord shards and back, show that nothing changed, and break a shard.

The demo runs the command lines of Datumaro and tfod. It reads the source and the shards with
Datumaro, and compares images, subsets, boxes, classes and attributes. Then it changes a copy of
the shards, and runs ``tfod check`` on it. It needs Datumaro 1.13 and tfod:

    pip install '.[datumaro]' in a clone of tfod
    python examples/demo.py [--work demo_output]

Exit code: 0 if nothing changed, 1 if something did, 2 if the demo could not run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from datumaro.components.annotation import AnnotationType
from datumaro.components.dataset import Dataset
from tfod.errors import how_to_install

SOURCE = Path(__file__).resolve().with_name("shapes_voc")
SOURCE_FORMAT = "voc"
SHARD_FORMAT = "tf_detection_api"
TOLERANCE = 0.01
"""The tolerance of box sides in pixels, since shards store normalized float32 values."""
MARK = ".made-by-tfod-demo"
"""A file that marks the folder of the demo, which the demo may empty."""
COLUMNS = 80


@dataclass(frozen=True)
class Box:
    """A box with its class, ``x, y, width, height`` in pixels, and its attributes."""

    label: str
    xywh: tuple[float, ...]
    attributes: Mapping[str, object]

    def shift(self, other: Box) -> float:
        """Return the largest distance between corresponding sides of two boxes in pixels."""
        pairs = zip(self.sides, other.sides, strict=True)
        return max(abs(side - other_side) for side, other_side in pairs)

    @property
    def sides(self) -> tuple[float, ...]:
        """``xmin, ymin, xmax, ymax``."""
        x, y, width, height = self.xywh
        return x, y, x + width, y + height


@dataclass(frozen=True)
class Image:
    """An image: its subset, the SHA-256 of its file, its boxes and its attributes."""

    subset: str
    sha256: str
    boxes: Sequence[Box]
    attributes: Mapping[str, object]


@dataclass(frozen=True)
class Contents:
    """The contents of a dataset that the demo compares, with images by id."""

    classes: Sequence[str]
    images: Mapping[str, Image]

    @property
    def boxes(self) -> list[Box]:
        """The boxes of all images."""
        return [box for image in self.images.values() for box in image.boxes]


class DemoError(Exception):
    """The demo cannot continue."""


def run(*command: str | Path, exit_code: int = 0) -> None:
    """Print and run a command of the current Python environment.

    Raises:
        DemoError: the program does not exist, or its exit code is not the expected one.
    """
    name, *arguments = (_short(part) for part in command)
    print(f"$ {_wrapped([name, *arguments])}", flush=True)
    program = shutil.which(name, path=str(Path(sys.executable).parent))
    if program is None:
        raise DemoError(f"no {name} next to {sys.executable}; {how_to_install('datumaro')}")
    code = subprocess.run([program, *arguments], check=False).returncode
    if code != exit_code:
        raise DemoError(f"{name} ended with exit code {code} instead of {exit_code}")


def _short(part: str | Path) -> str:
    if isinstance(part, Path) and part.is_absolute() and part.is_relative_to(Path.cwd()):
        part = part.relative_to(Path.cwd())
    return str(part)


def _wrapped(words: Sequence[str]) -> str:
    """Quote words for a shell and break long lines between them."""
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and len(lines[-1]) + len(word) > COLUMNS - 6:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def prepare(work: Path) -> Path:
    """Create the work folder, delete earlier results, and return the folder for shards.

    Raises:
        DemoError: the folder is not empty and does not belong to the demo.
    """
    mark = work / MARK
    if work.exists() and not mark.is_file() and (not work.is_dir() or any(work.iterdir())):
        raise DemoError(f"{work} is not empty; choose another folder with --work")
    work.mkdir(parents=True, exist_ok=True)
    mark.touch()
    for name in ("tfrecord", "broken"):
        shutil.rmtree(work / name, ignore_errors=True)
    return work / "tfrecord"


def break_a_copy(shards: Path, broken: Path) -> None:
    """Copy the shards, and change a byte of an image."""
    shutil.copytree(shards, broken)
    shard = broken / "train.tfrecord"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0xFF
    shard.write_bytes(data)


def read(folder: Path, dataset_format: str) -> Contents:
    """Read a dataset with Datumaro."""
    dataset = Dataset.import_from(str(folder), dataset_format)
    classes = [label.name for label in dataset.categories()[AnnotationType.label]]
    images = {}
    for item in dataset:
        boxes = [
            Box(classes[shape.label], tuple(shape.get_bbox()), dict(shape.attributes))
            for shape in item.annotations
            if shape.type == AnnotationType.bbox
        ]
        sha256 = hashlib.sha256(item.media.bytes).hexdigest()
        images[item.id] = Image(item.subset, sha256, boxes, dict(item.attributes))
    return Contents(classes, images)


def changes(before: Contents, after: Contents) -> Iterator[str]:
    """Yield a line for each difference."""
    if before.classes != after.classes:
        yield f"classes: {', '.join(before.classes)} became {', '.join(after.classes)}"
    for name in sorted(before.images.keys() | after.images.keys()):
        old, new = before.images.get(name), after.images.get(name)
        if old is None or new is None:
            yield f"{name}: {'lost' if old else 'was not in the source'}"
        else:
            yield from (f"{name}: {change}" for change in _image_changes(old, new))


def _image_changes(old: Image, new: Image) -> Iterator[str]:
    if old.subset != new.subset:
        yield f"moved from {old.subset} to {new.subset}"
    if old.sha256 != new.sha256:
        yield "the image's bytes differ"
    kept = {name: new.attributes[name] for name in old.attributes if name in new.attributes}
    if _typed(old.attributes) != _typed(kept):
        yield f"attributes {old.attributes} became {kept}"
    if len(old.boxes) != len(new.boxes):
        yield f"{len(old.boxes)} boxes became {len(new.boxes)}"
        return
    for number, (before, after) in enumerate(zip(old.boxes, new.boxes, strict=True), 1):
        if before.label != after.label:
            yield f"box {number}: {before.label} became {after.label}"
        if before.shift(after) > TOLERANCE:
            yield f"box {number}: moved by {before.shift(after):.3f} px"
        if _typed(before.attributes) != _typed(after.attributes):
            yield f"box {number}: {before.attributes} became {after.attributes}"


def _typed(attributes: Mapping[str, object]) -> dict[str, str]:
    """Return the values as text, so that True and 1 differ."""
    return {name: repr(value) for name, value in attributes.items()}


def table(before: Contents, after: Contents) -> Iterator[str]:
    """Yield the lines of a table with numbers of both datasets."""

    def row(title: str, old: object, new: object) -> str:
        return f"{title:<26}{old!s:>14}{new!s:>22}"

    yield row("", "source", "after the round trip")
    yield row("images", len(before.images), len(after.images))
    both = [
        (before.images[name], after.images[name])
        for name in before.images.keys() & after.images.keys()
    ]
    identical = sum(old.sha256 == new.sha256 for old, new in both)
    yield row("  with the same bytes", "", f"{identical} of {len(before.images)}")
    yield row("boxes", len(before.boxes), len(after.boxes))
    pairs = [pair for old, new in both for pair in zip(old.boxes, new.boxes, strict=False)]
    shift = max((old.shift(new) for old, new in pairs), default=0.0)
    yield row("  largest shift of a side", "", f"{shift:.4f} px")
    counts = (sum(len(box.attributes) for box in side.boxes) for side in (before, after))
    yield row("  attributes", *counts)
    yield row("classes", len(before.classes), len(after.classes))


def demo(work: Path) -> bool:
    """Run the demo, and return whether nothing changed."""
    shards = prepare(work)
    run(
        *("datum", "--loglevel", "warning", "export", "-f", SHARD_FORMAT),
        # Datumaro 1.13 recognizes such a folder as voc, voc_classification and voc_detection.
        *("-p", SOURCE, "-o", shards, "--", "--save-images"),
    )
    print()
    run("tfod", "check", shards)
    before, after = read(SOURCE, SOURCE_FORMAT), read(shards, SHARD_FORMAT)
    print("", *table(before, after), sep="\n")
    differences = list(changes(before, after))
    print(*(differences or ["Datumaro reads the same from both: nothing changed."]), sep="\n")
    broken = work / "broken"
    break_a_copy(shards, broken)
    print(f"In {_short(broken)}{os.sep}, a byte of a copy was changed:")
    run("tfod", "check", broken, "--quiet", exit_code=1)
    return not differences


def main() -> int:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    default = Path("demo_output")
    parser.add_argument("--work", type=Path, default=default, help="folder (default: %(default)s)")
    try:
        return 0 if demo(parser.parse_args().work.absolute()) else 1
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
