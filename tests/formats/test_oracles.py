"""Datumaro and pycocotools read the files that ``tfod convert`` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tfod.detection.images.mask_images import decode_mask_png
from tfod.sources.reading import read_detections

from tests.commands import Run

ROOT = Path(__file__).parents[2]
HYPHAL_TIPS = ROOT / "tests" / "corpus" / "hyphal-tips"


@pytest.mark.parametrize(
    ("name", "theirs"), [("coco", "coco"), ("voc", "voc"), ("yolo", "yolo"), ("cvat_xml", "cvat")]
)
def test_datumaro_reads_the_same(run: Run, tmp_path: Path, name: str, theirs: str) -> None:
    datumaro = pytest.importorskip("datumaro")
    assert run("convert", HYPHAL_TIPS, tmp_path / "out", "--to", name).code == 0
    dataset = datumaro.Dataset.import_from(str(tmp_path / "out"), theirs)
    assert set(dataset.subsets()) == {"train", "test"}
    labels = dataset.categories()[datumaro.AnnotationType.label]
    found = {}
    for item in dataset:
        boxes = [one for one in item.annotations if one.type is datumaro.AnnotationType.bbox]
        found[Path(item.id).name] = sorted(
            (labels[one.label].name, *one.points, *item.media.size) for one in boxes
        )
    for one in read_detections(HYPHAL_TIPS):
        size = one.height, one.width
        corners = (one.boxes * (*size[::-1], *size[::-1])).tolist()
        ours = sorted((text, *box) for text, box in zip(one.class_text or (), corners, strict=True))
        read = found.pop(Path(one.filename or "").stem)
        assert [row[0] for row in read] == [row[0] for row in ours]
        assert all(row[5:] == size for row in read)
        np.testing.assert_allclose([row[1:5] for row in read], [row[1:] for row in ours], atol=1e-3)
    assert not found


def test_pycocotools_draws_the_same_masks(run: Run, tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    shapes = ROOT / "examples" / "shapes_coco"
    assert run("convert", shapes, tmp_path / "shards", "--masks").code == 0
    assert run("convert", tmp_path / "shards", tmp_path / "out", "--to", "coco").code == 0
    count = 0
    for subset in ("train", "val"):
        read = coco.COCO(str(tmp_path / f"out/annotations/instances_{subset}.json"))
        for one in read_detections(tmp_path / f"shards/{subset}.tfrecord"):
            found = read.loadAnns(read.getAnnIds(imgIds=[int(one.source_id or "")]))
            assert len(found) == len(one.boxes)
            areas = one.attributes.get("area", ())
            for entry, mask, area in zip(found, one.masks or (), areas, strict=True):
                assert mask is not None and entry["area"] == pytest.approx(area)
                np.testing.assert_array_equal(read.annToMask(entry) > 0, decode_mask_png(mask.data))
                count += 1
    assert count == 35
