"""Precision and recall of PRD001 to PRD004 beside cleanlab's ObjectLab, on known label errors.

    python benchmarks/predictions.py [--peers FOLDER]

The boxes of ``tests/corpus`` are found by a made detector: it misses 5 to 25 % of them, small ones
more, is off by 5 % of a side, mistakes 5 % of the classes, finds 10 % twice and 0.7 things an image
that are not there; what is right has scores of Beta(8, 2), what is wrong mostly less. Then a share
of 5 % each of the annotated boxes gets another class, is removed, is shifted by 30 to 60 % of its
size, or is put where nothing is. ObjectLab gets an environment of its own in FOLDER. Prints a table
in Markdown, of three such sets of each folder.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tfod
from tfod.check.check import Options, check_sources
from tfod.check.references.predictions.predictions import load_predictions
from tfod.detection.box_pairs import iou

_CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
_REAL = ("blood-cells", "hyphal-tips", "anki-overdrive-cars")
_SHARE, _SEEDS = 0.05, 3
RULES = {"removed": "PRD001", "swapped": "PRD002", "shifted": "PRD003", "added": "PRD004"}
_CLEANLAB = """
import json, sys
import numpy as np
from cleanlab.object_detection import rank
images = json.load(open(sys.argv[1]))
found = {}
for how, high in (("", None), ("confident", sys.argv[3])):
    labels = [{"bboxes": np.reshape(one["boxes"], (-1, 4)).astype(float),
               "labels": np.array(one["classes"], int)} for one in images]
    predictions = []
    for one in images:
        by_class = [np.reshape([p[1:] for p in one["predicted"] if p[0] == kind], (-1, 5))
                    for kind in range(int(sys.argv[4]))]
        predictions.append(np.array([*by_class, None], dtype=object)[:-1])
    both = {"labels": labels, "predictions": predictions}
    high = high and {"high_probability_threshold": float(high)} or {}
    overlooked = rank.compute_overlooked_box_scores(**both, **high)
    swapped = rank.compute_swap_box_scores(**both, **high)
    shifted = rank.compute_badloc_box_scores(**both)
    found[how] = {name: sorted((float(v), i, j) for i, one in enumerate(scores)
                               for j, v in enumerate(one) if v < 1)
                  for name, scores in
                  (("removed", overlooked), ("swapped", swapped), ("shifted", shifted))}
json.dump(found, open(sys.argv[2], "w"))
"""
Box: TypeAlias = np.ndarray
Ranked: TypeAlias = "Sequence[tuple[int, int, Sequence[float]]]"
"""Worst first: number of the image, of the annotated box, and of an overlooked object the box."""


@dataclass
class MadeImage:
    """An image, boxes in pixels.

    Attributes:
        boxes, classes: as annotated; classes from 0.
        predicted: class, box and score.
        errors: numbers of the boxes with each error.
        removed: boxes that are no longer annotated.
    """

    size: tuple[int, int]
    boxes: list[Box] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    predicted: list[tuple[int, Box, float]] = field(default_factory=list)
    errors: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in RULES})
    removed: list[Box] = field(default_factory=list)

    def add(self, box: Box, kind: int, error: str = "") -> None:
        if error:
            self.errors[error].add(len(self.boxes))
        self.boxes.append(box)
        self.classes.append(kind)


def made_images(folder: Path, seed: int, names: Sequence[str]) -> Iterator[MadeImage]:
    """The images of a folder of the corpus with predictions and errors."""
    chance = np.random.default_rng(seed)
    for shard in sorted(folder.glob("*record")):
        for one in tfod.read_detections(shard):
            width, height = one.width or 1, one.height or 1
            boxes = np.asarray(one.boxes, float) * [width, height, width, height]
            classes = [names.index(text) for text in one.class_text or ()]
            made = MadeImage((width, height))
            proper = [(b, c) for b, c in zip(boxes, classes, strict=True) if (b[2:] > b[:2]).all()]
            _predict(made, proper, len(names), chance)
            _annotate(made, proper, len(names), chance)
            yield made


def _predict(
    made: MadeImage, objects: Sequence[tuple[Box, int]], classes: int, chance: np.random.Generator
) -> None:
    for box, kind in objects:
        sides = np.tile(box[2:] - box[:2], 2)
        side = float(np.sqrt(sides[:2].prod() / np.prod(made.size)))
        if chance.random() > 0.75 + 0.2 * min(1, side / 0.3):
            continue
        score, found = chance.beta(8, 2), kind
        if classes > 1 and chance.random() < 0.05:
            score, found = chance.beta(4, 4), _another(kind, classes, chance)
        made.predicted.append((found, box + chance.normal(0, 0.05, 4) * sides, score))
        if chance.random() < 0.1:
            again = box + chance.normal(0, 0.12, 4) * sides
            made.predicted.append((found, again, chance.beta(2, 5)))
    for _ in range(chance.poisson(0.7) if objects else 0):
        like, kind = objects[chance.integers(len(objects))]
        made.predicted.append((kind, _elsewhere(made, like, chance), chance.beta(2, 4)))


def _annotate(
    made: MadeImage, objects: Sequence[tuple[Box, int]], classes: int, chance: np.random.Generator
) -> None:
    for box, kind in objects:
        what = chance.random() / _SHARE
        if what < 1:
            made.removed.append(box)
        elif what < 2 and classes > 1:
            made.add(box, _another(kind, classes, chance), "swapped")
        elif 2 <= what < 3:
            angle = chance.random() * 2 * np.pi
            way = np.array([np.cos(angle), np.sin(angle)]) * chance.uniform(0.3, 0.6)
            moved = box + np.tile((box[2:] - box[:2]) * way, 2)
            made.add(np.clip(moved, 0, np.tile(made.size, 2)), kind, "shifted")
        else:
            made.add(box, kind)
    for _ in range(chance.binomial(len(objects), _SHARE)):
        like, kind = objects[chance.integers(len(objects))]
        box = _elsewhere(made, like, chance)
        if max(float(iou(box, other)) for other, _ in objects) < 0.02:
            made.add(box, kind, "added")


def _another(kind: int, classes: int, chance: np.random.Generator) -> int:
    return int((kind + chance.integers(1, classes)) % classes)


def _elsewhere(made: MadeImage, like: Box, chance: np.random.Generator) -> Box:
    sides = like[2:] - like[:2]
    corner = chance.random(2) * np.maximum(np.array(made.size) - sides, 1)
    return np.concatenate((corner, corner + sides))


def ask_tfod(images: Sequence[MadeImage], names: Sequence[str], folder: Path) -> dict[str, Ranked]:
    """What tfod lists of each error."""
    payloads, results = [], []
    for number, one in enumerate(images):
        scale = np.tile(one.size, 2)
        texts = [names[kind] for kind in one.classes]
        payloads.append(
            tfod.encode_detection(
                tfod.Detection(
                    filename=f"{number}.jpg",
                    source_id=str(number),
                    width=one.size[0],
                    height=one.size[1],
                    boxes=np.reshape(one.boxes, (-1, 4)) / scale,
                    class_text=texts,
                    class_label=[kind + 1 for kind in one.classes],
                )
            )
        )
        for kind, box, score in one.predicted:
            bbox = [*box[:2].tolist(), *(box[2:] - box[:2]).tolist()]
            results.append(
                {"image_id": number, "category_id": kind + 1, "bbox": bbox, "score": score}
            )
    (path,) = tfod.write_records(folder, "train", payloads)
    (folder / "detections.json").write_text(json.dumps(results))
    predictions = load_predictions(str(folder / "detections.json"))
    options = Options(predictions=predictions, max_findings=100_000)
    found: dict[str, list[tuple[int, int, Sequence[float]]]] = {name: [] for name in RULES}
    for finding in check_sources([str(path)], options).findings:
        for name, code in RULES.items():
            if finding.code == code:
                value: Any = finding.value
                box = value.get("predicted", {}).get("box", [0] * 4)
                image = int(finding.record or 0)
                pixels = np.multiply(box, np.tile(images[image].size, 2))
                found[name].append((image, value.get("object", -1), pixels.tolist()))
    return dict(found)


def ask_cleanlab(
    images: Sequence[MadeImage], classes: int, folder: Path, python: Path
) -> dict[str, dict[str, Ranked]]:
    """How ObjectLab ranks the boxes: as it is, and from the median score on, which is kinder."""
    content = [
        {
            "boxes": [box.tolist() for box in one.boxes],
            "classes": one.classes,
            "predicted": [[kind, *box.tolist(), score] for kind, box, score in one.predicted],
        }
        for one in images
    ]
    (folder / "images.json").write_text(json.dumps(content))
    median = np.median([score for one in images for _, _, score in one.predicted])
    files = (folder / "images.json", folder / "found.json")
    command = [python, "-c", _CLEANLAB, *files, str(median), str(classes)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    found = json.loads((folder / "found.json").read_text())
    # It numbers the predictions of an image by class.
    ordered = [sorted(one["predicted"], key=lambda each: each[0]) for one in content]
    return {
        how: {
            name: [(i, j, ordered[i][j][1:5] if name == "removed" else ()) for _, i, j in ranked]
            for name, ranked in by_error.items()
        }
        for how, by_error in found.items()
    }


def hits(images: Sequence[MadeImage], error: str, ranked: Ranked) -> tuple[list[bool], int]:
    """Of each that is listed whether it is right, and how many errors there are."""
    seen: set[tuple[int, int]] = set()
    found = []
    for image, number, box in ranked:
        one = images[image]
        if error == "removed":
            overlap = [float(iou(np.array(box), other)) for other in one.removed]
            number = int(np.argmax(overlap)) if overlap else -1
            is_right = bool(overlap) and overlap[number] >= 0.5 and (image, number) not in seen
            seen.add((image, number))
        else:
            is_right = number in one.errors[error]
        found.append(is_right)
    total = sum(len(one.removed if error == "removed" else one.errors[error]) for one in images)
    return found, total


def peers_python(folder: Path) -> Path:
    """The Python of an environment with cleanlab, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "cleanlab"], check=True)
    return python


def rows(folder: str, python: Path) -> Iterator[str]:
    """A row of the table for each error: of all sets together."""
    label_map, _ = tfod.load_label_map(_CORPUS / folder / "label_map.pbtxt")
    names = [one.class_name for one in label_map.items]
    right: dict[tuple[str, str], list[float]] = {}
    listed, total = dict.fromkeys(RULES, 0), dict.fromkeys(RULES, 0)
    for seed in range(_SEEDS):
        images = list(made_images(_CORPUS / folder, seed, names))
        with tempfile.TemporaryDirectory() as place:
            tools: dict[str, Mapping[str, Ranked]] = {
                "tfod": ask_tfod(images, names, Path(place)),
                **ask_cleanlab(images, len(names), Path(place), python),
            }
        for tool, by_error in tools.items():
            for error, ranked in by_error.items():
                found, count = hits(images, error, ranked)
                right.setdefault((tool, error), []).append(sum(found[:count]))
                if tool == "tfod":
                    listed[error] += len(found)
                    total[error] += count
                    right.setdefault(("all", error), []).append(sum(found))
    for error, code in RULES.items():
        if total[error]:
            of_all = sum(right["all", error])
            cells = [of_all / max(listed[error], 1), of_all / total[error]]
            cells += [sum(right.get((tool, error), [np.nan])) / total[error]
                      for tool in ("tfod", "", "confident")]  # fmt: skip
            shown = " | ".join("–" if np.isnan(one) else f"{one:.2f}" for one in cells)
            yield f"| {folder} | {error}, {total[error]} | `{code}` | {shown} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", type=Path, default=Path("/tmp/tfod-cleanlab"), metavar="FOLDER")
    python = peers_python(parser.parse_args().peers)
    print("| images | errors | rule | precision | recall | precision at k | ObjectLab at k |"
          " from the median |")  # fmt: skip
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for folder in _REAL:
        print("\n".join(rows(folder, python)))


if __name__ == "__main__":
    main()
