"""Images and targets for PyTorch."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfod
import torch
from PIL import Image
from tfod.errors import (
    LabelMapError,
    RecordError,
    ShardError,
    ShardsNotFoundError,
    TfodError,
    how_to_install,
)
from tfod.torch import Detections, collate
from torch.utils.data import DataLoader

from tests.commands import run_python
from tests.image_kinds import file_of, image_of_pixels, programs_of_pillow
from tests.records import encode, objects
from tests.training.inputs import CLASSES, IMAGE, MAP, PIXELS, boxes, record, write_train


def one(folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    found = Detections(folder, **options)
    assert len(found) == 1
    image, target = found[0]
    return image, target


class TestElements:
    def test_image_and_target(self, tmp_path: Path) -> None:
        found = objects([(0.1, 0.25, 0.5, 1.0), (0, 0, 1, 0.5)], ["dog", "cow"], [2, 2])
        extra = {"image/object/area": [3.5, 9.0], "image/object/is_crowd": [0, 1]}
        image, target = one(write_train(tmp_path, record("5.png", **found, **extra)))
        assert image.dtype == torch.uint8
        assert image.is_contiguous()
        np.testing.assert_array_equal(image, PIXELS.transpose(2, 0, 1))
        assert target["boxes"].dtype == torch.float32
        assert torch.allclose(target["boxes"], torch.tensor([[1.0, 1, 5, 4], [0, 0, 10, 2]]))
        assert (target["labels"].dtype, target["labels"].tolist()) == (torch.int64, [7, -1])
        assert (target["iscrowd"].dtype, target["iscrowd"].tolist()) == (torch.int64, [0, 1])
        assert (target["area"].dtype, target["area"].tolist()) == (torch.float32, [3.5, 9.0])
        assert (target["source_id"], target["filename"], target["image_id"]) == ("5", "5.png", 0)

    def test_defaults(self, tmp_path: Path) -> None:
        bare = {"image/encoded": IMAGE}
        one_box = encode({**bare, **objects([(0, 0, 0.5, 1)], None, [3])})
        first, second = (
            target for _, target in Detections(write_train(tmp_path, one_box, encode(bare)))
        )
        assert (first["labels"].tolist(), first["area"].tolist()) == ([3], [20.0])
        assert first["iscrowd"].tolist() == [0]
        assert (first["source_id"], first["filename"]) == ("", "")
        shapes = [tuple(second[key].shape) for key in ("boxes", "labels", "area", "iscrowd")]
        assert shapes == [(0, 4), (0,), (0,), (0,)]

    @pytest.mark.parametrize(("text", "label", "classes", "label_map"), CLASSES)
    def test_classes(self, tmp_path: Path, text, label, classes, label_map) -> None:
        payload = record(**boxes(len(classes), text, label))
        _, target = one(write_train(tmp_path, payload, label_map=label_map))
        assert target["labels"].tolist() == classes

    def test_texts_need_a_label_map(self, tmp_path: Path) -> None:
        write_train(tmp_path, record(**boxes(1, ["cat"])), label_map=None)
        with pytest.raises(RecordError, match=r"record 0.*class/text.*pass label_map="):
            one(tmp_path)
        assert one(tmp_path, label_map=MAP)[1]["labels"].tolist() == [2]
        assert one(tmp_path, label_map="coco")[1]["labels"].tolist() == [17]

    def test_detection_and_transform(self, tmp_path: Path) -> None:
        mask = image_of_pixels(np.eye(4, 10))
        features = boxes(1, ["cat"]) | {"image/object/mask": [mask]}
        folder = write_train(tmp_path, record("3.png", **features))
        (found,) = Detections(folder).detection(0).masks or ()
        assert found is not None and bytes(found.data) == mask
        assert Detections(folder, transform=lambda _, target: target["source_id"])[0] == "3"

    @pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1"])
    def test_images_of_other_modes(self, tmp_path: Path, mode: str) -> None:
        pil = Image.fromarray(PIXELS).convert(mode)
        image, _ = one(write_train(tmp_path, record(image__encoded=file_of(pil))))
        np.testing.assert_array_equal(image.permute(1, 2, 0), pil.convert("RGB"))
        image[0, 0, 0] = 1  # its memory is not shared

    def test_gray_of_16_bits(self, tmp_path: Path) -> None:
        """The high eight bits, like tf.io.decode_image; Pillow would cut values at 255."""
        values = np.array([[0, 255, 256, 4660], [32768, 51968, 65280, 65535]], np.uint16)
        png = file_of(Image.fromarray(values))
        image, _ = one(write_train(tmp_path, record(image__encoded=png)))
        expected = [[0, 0, 1, 18], [128, 203, 255, 255]]
        assert image.tolist() == [expected] * 3 and image.dtype == torch.uint8


class TestErrors:
    @pytest.mark.parametrize("kind", programs_of_pillow())
    def test_no_image_starts_a_program(
        self, kind: str, tmp_path: Path, ghostscript: Callable[[], bool]
    ) -> None:
        image = programs_of_pillow()[kind]
        elements = Detections(write_train(tmp_path / "s", record(image__encoded=image)))
        with pytest.raises(RecordError, match=r"record 0.*JPEG/PNG"):
            elements[0]
        assert not ghostscript()

    @pytest.mark.parametrize(
        ("image", "message"),
        [
            (b"", "is missing or empty; export the shard with its images"),
            (b"no image", "cannot be decoded"),
            (IMAGE[:60], "cannot be decoded"),
        ],
    )
    def test_of_images_name_the_record(self, tmp_path: Path, image: bytes, message: str) -> None:
        found = Detections(write_train(tmp_path, record(), record(image__encoded=image)))
        with pytest.raises(RecordError, match=f"image/encoded.*{message}") as caught:
            found[1]
        assert (caught.value.record, caught.value.offset) == (1, 16 + len(record()))
        assert caught.value.shard == str(tmp_path / "train.tfrecord")
        loader = DataLoader(found, batch_size=None, num_workers=1)
        with pytest.raises(Exception, match=r"train\.tfrecord, record 1, byte \d+: image/encoded"):
            list(loader)

    def test_of_sources(self, tmp_path: Path) -> None:
        with pytest.raises(ShardsNotFoundError):
            Detections(tmp_path)
        for subset in ("train", "val"):
            tfod.write_records(tmp_path, subset, [record()])
        with pytest.raises(TfodError, match=r"several subsets \(train, val\)"):
            Detections(tmp_path)
        assert len(Detections(tmp_path / "val.tfrecord")) == 1
        assert len(Detections(f"{tmp_path}/*.tfrecord")) == 2
        shard = tmp_path / "val.tfrecord"
        shard.write_bytes(shard.read_bytes()[:-1])
        with pytest.raises(ShardError, match=r"val\.tfrecord, record 0"):
            Detections(shard)
        (tmp_path / "label_map.pbtxt").write_text("<html>")
        with pytest.raises(LabelMapError):
            Detections(shard)

    @pytest.mark.parametrize(
        ("absent", "code", "message"),
        [
            ("torch", "import tfod.torch", "tfod.torch needs PyTorch"),
            ("PIL", "from tfod.torch import Detections; Detections(sys.argv[1])[0]",
             "decoding images needs Pillow"),
        ],
    )  # fmt: skip
    def test_of_missing_packages(
        self, tmp_path: Path, absent: str, code: str, message: str
    ) -> None:
        code = f"import sys; sys.modules[{absent!r}] = None; {code}"
        done = run_python("-c", code, write_train(tmp_path, record()))
        assert done.err.splitlines()[-1].endswith(f"{message}; {how_to_install('torch')}")


def test_each_element_once_by_index_and_in_workers(tmp_path: Path) -> None:
    """Five shards with 23 records, and all compressions."""
    for number in range(5):
        kind = ("none", "gzip", "zlib")[number % 3]
        part = [record(str(one)) for one in range(number, 23, 5)]
        tfod.write_records(tmp_path, f"part{number}", part, compression=kind)
    found = pickle.loads(pickle.dumps(Detections(f"{tmp_path}/part*")))  # as spawning does
    assert len(found) == 23
    targets = [found[number][1] for number in range(23)]
    assert sorted(int(one["source_id"]) for one in targets) == list(range(23))
    assert [one["image_id"] for one in targets] == list(range(23))
    assert found[-1][1]["source_id"] == targets[-1]["source_id"]
    for number in (23, -24):
        with pytest.raises(IndexError):
            found[number]
    loader = DataLoader(found, shuffle=True, batch_size=4, num_workers=2, collate_fn=collate)
    assert len(loader) == 6
    ids = [int(target["source_id"]) for _, targets in loader for target in targets]
    assert sorted(ids) == list(range(23))
