"""Zips of shards: hostile, damaged, ordinary."""

from __future__ import annotations

import io
import pickle
import random
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.analysis.result import DatasetResult, ShardResult
from tfod.checker.check import check_sources
from tfod.checker.finding import Finding, Findings
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import run_rules
from tfod.sources.resolved import Dataset, File
from tfod.sources.zips import resolve_zip
from tfod.tfrecord.framing import masked_crc32c
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.archive import ZipLimits, read_zip
from tfod.tfrecord.storage.zip_entry import ZipEntryError, to_printable

from tests.conftest import examples
from tests.records import frame
from tests.zip_forge import Item, as_zip64, deflate, forge, quoting_zip, real_zip

LABEL_MAP = b"item { id: 1 name: 'cat' }\n"
FAMILIES = ("ZIP", "SET", "TFR")
MIB = 1 << 20


class Checked(NamedTuple):
    """The findings about a zip, its entries, and the data of its shards."""

    findings: list[Finding]
    names: list[str]
    dataset: Dataset
    bytes_read: dict[str, bytes]

    @property
    def codes(self) -> list[str]:
        return sorted({one.code for one in self.findings})

    def messages(self, code: str) -> list[str]:
        return [one.message for one in self.findings if one.code == code]


Check = Callable[..., Checked]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Check a zip: its directory, its shards, then the rest."""

    def check_zip(data: bytes, **how: int) -> Checked:
        path, limits, read = tmp_path / "a.zip", ZipLimits(**how), {}
        path.write_bytes(data)
        dataset = resolve_zip(File.at(str(path), "a.zip"), limits)
        levels = {name: one for name, one in resolve_levels().items() if name[:3] in FAMILIES}
        result = DatasetResult(dataset, READY["cvat"], Findings(1000, levels))
        for shard in dataset.shards:
            try:
                with shard.open() as stream:
                    parts = iter(lambda: stream.read(1 << 16), b"")
                    read[shard.name.partition(":")[2]] = b"".join(parts)
            except ZipEntryError as error:
                result.add(ShardResult(shard.name, shard.subset, damage=error.reason))
        run_rules(result, result.findings, of_dataset=True)
        names = [entry.name for entry in read_zip(str(path), limits).readable.values()]
        listed = list(result.findings.all())
        assert len(listed) == result.findings.total
        return Checked(listed, names, dataset, read)

    return check_zip


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_export_of_cvat(check: Check, shard: bytes, method: int) -> None:
    files = [("default.tfrecord", shard), ("label_map.pbtxt", LABEL_MAP), ("images/а.jpg", b"x")]
    names = [name for name, _ in files]
    checked = check(real_zip(files, method))
    assert (checked.findings, checked.names) == ([], names)
    assert checked.bytes_read == {"default.tfrecord": shard}
    (only,) = checked.dataset.shards
    assert (only.name, only.subset) == ("a.zip:default.tfrecord", "default")
    assert only.label_map == "a.zip:label_map.pbtxt" and only.size == len(shard)
    assert [one.name for one in checked.dataset.zips[0].other_entries] == names[1:]
    with pickle.loads(pickle.dumps(only)).open() as stream:
        assert stream.read(len(shard)) == shard


def test_an_export_of_roboflow(check: Check, shard: bytes) -> None:
    own = {"Objects.tfrecord": shard, "Objects_label_map.pbtxt": LABEL_MAP}
    files = [("README.roboflow.txt", b"hello")]
    files += [(f"{split}/{name}", own[name]) for split in ("train", "valid") for name in own]
    checked = check(real_zip(files))
    assert checked.findings == []
    assert [(one.subset, one.label_map) for one in checked.dataset.shards] == [
        (split, f"a.zip:{split}/Objects_label_map.pbtxt") for split in ("train", "valid")
    ]


def test_streaming_writers_prefixes_comments_folders_and_zip64(check: Check, shard: bytes) -> None:
    class Pipe(io.BytesIO):
        def tell(self) -> int:
            raise OSError  # zipfile recognizes a pipe by this

    pipe, large = Pipe(), io.BytesIO()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("train") if hasattr(archive, "mkdir") else archive.writestr("train/", b"")
        archive.writestr("train/a.tfrecord", shard)
        archive.writestr("train/label_map.pbtxt", LABEL_MAP)
        archive.comment = b"made by a test"
    with zipfile.ZipFile(large, "w") as archive:
        with archive.open("train/a.tfrecord", "w", force_zip64=True) as file:
            file.write(shard)
        archive.writestr("train/label_map.pbtxt", LABEL_MAP)
    streamed, zip64 = pipe.getvalue(), large.getvalue()
    for data in (
        *(streamed, b"#!/bin/sh\n" + streamed, streamed + b"\r\n"),
        *(zip64, as_zip64(zip64), b"prefix" + as_zip64(zip64)),
    ):
        checked = check(data)
        assert (checked.findings, checked.bytes_read) == ([], {"train/a.tfrecord": shard})


def test_names_in_any_script_and_encoding(check: Check, shard: bytes) -> None:
    cp437 = "Grüße".encode("cp437")
    checked = check(forge(Item("кадр.tfrecord", shard), Item("ファイル.txt".encode()), Item(cp437)))
    assert checked.names == ["кадр.tfrecord", "ファイル.txt", "Grüße"] and checked.codes == []
    assert to_printable("кадр 1\u3000é.jpg") == "кадр 1\u3000é.jpg"
    assert to_printable("a\x1b[2J\u202egpj.exe\0") == r"a\x1b[2J\u202egpj.exe\x00"


DAMAGED = "its directory is damaged"
ONE_ENTRY = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 46, 0, 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty (0 bytes)"),
        (b"hello", "it has no zip directory"),
        (b"<html><body>404", "it is not a zip but an HTML page"),
        (b"\x1f\x8b\x08", "it is not a zip but a gzip file"),
        (forge(Item("a", b"x"))[:-22], "it is a truncated zip"),
        (forge()[:12] + b"\xff\0" + forge()[14:], DAMAGED),
        (b"x" * 46 + ONE_ENTRY, "is damaged"),
        (as_zip64(forge(), size=1 << 63), DAMAGED),
        (as_zip64(forge(), size=1 << 20), DAMAGED),
        (forge(Item(b"\xff", b"x", flags=0x800)), DAMAGED),
        (forge(Item("a", b"x", version=64)), f"{DAMAGED} (zip file version 6.4)"),
        (forge(Item("a", extra=b"\1\0\x08\0x")), DAMAGED),
    ],
)
def test_zip001(check: Check, data: bytes, message: str) -> None:
    checked = check(data)
    (finding,) = checked.findings
    assert (finding.code, finding.shard, checked.names) == ("ZIP001", "a.zip", [])
    assert message in finding.message and "\n" not in finding.message


@pytest.mark.parametrize(
    "name",
    [
        *("../a.tfrecord", "x/../../a.tfrecord", "..\\a.tfrecord", "x\\..\\a.tfrecord", ".. /a"),
        *("x/.. ./a", "C:\\a.tfrecord", "c:a.tfrecord", "a\0.tfrecord", "a\n.tfrecord", "\x1b[2J"),
        *("", ".", "a/..", "/a.record", "\\a.record", "\\\\server\\share\\a.record", "/"),
    ],
)
def test_zip002(check: Check, name: str) -> None:
    checked = check(forge(Item(name, b"x"), Item("b.record", b"y")))
    assert (checked.codes, checked.names) == (["ZIP002"], ["b.record"])
    assert all(one.message.isprintable() and one.shard.isprintable() for one in checked.findings)


@pytest.mark.parametrize(
    ("first", "second", "message", "kept"),
    [
        ("a.record", "a.record", "entries 0 and 1 have this name", 1),
        ("a.record", "./a.record", "entries 0 and 1 have this name", 1),
        ("a.record", "A.record", "differs from a.record only in case", 2),
        ("é.record", "e\u0301.record", "encoding of accents", 2),
        ("STRASSE.record", "straße.record", "only in case", 2),
        ("a.record", "a.record/", "entries 0 and 1 have this name", 1),
    ],
)
def test_zip005(
    check: Check, shard: bytes, first: str, second: str, message: str, kept: int
) -> None:
    checked = check(forge(Item(first, b"old"), Item(second, shard)))
    assert [message in one for one in checked.messages("ZIP005")] == [True]
    assert len(checked.names) == kept
    assert second.endswith("/") or kept != 1 or list(checked.bytes_read.values()) == [shard]


def test_zip007_one_body_for_two_names(check: Check, shard: bytes) -> None:
    """Python before 3.11.8 reads such entries without an error."""
    checked = check(forge(Item("a.record", shard), Item("b.record", shard, start=0)))
    assert checked.codes == ["ZIP007", "ZIP012"]  # the local header has one of the two names
    assert checked.names == ["b.record"]


FIVE = forge(*(Item(f"{number}.record", frame(b"")) for number in range(5)))


@pytest.mark.parametrize(
    ("data", "limits", "messages", "kept"),
    [
        (quoting_zip(), {}, ["its data overlap the entry 1.record by"] + [""] * 3, ["4.record"]),
        (forge(Item("a.record", bytes(20 * MIB))), {}, ["the maximum is 200 times"], []),
        (FIVE, {"entries": 4}, ["it has more than 4 entries; none was read"], []),
        (FIVE, {"directory_bytes": 120}, [""], []),
        (FIVE, {"entries": 5}, [], [f"{number}.record" for number in range(5)]),
    ],
)
def test_zip007(check: Check, data: bytes, limits: Any, messages: list[str], kept: Any) -> None:
    checked = check(data, **limits)
    assert checked.codes == ["ZIP007"] * bool(messages)
    found = checked.messages("ZIP007")
    assert all(one in message for one, message in zip(messages, found, strict=True))
    assert list(checked.bytes_read) == kept


DATA = random.Random(0).randbytes(400)
PACKED = deflate(DATA)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": 0xFFFFFFF0}, "no entry begins at byte 4294967280"),
        ({"own_name": b"c.record"}, "its local header has a different name: c.record"),
        ({"own_name": b"a.record2"}, "its local header has a different name"),
        *(
            ({"method": method, **change}, message)
            for method in (0, 8)
            for change, message in (
                ({"crc": 7}, "its CRC-32 differs from 00000007"),
                ({"size": 3}, "its CRC-32 differs|of 3 declared bytes"),
                ({"size": 1000}, "of 1000 declared bytes"),
            )
        ),
        ({"packed": b"\xff" * 40}, "are damaged after 0 bytes"),
        ({"packed": PACKED[:-3]}, r"it ends after [1-9]\d* of 400 declared bytes"),
        ({"packed": b""}, "it ends after 0 of 400 declared bytes"),
        # A bomb that declares a small size.
        ({"data": b"", "packed": deflate(bytes(20 * MIB)), "size": 100}, ""),
    ],
)
def test_zip012(check: Check, shard: bytes, changes: dict[str, Any], message: str) -> None:
    checked = check(forge(Item("b.record", shard), Item("a.record", **{"data": DATA, **changes})))
    assert [(one.code, one.shard) for one in checked.findings] == [("ZIP012", "a.zip:a.record")]
    assert re.search(message, checked.messages("ZIP012")[0])
    assert checked.bytes_read == {"b.record": shard}


def test_zip013(check: Check) -> None:
    assert check(forge()).messages("ZIP013") == ["the zip contains no files"]
    checked = check(real_zip([("a.jpg", b""), ("label_map.pbtxt", LABEL_MAP)]))
    assert checked.messages("ZIP013") == ["there is no TFRecord shard among its 2 files"]
    csv = ("a.csv", b"filename,class,xmin,ymin,xmax,ymax")
    (finding,) = check(real_zip([csv, ("annotations.xml", b"<annotations>")])).findings
    assert (finding.code, finding.value) == ("ZIP013", "CSV or CVAT for images")
    assert "CSV or CVAT for images annotations, not TFRecord" in finding.message
    assert "choose CVAT 1.1" in finding.fix and "tfod convert" in finding.fix


@pytest.mark.parametrize(
    ("names", "label_map", "candidates"),
    [
        (["maps/label_map.pbtxt"], None, []),
        (["label_map.pbtxt"], "label_map.pbtxt", []),
        (["x/cats_label_map.pbtxt", "x/dogs_label_map.pbtxt"], None, ["x/cats", "x/dogs"]),
        (["x/a_label_map.pbtxt", "x/dogs_label_map.pbtxt"], "x/a_label_map.pbtxt", []),
        (["x/a.pbtxt", "x/conv.pbtxt"], "x/a.pbtxt", []),  # the other is a graph of OpenCV
    ],
)
def test_label_map_of_a_shard(
    check: Check, shard: bytes, names: list[str], label_map: str | None, candidates: list[str]
) -> None:
    texts = [(one, LABEL_MAP if "conv" not in one else b"node { op: 'Conv2D' }") for one in names]
    checked = check(real_zip([("x/a.record", shard), *texts]))
    assert checked.codes == []
    (only,) = checked.dataset.shards
    assert only.label_map == (label_map and f"a.zip:{label_map}")
    assert list(only.candidates) == [f"a.zip:{one}_label_map.pbtxt" for one in candidates]
    found = check_sources([str(Path(only.path).parents[1])]).counts.by_code
    assert ("LAB001" in found) == (label_map is None)


def test_a_zip_is_recognised_by_its_bytes(tmp_path: Path, shard: bytes) -> None:
    data = real_zip([("a.record", shard), ("label_map.pbtxt", LABEL_MAP)])
    for path in (tmp_path / name for name in ("a", "a.bin", "a-00000-of-00002", "a.tfrecord")):
        path.write_bytes(data)
        report = check_sources([str(path)])
        assert report.counts.records == 2 and "TFR001" not in report.counts.by_code
        assert [len(one.paths) for one in find_shards(path)] == [1]
    head = b"PK\3\4\0\0\0\0"  # a length of a record
    path.write_bytes(head + masked_crc32c(head).to_bytes(4, "little"))
    assert "TFR005" in check_sources([str(path)]).counts.by_code


def test_streams_are_read_in_turn_and_into_pieces(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(300_000) + bytes(300_000)
    path = tmp_path / "a.zip"
    path.write_bytes(forge(Item("a", data), Item("b", data, method=0)))
    streams = [entry.open() for entry in read_zip(str(path)).entries.values()]
    copies, target = [b"", b""], bytearray(70_001)
    for _ in range(60):
        for number, stream in enumerate(streams):
            assert stream.readinto(memoryview(target)[:0]) == 0
            copies[number] += target[: stream.readinto(memoryview(target))]
    assert copies == [data, data]
    for stream in streams:
        stream.close()


NAMES = (
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
    .map(lambda text: "f" + text.replace("\\", "_").replace(":", "_"))
    .filter(lambda name: not name.endswith("/"))
)


@examples(60)
@given(
    files=st.dictionaries(NAMES, st.binary(max_size=300), max_size=5),
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_reads_what_zipfile_reads(tmp_path: Path, files: dict[str, bytes], method: int) -> None:
    path = tmp_path / "same.zip"
    path.write_bytes(real_zip(files.items(), method))
    content = read_zip(str(path))
    assert {one.name for one in content.readable.values()} == set(files)
    for entry in content.entries.values():
        with entry.open() as stream:
            assert io.BufferedReader(stream).read() == files[entry.name]
