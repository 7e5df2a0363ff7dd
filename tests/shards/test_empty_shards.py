"""Files of 0 bytes in a numbered set: shards without records, which TensorFlow reads so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tfod
from tfod.cli.main import main
from tfod.errors import ShardError
from tfod.shards.index import write_indexes
from tfod.shards.merge.merge import merge
from tfod.shards.repair import repair
from tfod.shards.reshard import reshard
from tfod.shards.split.split import split
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.training.training_input import shards_to_read

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
    merge([folder], tmp_path / "merged")
    assert names(tmp_path / "merged") == wanted
    split(folder, tmp_path / "split", {"train": 3, "val": 1})
    assert sorted(map(str, names(tmp_path / "split"))) == wanted
    assert sum(write_indexes(folder, tmp_path / "indexes").values()) == 4
    assert len(shards_to_read(folder)) == 10
    empty = folder / "train-00000-of-00010.tfrecord"
    assert list(tfod.read_records(empty)) == [] == list(tfod.RecordIndex(empty))


def test_the_commands_say_so_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("VALID: ") and "SET005 warning: shard without a record" in out
    assert main(["describe", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("10 shards, 4 records")


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
    assert len(tfod.torch.DetectionsByIndex(folder)) == 4


READERS: dict[str, Callable[[Path, Path], object]] = {
    "read": lambda source, _: list(tfod.read_detections(source)),
    "reshard": lambda source, out: reshard(source, out),
    "merge": lambda source, out: merge([source], out),
    "split": lambda source, out: split(source, out, {"train": 3, "val": 1}),
    "repair": lambda source, out: repair(str(source), str(out)),
    "index": write_indexes,
    "training": lambda source, _: shards_to_read(source),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kept", [10, 1])
def test_a_set_of_nothing_else_is_refused(
    read: Callable[[Path, Path], object], kept: int, folder: Path, tmp_path: Path
) -> None:
    for number in range(10):
        path = folder / f"train-{number:05d}-of-00010.tfrecord"
        path.write_bytes(b"") if number < kept else path.unlink()
    with pytest.raises(ShardError, match=r"0 bytes\), and so are all .* download the shards"):
        read(folder, tmp_path / "out")
    assert main(["check", str(folder)]) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train.tfrecord", "train-00000-of-00001.tfrecord"])
def test_a_lone_empty_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ShardError, match="is empty"):
        list(tfod.read_detections(tmp_path))
    with pytest.raises(ShardError, match="is empty"):
        list(tfod.read_records(tmp_path / name))
    assert main(["check", str(tmp_path)]) == 1


# The files of a set, named one by one


def test_files_of_a_set_may_be_named_one_by_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a shell names them for an unquoted glob."""
    files = sorted(map(str, folder.glob("*.tfrecord")))
    for command, more in (("merge", ()), ("reshard", ("--num-shards", "2")),
                          ("split", ("train=3", "val=1"))):  # fmt: skip
        out = tmp_path / command
        where = files + list(more) if command == "split" else [*more, *files]
        assert main([command, *where, "-o", str(out)]) == 0
        assert "missing" not in capsys.readouterr().err
        assert len(names(out)) == 4
    assert main(["reshard", *files[1:], "-o", str(tmp_path / "less")]) == 0
    assert "train-00000-of-00010.tfrecord is missing" in capsys.readouterr().err


def test_options_may_stand_anywhere_in_a_split(folder: Path, tmp_path: Path) -> None:
    files, parts = sorted(map(str, folder.glob("*.tfrecord"))), ["train=3", "val=1"]
    for number, typed in enumerate(
        (
            [*files, "-o", "OUT", *parts],
            ["-o", "OUT", *files, *parts],
            [*files, *parts, "-o", "OUT"],
            [*files[:3], "-o", "OUT", *files[3:], *parts],
            [str(folder), "--seed", "0", *parts, "-o", "OUT"],
        )
    ):
        out = str(tmp_path / f"out{number}")
        assert main(["split", *(out if one == "OUT" else one for one in typed)]) == 0
        assert len(names(Path(out))) == 4


def test_a_shard_is_named_once(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = str(folder / "train-00001-of-00010.tfrecord")
    for command in (["merge"], ["reshard"]):
        assert main([*command, one, str(folder), "-o", str(tmp_path / "out")]) == 2
        assert "is given twice; name each shard once" in capsys.readouterr().err
    assert [one.subset for one in find_shards(folder)] == ["train"]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["train=0.8", "val=0.2"], "name the shards to split, in front of the parts"),
        (["in"], "name the parts behind the shards, for example: train=0.8 val=0.2"),
        (["in", "train=0.8", "in"], "name the parts behind the shards"),
    ],
)
def test_what_split_needs(
    arguments: list[str],
    output: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["split", *arguments, "-o", "out"]) == 2
    assert output in capsys.readouterr().err


@pytest.mark.parametrize("command", ["split", "reshard", "merge", "index"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0 and "SOURCE" in capsys.readouterr().out
