"""Files of 0 bytes in a numbered set: shards without records, which TensorFlow reads so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tfod
from tfod.errors import ShardError
from tfod.shards.repair import repair
from tfod.shards.reshard import reshard
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.training.input_shards import find_training_shards

from tests.commands import Run
from tests.mutants.sound import LABEL_MAP, other, record, shard

FILLED = (record(), other(), record("c.jpg"), record("d.jpg"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set of ten shards, of which the first and every other one is empty but four."""
    source = tmp_path / "in"
    source.mkdir()
    for number in range(10):
        data = shard(FILLED[number // 2]) if number % 2 and number < 8 else b""
        (source / f"train-{number:05d}-of-00010.tfrecord").write_bytes(data)
    (source / "label_map.pbtxt").write_bytes(LABEL_MAP)
    return source


def names(source: Path) -> list[str | None]:
    return [one.filename for one in tfod.read_detections(source)]


def test_they_are_read_everywhere(folder: Path, tmp_path: Path) -> None:
    wanted = ["a.jpg", "b.png", "c.jpg", "d.jpg"]
    assert names(folder) == wanted
    reshard(folder, tmp_path / "resharded", overwrite=False)
    assert sorted(map(str, names(tmp_path / "resharded"))) == wanted
    reshard(folder, tmp_path / "shuffled", shuffle=3)
    assert sorted(map(str, names(tmp_path / "shuffled"))) == wanted
    with pytest.warns(UserWarning, match="6 such shards"):
        assert len(find_training_shards(folder).paths) == 10
    empty = folder / "train-00000-of-00010.tfrecord"
    assert list(tfod.read_records(empty)) == [] == list(tfod.RecordIndex(empty))


def test_the_commands_say_so_too(run: Run, folder: Path) -> None:
    done = run("check", folder)
    assert done.code == 0 and done.out.startswith("VALID: ")
    assert "SET005 warning: shard without records" in done.out
    assert run("describe", folder).out.startswith("10 shards, 4 records")


def test_datumaro_imports_them(folder: Path) -> None:
    datumaro = pytest.importorskip("datumaro")
    data = datumaro.components.dataset.Dataset.import_from(str(folder), "tf_detection_api")
    assert sorted(item.id for item in data) == ["a", "b", "c", "d"]


def test_tensorflow_and_torch_read_them(folder: Path) -> None:
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
@pytest.mark.parametrize("kept", [10, 1])
def test_a_set_of_nothing_else_is_refused(
    run: Run, read: Callable[[Path, Path], object], kept: int, folder: Path, tmp_path: Path
) -> None:
    for number in range(10):
        path = folder / f"train-{number:05d}-of-00010.tfrecord"
        path.write_bytes(b"") if number < kept else path.unlink()
    with pytest.raises(ShardError, match=r"0 bytes\), and so are all .* download the shards"):
        read(folder, tmp_path / "out")
    assert run("check", folder).code == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train.tfrecord", "train-00000-of-00001.tfrecord"])
def test_a_lone_empty_file_is_refused(run: Run, name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ShardError, match="is empty"):
        list(tfod.read_detections(tmp_path))
    with pytest.raises(ShardError, match="is empty"):
        list(tfod.read_records(tmp_path / name))
    assert run("check", tmp_path).code == 1


# The files of a set, named one by one


def test_files_of_a_set_may_be_named_one_by_one(run: Run, folder: Path, tmp_path: Path) -> None:
    """As a shell names them for an unquoted glob."""
    files = sorted(map(str, folder.glob("*.tfrecord")))
    out = tmp_path / "out"
    assert "missing" not in run("reshard", "--num-shards", "2", *files, out).succeeded()
    assert len(names(out)) == 4
    less = run("reshard", *files[1:], tmp_path / "less").succeeded()
    assert "train-00000-of-00010.tfrecord is missing" in less


def test_options_may_stand_anywhere(run: Run, folder: Path, tmp_path: Path) -> None:
    files, more = sorted(map(str, folder.glob("*.tfrecord"))), ["--num-shards", "2"]
    for number, typed in enumerate(
        ([*files, "OUT", *more], [*more, *files, "OUT"], [*files[:3], *more, *files[3:], "OUT"])
    ):
        out = str(tmp_path / f"out{number}")
        assert run("reshard", *(out if one == "OUT" else one for one in typed)).code == 0
        assert len(names(Path(out))) == 4


def test_a_shard_is_named_once(run: Run, folder: Path, tmp_path: Path) -> None:
    one = folder / "train-00001-of-00010.tfrecord"
    refused = run("reshard", one, folder, tmp_path / "out").refused()
    assert "is listed twice; pass each shard only once" in refused
    assert [one.subset for one in find_shards(folder)] == ["train"]
