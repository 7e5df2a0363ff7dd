"""Take a data set to TFRecord shards and back, show that nothing changed, then break a shard.

Runs Datumaro's own command line and tfod's, as one would type them, then reads the source and the
shards with Datumaro and compares images, subsets, boxes, classes and attributes. Then a few
bytes of a copy of the shards are changed, and ``tfod check`` says what is wrong with it. Needs
Datumaro 1.13 and tfod in the environment of the Python that runs it:

    pip install '.[datumaro]' in a clone of tfod
    python examples/demo.py [--work demo_output]

Exit code: 0 nothing changed, 1 something did, 2 the demo could not run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
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
"""How far a side of a box may move, in pixels: shards hold float32 fractions of the image."""
MARK = ".made-by-tfod-demo"
"""Lies in a work folder that the demo made, and may therefore empty."""
COLUMNS = 80


@dataclass(frozen=True)
class Box:
    """A box: its class, ``x, y, width, height`` in pixels, and its attributes."""

    label: str
    xywh: tuple[float, ...]
    attributes: Mapping[str, object]

    def shift(self, other: Box) -> float:
        """How far the side that moved most lies from the other box's, in pixels."""
        pairs = zip(self.sides, other.sides, strict=True)
        return max(abs(mine - theirs) for mine, theirs in pairs)

    @property
    def sides(self) -> tuple[float, ...]:
        """``xmin, ymin, xmax, ymax``."""
        x, y, width, height = self.xywh
        return x, y, x + width, y + height


@dataclass(frozen=True)
class Image:
    """An image: its subset, the SHA-256 of its file, its boxes and its own attributes."""

    subset: str
    sha256: str
    boxes: Sequence[Box]
    attributes: Mapping[str, object]


@dataclass(frozen=True)
class Contents:
    """What a data set holds, as far as the demo compares it; images by their id."""

    classes: Sequence[str]
    images: Mapping[str, Image]

    @property
    def boxes(self) -> list[Box]:
        """All boxes of all images."""
        return [box for image in self.images.values() for box in image.boxes]


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


def run(*command: str | Path, exit_code: int = 0) -> None:
    """Print a command as one types it and run it; programs are those beside this Python.

    Raises:
        DemoError: there is no such program, or it ended with another exit code.
    """
    name, *arguments = (_short(part) for part in command)
    print(f"$ {_wrapped([name, *arguments])}", flush=True)
    program = shutil.which(name, path=str(Path(sys.executable).parent))
    if program is None:
        raise DemoError(f"no {name} beside {sys.executable}; {how_to_install('datumaro')}")
    code = subprocess.run([program, *arguments], check=False).returncode
    if code != exit_code:
        raise DemoError(f"{name} ended with exit code {code} instead of {exit_code}")
    print(flush=True)


def _short(part: str | Path) -> str:
    """Name a path from the current folder where it lies inside."""
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
    """Make the work folder, without what an earlier run made; return the shards' folder.

    Raises:
        DemoError: the folder holds something and is not the demo's own.
    """
    mark = work / MARK
    if work.exists() and not mark.is_file() and (not work.is_dir() or any(work.iterdir())):
        raise DemoError(f"{work} is not the demo's own; empty it or choose another with --work")
    work.mkdir(parents=True, exist_ok=True)
    mark.touch()
    for name in ("tfrecord", "broken"):
        shutil.rmtree(work / name, ignore_errors=True)
    return work / "tfrecord"


def break_a_copy(shards: Path, broken: Path) -> None:
    """Copy the shards, rename a class of the label map, and change a byte inside of an image."""
    shutil.copytree(shards, broken)
    label_map = broken / "label_map.pbtxt"
    text = label_map.read_text(encoding="utf-8")
    label_map.write_text(text.replace("circle", "cercle"), encoding="utf-8")
    shard = broken / "train.tfrecord"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0xFF
    shard.write_bytes(data)


def read(folder: Path, dataset_format: str) -> Contents:
    """Read a data set with Datumaro."""
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
    """Everything that was lost or is different, one line each."""
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
    for number, (was, now) in enumerate(zip(old.boxes, new.boxes, strict=True), 1):
        if was.label != now.label:
            yield f"box {number}: {was.label} became {now.label}"
        if was.shift(now) > TOLERANCE:
            yield f"box {number}: moved by {was.shift(now):.3f} px"
        if _typed(was.attributes) != _typed(now.attributes):
            yield f"box {number}: {was.attributes} became {now.attributes}"


def _typed(attributes: Mapping[str, object]) -> dict[str, str]:
    """Attributes such that True and 1 differ."""
    return {name: repr(value) for name, value in attributes.items()}


def table(before: Contents, after: Contents) -> Iterator[str]:
    """Both sides in numbers, one row a line."""

    def row(title: str, old: object, new: object) -> str:
        return f"{title:<26}{old!s:>14}{new!s:>22}"

    yield row("", "source", "after the round trip")
    yield row("images", len(before.images), len(after.images))
    subsets = [Counter(p.subset for p in side.images.values()) for side in (before, after)]
    for subset in sorted(subsets[0] | subsets[1]):
        yield row(f"  in {subset}", *(counts[subset] for counts in subsets))
    both = [
        (before.images[name], after.images[name])
        for name in before.images.keys() & after.images.keys()
    ]
    identical = sum(old.sha256 == new.sha256 for old, new in both)
    yield row("  with the same bytes", "", f"{identical} of {len(before.images)}")
    yield row("boxes", len(before.boxes), len(after.boxes))
    pairs = [pair for old, new in both for pair in zip(old.boxes, new.boxes, strict=False)]
    farthest = max((was.shift(now) for was, now in pairs), default=0.0)
    yield row("  farthest shift of a side", "", f"{farthest:.4f} px")
    yield row("  attributes", *(sum(len(b.attributes) for b in s.boxes) for s in (before, after)))
    yield row("classes", len(before.classes), len(after.classes))


def added_attributes(before: Contents, after: Contents) -> list[str]:
    """Names of attributes that images have only after the round trip."""
    old, new = (
        {name for image in side.images.values() for name in image.attributes}
        for side in (before, after)
    )
    return sorted(new - old)


def demo(work: Path) -> bool:
    """Run the whole demo; return whether everything came back as it was."""
    shards = prepare(work)
    run(
        *("datum", "--loglevel", "warning", "export", "-f", SHARD_FORMAT),
        # Datumaro 1.13 recognises such a folder as voc, voc_classification and voc_detection.
        *("-p", SOURCE, "-o", shards, "--", "--save-images"),
    )
    run("tfod", "describe", shards / "train.tfrecord")
    run("tfod", "check", shards)
    before, after = read(SOURCE, SOURCE_FORMAT), read(shards, SHARD_FORMAT)
    print(*table(before, after), "", sep="\n")
    if added := added_attributes(before, after):
        print(f"Images have gained the attribute {', '.join(added)} from their records.")
    print(f"The shards are in {_short(shards)}{os.sep}")
    found = list(changes(before, after))
    print(*(found or ["nothing changed"]), sep="\n")
    broken = work / "broken"
    break_a_copy(shards, broken)
    print(f"\nThe same shards, a byte changed and a class renamed, in {_short(broken)}{os.sep}")
    run("tfod", "check", broken, exit_code=1)
    return not found


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
