"""Images and targets for PyTorch: what they are, and that each comes once."""

from __future__ import annotations

import multiprocessing
import pickle
import zipfile
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
    how_to_install,
)
from tfod.torch import Detections, DetectionsByIndex, collate
from torch.utils.data import DataLoader

from tests.commands import run_python
from tests.image_kinds import file_of, image_of_pixels
from tests.records import encode, objects

MAP = tfod.LabelMap((tfod.LabelMapItem(2, "cat"), tfod.LabelMapItem(7, "dog")))


PIXELS = np.random.default_rng(1).integers(0, 256, (4, 10, 3), np.uint8)
IMAGE = image_of_pixels(PIXELS)


def record(number: int = 0, **features: Any) -> bytes:
    """A record with an image; ``__`` in the name of a feature is a slash."""
    named = {key.replace("__", "/"): value for key, value in features.items()}
    name = {"image/filename": f"{number}.png", "image/source_id": str(number)}
    return encode({**name, "image/encoded": IMAGE, **named})


def write_shards(folder: Path, *records: bytes, **options: Any) -> Path:
    tfod.write_records(folder, "train", records, **options)
    (folder / "label_map.pbtxt").write_text(MAP.to_text())
    return folder


def one(folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    ((image, target),) = Detections(folder, **options)
    return image, target


class TestElements:
    def test_image_and_target(self, tmp_path: Path) -> None:
        found = objects([(0.1, 0.25, 0.5, 1.0), (0, 0, 1, 0.5)], ["dog", "cow"], [2, 2])
        extra = {"image/object/area": [3.5, 9.0], "image/object/is_crowd": [0, 1]}
        image, target = one(write_shards(tmp_path, record(5, **found, **extra)))
        assert image.dtype == torch.uint8
        assert image.is_contiguous()
        np.testing.assert_array_equal(image, PIXELS.transpose(2, 0, 1))
        assert target["boxes"].dtype == torch.float32
        assert torch.allclose(target["boxes"], torch.tensor([[1.0, 1, 5, 4], [0, 0, 10, 2]]))
        assert (target["labels"].dtype, target["labels"].tolist()) == (torch.int64, [7, -1])
        assert (target["iscrowd"].dtype, target["iscrowd"].tolist()) == (torch.int64, [0, 1])
        assert (target["area"].dtype, target["area"].tolist()) == (torch.float32, [3.5, 9.0])
        assert (target["source_id"], target["filename"], target["image_id"]) == ("5", "5.png", 0)
        assert "masks" not in target

    def test_defaults(self, tmp_path: Path) -> None:
        payload = encode({"image/encoded": IMAGE, **objects([(0, 0, 0.5, 1)], None, [3])})
        _, target = one(write_shards(tmp_path, payload))
        assert target["labels"].tolist() == [3]
        assert target["area"].tolist() == [20.0]
        assert target["iscrowd"].tolist() == [0]
        assert (target["source_id"], target["filename"]) == ("", "")

    def test_a_image_without_objects(self, tmp_path: Path) -> None:
        _, target = one(write_shards(tmp_path, record()), masks=True)
        shapes = {key: tuple(value.shape) for key, value in target.items() if key in SHAPES}
        assert shapes == SHAPES

    @pytest.mark.parametrize(
        ("text", "label", "labels"),
        [
            (["cat", "", ""], [9, 5, 0], [2, 5, -1]),
            (["cat", "cow", ""], None, [2, -1, -1]),
            (None, [0, 1, 2], [0, 1, 2]),
            (None, None, [-1, -1, -1]),
        ],
    )
    def test_labels(self, tmp_path: Path, text: Any, label: Any, labels: list[int]) -> None:
        found = objects([(0, 0, 1, 1)] * 3, text, label)
        assert one(write_shards(tmp_path, record(**found)))[1]["labels"].tolist() == labels

    def test_without_a_label_map(self, tmp_path: Path) -> None:
        box = [(0, 0, 1, 1)]
        tfod.write_records(tmp_path, "a", [record(**objects(box, ["cat"], [4]))])
        assert one(tmp_path)[1]["labels"].tolist() == [4]
        assert one(tmp_path, label_map="coco")[1]["labels"].tolist() == [17]
        tfod.write_records(tmp_path, "a", [record(**objects(box, ["cat"]))])
        with pytest.raises(RecordError, match=r"record 0.*class/text.*choose one by label_map="):
            one(tmp_path)
        assert one(tmp_path, label_map=MAP)[1]["labels"].tolist() == [2]

    @pytest.mark.parametrize("numerical", [False, True])
    def test_masks(self, tmp_path: Path, numerical: bool) -> None:
        masks = np.zeros((2, 4, 10), np.uint8)
        masks[1, 1:3, 2:9] = 1
        values = (
            masks.astype(float).reshape(-1).tolist()
            if numerical
            else [b"", image_of_pixels(masks[1])]
        )
        size = {"image/height": 4, "image/width": 10, "image/object/mask": values}
        folder = write_shards(tmp_path, record(**objects([(0, 0, 1, 1)] * 2), **size))
        found = one(folder, masks=True)[1]["masks"]
        assert found.dtype == torch.uint8
        np.testing.assert_array_equal(found, masks)

    def test_a_mask_of_another_size(self, tmp_path: Path) -> None:
        mask = {"image/object/mask": [image_of_pixels(np.ones((3, 10)))]}
        folder = write_shards(tmp_path, record(**objects([(0, 0, 1, 1)]), **mask))
        with pytest.raises(RecordError, match=r"mask is 10 x 3, but the image 10 x 4"):
            one(folder, masks=True)

    @pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1"])
    def test_images_of_other_modes(self, tmp_path: Path, mode: str) -> None:
        pil = Image.fromarray(PIXELS).convert(mode)
        image, _ = one(write_shards(tmp_path, record(image__encoded=file_of(pil))))
        np.testing.assert_array_equal(image.permute(1, 2, 0), pil.convert("RGB"))
        image[0, 0, 0] = 1  # its memory is its own

    def test_gray_of_16_bits(self, tmp_path: Path) -> None:
        """As tf.io.decode_image has it: the high eight bits, where Pillow cuts off at 255."""
        values = np.array([[0, 255, 256, 4660], [32768, 51968, 65280, 65535]], np.uint16)
        png = file_of(Image.fromarray(values))
        image, _ = one(write_shards(tmp_path, record(image__encoded=png)))
        expected = [[0, 0, 1, 18], [128, 203, 255, 255]]
        assert image.tolist() == [expected] * 3 and image.dtype == torch.uint8

    def test_a_image_of_one_pixel_can_be_written_to(self, tmp_path: Path) -> None:
        image, _ = one(
            write_shards(tmp_path, record(image__encoded=image_of_pixels([[[9, 8, 7]]])))
        )
        image += 1
        assert image.flatten().tolist() == [10, 9, 8]

    def test_transform(self, tmp_path: Path) -> None:
        folder = write_shards(tmp_path, record(3))
        source_id = lambda image, target: target["source_id"]  # noqa: E731
        assert list(Detections(folder, transform=source_id)) == ["3"]
        assert DetectionsByIndex(folder, transform=source_id)[0] == "3"

    def test_collate(self) -> None:
        assert collate([(1, "a"), (2, "b")]) == ((1, 2), ("a", "b"))


SHAPES = {"boxes": (0, 4), "labels": (0,), "area": (0,), "iscrowd": (0,), "masks": (0, 4, 10)}


class TestErrors:
    @pytest.mark.parametrize(
        ("image", "what"),
        [
            (b"", "is missing or empty; export the shard with its images"),
            (b"no image", "cannot be decoded"),
            (IMAGE[:60], "cannot be decoded"),
        ],
    )
    def test_of_images_name_the_record(self, tmp_path: Path, image: bytes, what: str) -> None:
        folder = write_shards(tmp_path, record(), record(image__encoded=image))
        for elements in (iter(Detections(folder)), iter(DetectionsByIndex(folder))):
            next(elements)
            with pytest.raises(RecordError, match="image/encoded") as caught:
                next(elements)
            assert what in str(caught.value)
            assert (caught.value.record, caught.value.offset) == (1, 16 + len(record()))
            assert caught.value.shard == str(tmp_path / "train.tfrecord")

    def test_cross_from_a_worker(self, tmp_path: Path) -> None:
        folder = write_shards(tmp_path, record(image__encoded=b"no image"))
        loader = DataLoader(Detections(folder), batch_size=None, num_workers=1)
        with pytest.raises(Exception, match=r"train\.tfrecord, record 0, byte 0: image/encoded"):
            list(loader)

    def test_of_shards(self, tmp_path: Path) -> None:
        with pytest.raises(ShardsNotFoundError):
            Detections(tmp_path)
        folder = write_shards(tmp_path, record())
        shard = folder / "train.tfrecord"
        shard.write_bytes(shard.read_bytes()[:-1])
        with pytest.raises(ShardError, match=r"train\.tfrecord, record 0"):
            list(Detections(folder))
        with pytest.raises(ShardError, match=r"train\.tfrecord, record 0"):
            DetectionsByIndex(folder)
        (folder / "label_map.pbtxt").write_text("<html>")
        with pytest.raises(LabelMapError):
            Detections(folder)

    def test_of_ranks(self, tmp_path: Path) -> None:
        folder = write_shards(tmp_path, record())
        with pytest.raises(ValueError, match="go together"):
            Detections(folder, rank=1)
        with pytest.raises(ValueError, match="rank is 2, which is not one of 2"):
            Detections(folder, rank=2, world_size=2)

    @pytest.mark.parametrize(
        ("absent", "code", "what"),
        [
            ("torch", "import tfod.torch", "tfod.torch needs PyTorch"),
            ("PIL", "from tfod.torch import Detections; list(Detections(sys.argv[1]))",
             "decoding images needs Pillow"),
        ],
    )  # fmt: skip
    def test_of_what_is_not_installed(
        self, tmp_path: Path, absent: str, code: str, what: str
    ) -> None:
        code = f"import sys; sys.modules[{absent!r}] = None; {code}"
        done = run_python("-c", code, write_shards(tmp_path, record()))
        assert done.err.splitlines()[-1].endswith(f"{what}; {how_to_install('torch')}")


def ids(elements: Any) -> list[int]:
    return [int(target["source_id"]) for _, target in elements]


@pytest.fixture
def shards(tmp_path: Path) -> Callable[..., Path]:
    """Shards of 23 records in all; several are of all compressions."""

    def make(count: int, compression: str = "none") -> Path:
        records = [record(number) for number in range(23)]
        if count == 1:
            return write_shards(tmp_path, *records, compression=compression)
        for number in range(count):
            kind = ("none", "gzip", "zlib")[number % 3]
            part = [one for place, one in enumerate(records) if place % count == number]
            tfod.write_records(tmp_path, f"part{number}", part, compression=kind)
        return tmp_path

    return make


class TestSharing:
    @pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than processors
    @pytest.mark.parametrize("shuffle", [False, 4])
    @pytest.mark.parametrize("workers", [0, 1, 2, 3])
    @pytest.mark.parametrize(("count", "kind"), [(1, "none"), (1, "gzip"), (5, "")])
    def test_forked_workers(
        self, shards: Callable[..., Path], count: int, kind: str, workers: int, shuffle: Any
    ) -> None:
        context = multiprocessing.get_context("fork") if workers else None
        loader = DataLoader(
            Detections(shards(count, kind), shuffle=shuffle),
            batch_size=4,
            num_workers=workers,
            collate_fn=collate,
            multiprocessing_context=context,
        )
        found = [target for _, targets in loader for target in targets]
        assert sorted(int(target["source_id"]) for target in found) == list(range(23))
        assert len({target["image_id"] for target in found}) == 23

    @pytest.mark.filterwarnings("ignore:This DataLoader will create")
    def test_spawned_workers(self, shards: Callable[..., Path]) -> None:
        detections = Detections(shards(5), shuffle=4)
        loader = DataLoader(
            detections,
            batch_size=None,
            num_workers=2,
            multiprocessing_context="spawn",
            persistent_workers=True,
        )
        first = ids(loader)
        detections.set_epoch(1)  # those workers were started before
        second = ids(loader)
        assert sorted(first) == sorted(second) == list(range(23))
        assert first != second

    @pytest.mark.parametrize("count", [1, 5])
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_ranks(self, shards: Callable[..., Path], count: int, shuffle: bool) -> None:
        folder = shards(count)
        found: list[int] = []
        for rank in range(3):
            part = Detections(folder, shuffle=shuffle, rank=rank, world_size=3)
            found += ids(DataLoader(part, batch_size=None, num_workers=2))
        assert sorted(found) == list(range(23))

    def test_ranks_of_torch_distributed(self, shards: Callable[..., Path], tmp_path: Path) -> None:
        folder = shards(5)
        store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            assert sorted(ids(Detections(folder))) == list(range(23))
            part = Detections(folder, rank=1, world_size=2)  # what is said is stronger
        finally:
            torch.distributed.destroy_process_group()
        assert 0 < len(ids(part)) < 23


class TestShuffle:
    def test_by_seed_and_epoch(self, shards: Callable[..., Path]) -> None:
        folder = shards(5)
        detections = Detections(folder, shuffle=6, seed=4)
        first = ids(detections)
        assert ids(detections) == first
        detections.set_epoch(1)
        second = ids(detections)
        assert sorted(second) == list(range(23))
        assert second != first
        other = Detections(folder, shuffle=6, seed=4)
        other.set_epoch(1)
        assert ids(other) == second
        assert ids(Detections(folder, shuffle=6, seed=5)) not in (first, second)

    def test_draws_from_a_buffer(self, shards: Callable[..., Path]) -> None:
        found = ids(Detections(shards(1), shuffle=5))
        assert found != list(range(23))
        # A record comes at most 5 places early: no more are known.
        assert all(number <= place + 5 for place, number in enumerate(found))
        for in_order in (False, 1):
            assert ids(Detections(shards(1), shuffle=in_order)) == list(range(23))


class TestByIndex:
    def test_is_the_same(self, shards: Callable[..., Path]) -> None:
        folder = shards(5)
        by_index, read = DetectionsByIndex(folder), list(Detections(folder))
        assert len(by_index) == len(read) == 23
        for number, (image, target) in enumerate(read):
            other_image, other = by_index[number]
            assert torch.equal(image, other_image)
            assert other["source_id"] == target["source_id"]
            assert other["image_id"] == target["image_id"]
        assert by_index[-1][1]["source_id"] == read[-1][1]["source_id"]
        for number in (23, -24):
            with pytest.raises(IndexError):
                by_index[number]

    def test_in_workers(self, shards: Callable[..., Path]) -> None:
        by_index = pickle.loads(pickle.dumps(DetectionsByIndex(shards(5))))  # as spawning does
        loader = DataLoader(by_index, shuffle=True, batch_size=4, num_workers=2, collate_fn=collate)
        assert len(loader) == 6
        found = [int(target["source_id"]) for _, targets in loader for target in targets]
        assert sorted(found) == list(range(23))


def test_shards_in_a_zip(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "a", record(1, **objects([(0, 0, 1, 1)], ["dog"])), record(2))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("train.tfrecord", "label_map.pbtxt"):
            archive.write(folder / name, name)
    elements = list(Detections(tmp_path / "a.zip"))
    assert ids(elements) == [1, 2]
    assert elements[0][1]["labels"].tolist() == [7]
