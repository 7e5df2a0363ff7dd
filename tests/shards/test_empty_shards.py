"""Files of 0 bytes in a numbered set are shards without records, as for TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tfod
from tfod.errors import ShardError
from tfod.shards.repair import repair
from tfod.shards.reshard import reshard
from tfod.training.input_shards import find_training_shards

from tests.commands import Run
from tests.files import write_files
from tests.mutants.sound import LABEL_MAP, other, record, shard

FILLED = (record(), other(), record("c.jpg"), record("d.jpg"))
NAMES = ["a.jpg", "b.png", "c.jpg", "d.jpg"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set of ten shards; numbers 1, 3, 5 and 7 have a record each, and the others none."""
    files = {f"train-{number:05d}-of-00010.tfrecord": b"" for number in range(10)}
    for name, payload in zip([*files][1:8:2], FILLED, strict=True):
        files[name] = shard(payload)
    return write_files(tmp_path / "in", {**files, "label_map.pbtxt": LABEL_MAP})


def names(source: Path) -> list[str | None]:
    return [one.filename for one in tfod.read_detections(source)]


def test_python_and_commands(run: Run, folder: Path, tmp_path: Path) -> None:
    assert names(folder) == NAMES
    for shuffle in (None, 3):
        reshard(folder, tmp_path / str(shuffle), shuffle=shuffle)
        assert sorted(map(str, names(tmp_path / str(shuffle)))) == NAMES
    with pytest.warns(UserWarning, match="6 such shards"):
        assert len(find_training_shards(folder).paths) == 10
    empty = folder / "train-00000-of-00010.tfrecord"
    assert list(tfod.read_records(empty)) == [] == list(tfod.RecordIndex(empty))
    done = run("check", folder)
    assert done.code == 0 and done.out.startswith("VALID: ")
    assert "SET005 warning: shard without records" in done.out
    assert run("describe", folder).out.startswith("10 shards, 4 records")


def test_datumaro(folder: Path) -> None:
    datumaro = pytest.importorskip("datumaro")
    data = datumaro.components.dataset.Dataset.import_from(str(folder), "tf_detection_api")
    assert sorted(item.id for item in data) == ["a", "b", "c", "d"]


def test_tensorflow_and_torch(folder: Path) -> None:
    pytest.importorskip("tensorflow")
    pytest.importorskip("torch")
    import tfod.tensorflow
    import tfod.torch

    with pytest.warns(UserWarning, match=r"is empty \(6 such shards\)"):
        assert len(list(tfod.tensorflow.dataset(folder))) == 4
        assert len(tfod.torch.Detections(folder)) == 4


READERS: dict[str, Callable[[Path, Path], object]] = {
    "read": lambda source, _: list(tfod.read_detections(source)),
    "reshard": lambda source, out: reshard(source, out),
    "repair": lambda source, out: repair(str(source), str(out)),
    "training": lambda source, _: find_training_shards(source),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("count", [10, 1])
def test_a_set_of_only_empty_files_is_refused(
    run: Run, read: Callable[[Path, Path], object], count: int, tmp_path: Path
) -> None:
    files = {f"train-{number:05d}-of-00010.tfrecord": b"" for number in range(count)}
    folder = write_files(tmp_path / "in", {**files, "label_map.pbtxt": LABEL_MAP})
    with pytest.raises(ShardError, match=r"0 bytes\), and so are all .* download the shards"):
        read(folder, tmp_path / "out")
    assert run("check", folder).code == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train.tfrecord", "train-00000-of-00001.tfrecord"])
def test_a_single_empty_file_is_refused(run: Run, name: str, tmp_path: Path) -> None:
    write_files(tmp_path, {name: b""})
    with pytest.raises(ShardError, match="is empty"):
        list(tfod.read_detections(tmp_path))
    with pytest.raises(ShardError, match="is empty"):
        list(tfod.read_records(tmp_path / name))
    assert run("check", tmp_path).code == 1


def test_files_of_a_set_as_arguments(run: Run, folder: Path, tmp_path: Path) -> None:
    """A shell passes them for a pattern; options may be anywhere."""
    files, more = sorted(map(str, folder.glob("*.tfrecord"))), ["--num-shards", "2"]
    for number, arguments in enumerate(
        ([*files, "OUT", *more], [*more, *files, "OUT"], [*files[:3], *more, *files[3:], "OUT"])
    ):
        out = str(tmp_path / f"out{number}")
        done = run("reshard", *(out if one == "OUT" else one for one in arguments))
        assert "missing" not in done.succeeded()
        assert len(names(Path(out))) == 4
    less = run("reshard", *files[1:], tmp_path / "less").succeeded()
    assert "train-00000-of-00010.tfrecord is missing" in less
    refused = run("reshard", files[1], folder, tmp_path / "out").refused()
    assert "is listed twice; pass each shard only once" in refused
