"""Precision and recall of the hints on classes and boxes, on sets with a known share of defects.

    python benchmarks/hints_of_boxes.py

The sets are made of the annotations of ``tests/corpus``, split at random. Hints on a subset are
measured over many splits, half of them with the defect; hints on boxes over the boxes. Beside them
stand what `datum validate` says, and, computed here by what their documentation says, TFDV's
comparisons (L-infinity 0.01, Jensen-Shannon divergence 0.1, unexpected values). Prints a table in
Markdown.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tfod
from tfod.check.check import Options, check_sources

_CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
_SPLITS, _SHARE = 40, 0.03


@dataclass(frozen=True)
class Image:
    """Boxes, normalized ``xmin, ymin, xmax, ymax``, and their classes; size in pixels."""

    name: str
    boxes: np.ndarray
    classes: tuple[str, ...]
    width: int = 640
    height: int = 480


Images: TypeAlias = "list[Image]"
Split: TypeAlias = "tuple[Images, Images]"


def real(folder: str) -> Images:
    """The annotations of a folder of the corpus."""
    return [
        Image(f"{shard.stem}{number}.jpg", np.array(one.boxes), tuple(one.class_text))
        for shard in sorted((_CORPUS / folder).glob("*record"))
        for number, one in enumerate(tfod.read_detections(shard))
    ]


def hints(split: Split) -> list[tuple[str, str | None, int | None]]:
    """What tfod says: code, image, and number of the box."""
    with tempfile.TemporaryDirectory() as folder:
        for subset, images in zip(("train", "val"), split, strict=True):
            tfod.write_records(folder, subset, map(_record, images))
        report = check_sources([folder], Options(hints=True, max_findings=10_000))
        found = [one for one in report.findings if one.code.startswith("DAT")]
        return [(one.code, one.item, _box(one.message)) for one in found]


def _box(message: str) -> int | None:
    words = message.split()
    return int(words[1]) if words[0] == "box" else None


def _record(image: Image) -> bytes:
    sides = zip(("xmin", "ymin", "xmax", "ymax"), image.boxes.T.tolist(), strict=True)
    return tfod.encode_example(
        {
            "image/filename": tfod.bytes_feature([image.name.encode()]),
            "image/height": tfod.int64_feature([image.height]),
            "image/width": tfod.int64_feature([image.width]),
            "image/object/class/text": tfod.bytes_feature(one.encode() for one in image.classes),
            **{f"image/object/bbox/{side}": tfod.float_feature(one) for side, one in sides},
        }
    )


# Subsets


def _halves(images: Images, rng: random.Random) -> Split:
    shuffled = rng.sample(images, len(images))
    cut = len(images) * 3 // 5
    return shuffled[:cut], shuffled[cut:]


def _without(images: Images, name: str) -> Images:
    kept = [np.array([one != name for one in image.classes], bool) for image in images]
    return [
        replace(
            image,
            boxes=image.boxes[mask],
            classes=tuple(np.array(image.classes, object)[mask]),
        )
        for image, mask in zip(images, kept, strict=True)
    ]


def _fewer(images: Images, rng: random.Random, name: str, share: float) -> Images:
    """Without a share of the objects of a class."""
    found = []
    for image in images:
        mask = np.array([one != name or rng.random() >= share for one in image.classes], bool)
        classes = tuple(np.array(image.classes, object)[mask])
        found.append(replace(image, boxes=image.boxes[mask], classes=classes))
    return found


def _smaller(images: Images, by: float) -> Images:
    """With boxes about the same centres, their sides ``by`` times as long."""

    def shrunk(boxes: np.ndarray) -> np.ndarray:
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        half = (boxes[:, 2:] - boxes[:, :2]) / 2 * by
        return np.hstack((centres - half, centres + half))

    return [replace(one, boxes=shrunk(one.boxes)) for one in images]


def l_infinity(split: Split) -> bool:
    """TFDV's comparison of two categorical features, with the threshold of its guide."""
    shares = [_shares(images) for images in split]
    return max(abs(shares[0][name] - shares[1][name]) for name in {*shares[0], *shares[1]}) > 0.01


def _shares(images: Images) -> Counter[str]:
    counts = Counter(name for image in images for name in image.classes)
    return Counter({name: count / counts.total() for name, count in counts.items()})


def unexpected(split: Split) -> bool:
    """TFDV: a value that the schema, inferred from training, does not have."""
    return bool({*_shares(split[1])} - {*_shares(split[0])})


def divergence(values: Callable[[Images], np.ndarray]) -> Callable[[Split], bool]:
    """TFDV's Jensen-Shannon divergence of two numeric features, in ten bins."""

    def is_apart(split: Split) -> bool:
        both = [values(images) for images in split]
        bins = np.histogram_bin_edges(np.concatenate(both), 10)
        one, other = (np.histogram(each, bins)[0] / max(1, len(each)) for each in both)
        middle = (one + other) / 2
        parts = [
            np.where(each > 0, each * np.log2(np.where(each > 0, each, 1) / middle.clip(1e-12)), 0)
            for each in (one, other)
        ]
        return float(sum(part.sum() for part in parts)) / 2 > 0.1

    return is_apart


def _areas(images: Images) -> np.ndarray:
    boxes = np.concatenate([image.boxes for image in images])
    return np.log((boxes[:, 2:] - boxes[:, :2]).prod(axis=1).clip(1e-9))


def _counts(images: Images) -> np.ndarray:
    return np.array([len(image.classes) for image in images], float)


def subsets() -> Iterator[tuple[str, str, str, Sequence[tuple[bool, bool, bool]]]]:
    """Of each defect: name, rule, peer; and of each split made, tfod's and the peer's word."""
    cells, hyphae = real("blood-cells"), real("hyphal-tips")
    made: tuple[tuple[str, str, str, Images, Callable[..., Split], Callable[..., bool]], ...] = (
        ("a class is not in val", "DAT001", "datum validate, label not found",
         cells, lambda a, b, _: (a, _without(b, "WBC")),
         not_found),
        ("a class is not in train", "DAT002", "TFDV, unexpected values",
         cells, lambda a, b, _: (_without(a, "WBC"), b), unexpected),
        ("val has 70 % fewer of the largest class", "DAT003", "TFDV, L-infinity > 0.01",
         cells, lambda a, b, rng: (a, _fewer(b, rng, "RBC", 0.7)), l_infinity),
        ("boxes in val have sides of 60 %", "DAT004", "TFDV, JSD > 0.1 of log area",
         hyphae, lambda a, b, _: (a, _smaller(b, 0.6)), divergence(_areas)),
        ("val has half the objects", "DAT005", "TFDV, JSD > 0.1 of objects",
         hyphae, lambda a, b, rng: (a, _fewer(b, rng, "tip", 0.5)), divergence(_counts)),
        ("images in val have sides of 70 %", "DAT006", "TFDV, JSD > 0.1 of pixels",
         cells, lambda a, b, _: (a, [replace(one, width=448, height=336) for one in b]),
         divergence(lambda images: np.array([one.width * one.height for one in images], float))),
    )  # fmt: skip
    for name, code, peer, images, defect, peers in made:
        rng = random.Random(code)
        found = []
        for number in range(_SPLITS):
            split = _halves(images, rng)
            is_made = number % 2 == 0
            split = defect(*split, rng) if is_made else split
            said = {one for one, *_ in hints(split)}
            found.append((is_made, code in said, peers(split)))
        yield name, code, peer, found


# Boxes


def boxes() -> Iterator[tuple[str, str, str, set[tuple[str, int]], set[tuple[str, int]], str]]:
    """Of each defect: name, rules, and the boxes that have it and that tfod names; the peer's."""
    for name, codes, change in (
        ("labels swapped", ("DAT010", "DAT011"), _swapped),
        ("sides an eighth as long", ("DAT010", "DAT011"), _eighth),
        ("again, shifted by 2 % of the sides", ("DAT013",), _again),
        ("again, shifted, another class", ("DAT012",), _again_as_another),
    ):
        rng = random.Random(name)
        images, wrong = change(real("blood-cells"), rng)
        found = {(item, box) for code, item, box in hints((images, [])) if code in codes}
        yield name, ", ".join(codes), "far from mean (5)", wrong, found, _far(images, wrong)


def _each(images: Images, rng: random.Random) -> Iterator[tuple[int, int]]:
    """A share of all boxes, by image and number."""
    every = [(at, box) for at, image in enumerate(images) for box in range(len(image.classes))]
    yield from rng.sample(every, round(len(every) * _SHARE))


def _swapped(images: Images, rng: random.Random) -> tuple[Images, set[tuple[str, int]]]:
    names, wrong = sorted(_shares(images)), set()
    for at, box in _each(images, rng):
        classes = list(images[at].classes)
        classes[box] = rng.choice([one for one in names if one != classes[box]])
        images[at] = replace(images[at], classes=tuple(classes))
        wrong.add((images[at].name, box))
    return images, wrong


def _eighth(images: Images, rng: random.Random) -> tuple[Images, set[tuple[str, int]]]:
    wrong = set()
    for at, box in _each(images, rng):
        changed = images[at].boxes.copy()
        changed[box, 2:] = changed[box, :2] + (changed[box, 2:] - changed[box, :2]) / 8
        images[at] = replace(images[at], boxes=changed)
        wrong.add((images[at].name, box))
    return images, wrong


def _again(
    images: Images, rng: random.Random, *, other: bool = False
) -> tuple[Images, set[tuple[str, int]]]:
    wrong = set()
    for at, box in _each(images, rng):
        image = images[at]
        corners = image.boxes[box]
        shift = np.tile((corners[2:] - corners[:2]) * rng.choice((-0.02, 0.02)), 2)
        name = image.classes[box]
        named = {"RBC": "WBC"}.get(name, "RBC") if other else name
        wrong.add((image.name, len(image.classes)))
        images[at] = replace(
            image,
            boxes=np.vstack((image.boxes, corners + shift)),
            classes=(*image.classes, named),
        )
    return images, wrong


def _again_as_another(images: Images, rng: random.Random) -> tuple[Images, set[tuple[str, int]]]:
    return _again(images, rng, other=True)


def _far(images: Images, wrong: set[tuple[str, int]]) -> str:
    """`datum validate`: a property 5 standard deviations from the mean of its class."""
    validator, dataset = datumaro_of(images, sorted(_shares(images)))
    by_class = validator.compute_statistics(dataset)["point_distribution_in_label"]
    found = {
        (item, box)
        for properties in by_class.values()
        for one in properties.values()
        for (item, _), boxes in one.get("items_far_from_mean", {}).items()
        for box in boxes
    }
    return _score(len(found & wrong), len(found), len(wrong))


def not_found(split: Split) -> bool:
    """`datum validate` of val: a class of the dataset that it does not find."""
    validator, dataset = datumaro_of(split[1], sorted(_shares([*split[0], *split[1]])))
    reports = validator.generate_reports(validator.compute_statistics(dataset))
    return any(type(one).__name__ == "LabelDefinedButNotFound" for one in reports)


def datumaro_of(images: Images, names: Sequence[str]) -> tuple[Any, Any]:
    """Datumaro's validator of detections with the options of `datum validate`, and a dataset."""
    import datumaro
    from datumaro.plugins.validators import DetectionValidator

    parser = DetectionValidator.build_cmdline_parser()
    validator = DetectionValidator(**vars(parser.parse_args([])))
    items = [
        datumaro.DatasetItem(
            image.name,
            annotations=[
                datumaro.Bbox(
                    *(xmin * image.width, ymin * image.height),
                    *((xmax - xmin) * image.width, (ymax - ymin) * image.height),
                    label=names.index(name),
                    id=number,
                )
                for number, ((xmin, ymin, xmax, ymax), name) in enumerate(
                    zip(image.boxes.tolist(), image.classes, strict=True)
                )
            ],
        )
        for image in images
    ]
    return validator, datumaro.Dataset.from_iterable(items, categories=list(names))


def _score(hits: int, found: int, wrong: int) -> str:
    precision = f"{hits / found:.2f}" if found else "–"
    return f"{precision} / {hits / wrong:.2f}"


def main() -> None:
    """The command."""
    print("| made defect | rules | precision / recall | peer | precision / recall |")
    print("|---|---|---|---|---|")
    for name, code, peer, found in subsets():
        made = sum(one for one, *_ in found)
        scores = [
            _score(sum(one[0] and one[at] for one in found), sum(one[at] for one in found), made)
            for at in (1, 2)
        ]
        print(f"| {name} | {code} | {scores[0]} | {peer} | {scores[1]} |")
        sys.stdout.flush()
    for name, codes, peer, wrong, said, theirs in boxes():
        score = _score(len(said & wrong), len(said), len(wrong))
        print(f"| {name} | {codes} | {score} | datum validate, {peer} | {theirs} |")


if __name__ == "__main__":
    main()
