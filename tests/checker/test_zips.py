"""Zips around shards: hostile, damaged, ordinary."""

from __future__ import annotations

import io
import os
import pickle
import random
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
MIB = 1 << 20


@dataclass
class Checked:
    """What came of a check."""

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
    return lambda data, **options: check_zip(tmp_path / "a.zip", data, **options)


def check_zip(path: Path, data: bytes, limits: ZipLimits | None = None) -> Checked:
    """As a check does it: look through, read the shards, then the rest."""
    path.write_bytes(data)
    read: dict[str, bytes] = {}
    limits = limits or ZipLimits()
    dataset = resolve_zip(File.at(str(path), "a.zip"), limits)
    families = ("ZIP", "SET", "TFR")
    levels = {name: one for name, one in resolve_levels().items() if name[:3] in families}
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


# Nothing wrong


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_export_of_cvat_is_clean(check: Check, shard: bytes, method: int) -> None:
    files = [("default.tfrecord", shard), ("label_map.pbtxt", LABEL_MAP), ("images/а.jpg", b"x")]
    checked = check(real_zip(files, method))
    assert checked.findings == []
    assert checked.names == [name for name, _ in files]
    assert checked.bytes_read == {"default.tfrecord": shard}
    (only,) = checked.dataset.shards
    assert (only.name, only.subset) == ("a.zip:default.tfrecord", "default")
    assert only.label_map == "a.zip:label_map.pbtxt" and only.size == len(shard)
    others = [one.name for one in checked.dataset.zips[0].other_entries]
    assert others == [name for name, _ in files[1:]]
    again = pickle.loads(pickle.dumps(only))
    with again.open() as stream:
        assert stream.read(len(shard)) == shard


def test_an_export_of_roboflow_is_clean(check: Check, shard: bytes) -> None:
    own = {"Objects.tfrecord": shard, "Objects_label_map.pbtxt": LABEL_MAP}
    files = [("README.roboflow.txt", b"hello")]
    files += [(f"{split}/{name}", own[name]) for split in ("train", "valid") for name in own]
    checked = check(real_zip(files))
    assert checked.findings == []
    assert [one.subset for one in checked.dataset.shards] == ["train", "valid"]
    maps = [one.label_map for one in checked.dataset.shards]
    assert maps == [f"a.zip:{files[2][0]}", f"a.zip:{files[4][0]}"]


def test_streaming_writers_prefixes_comments_and_folders_are_fine(
    check: Check, shard: bytes, tmp_path: Path
) -> None:
    class Pipe(io.BytesIO):
        def tell(self) -> int:
            raise OSError  # so that zipfile takes it for a pipe

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("train") if hasattr(archive, "mkdir") else archive.writestr("train/", b"")
        archive.writestr("train/a.tfrecord", shard)
        archive.writestr("train/label_map.pbtxt", LABEL_MAP)
        archive.comment = b"made by a test"
    for data in (pipe.getvalue(), b"#!/bin/sh\n" + pipe.getvalue(), pipe.getvalue() + b"\r\n"):
        checked = check(data)
        assert checked.findings == []
        assert list(checked.bytes_read.values()) == [shard]


def test_zip64_is_read(check: Check, shard: bytes) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        with archive.open("a.tfrecord", "w", force_zip64=True) as file:
            file.write(shard)
        archive.writestr("label_map.pbtxt", LABEL_MAP)
    assert check(buffer.getvalue()).findings == []
    assert check(as_zip64(buffer.getvalue())).findings == []
    assert check(b"prefix" + as_zip64(buffer.getvalue())).findings == []


def test_names_in_any_script_and_encoding(check: Check, shard: bytes) -> None:
    cp437 = "Grüße".encode("cp437")
    checked = check(forge(Item("кадр.tfrecord", shard), Item("ファイル.txt".encode()), Item(cp437)))
    assert checked.names == ["кадр.tfrecord", "ファイル.txt", "Grüße"]
    assert checked.codes == []


def test_names_are_shown_in_their_script_with_the_rest_escaped() -> None:
    assert to_printable("кадр 1\u3000é.jpg") == "кадр 1\u3000é.jpg"
    assert to_printable("a\x1b[2J\u202egpj.exe\0") == r"a\x1b[2J\u202egpj.exe\x00"


# ZIP001


@pytest.mark.parametrize(
    ("data", "output"),
    [
        (b"", "it is empty (0 bytes)"),
        (b"hello", "it has no zip directory"),
        (b"<html><body>404", "it is not a zip but an HTML page"),
        (b"\x1f\x8b\x08", "it is not a zip but a gzip file"),
        (forge(Item("a", b"x"))[:-22], "it is a truncated zip"),
        (forge()[:12] + b"\xff\0" + forge()[14:], "its directory is damaged"),
        (b"x" * 46 + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 46, 0, 0), "is damaged"),
        (as_zip64(forge(), size=1 << 63), "its directory is damaged"),
        (as_zip64(forge(), size=1 << 20), "its directory is damaged"),
        (forge(Item(b"\xff", b"x", flags=0x800)), "its directory is damaged"),
        (forge(Item("a", b"x", version=64)), "its directory is damaged (zip file version 6.4)"),
        (forge(Item("a", extra=b"\1\0\x08\0x")), "its directory is damaged"),
    ],
)
def test_zip001_the_whole(check: Check, data: bytes, output: str) -> None:
    checked = check(data)
    (finding,) = checked.findings
    assert finding.code == "ZIP001"
    assert output in finding.message and "\n" not in finding.message
    assert finding.shard == "a.zip"
    assert checked.names == []


# ZIP002 to ZIP005, ZIP010, ZIP011: what the headers say


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
    assert checked.codes == ["ZIP002"]
    assert checked.names == ["b.record"]
    assert all(one.message.isprintable() and one.shard.isprintable() for one in checked.findings)


@pytest.mark.parametrize(
    ("first", "second", "output", "kept"),
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
    check: Check, shard: bytes, first: str, second: str, output: str, kept: int
) -> None:
    checked = check(forge(Item(first, b"old"), Item(second, shard)))
    assert [output in one for one in checked.messages("ZIP005")] == [True]
    assert len(checked.names) == kept
    assert second.endswith("/") or kept != 1 or list(checked.bytes_read.values()) == [shard]


def test_zip007_one_body_for_two_names(check: Check, shard: bytes) -> None:
    """Python before 3.11.8 reads such entries without complaint."""
    twice = forge(Item("a.record", shard), Item("b.record", shard, start=0))
    checked = check(twice)
    assert checked.codes == ["ZIP007", "ZIP012"]  # it has one name of the two
    assert checked.names == ["b.record"]


FIVE = forge(*(Item(f"{number}.record", frame(b"")) for number in range(5)))


@pytest.mark.parametrize(
    ("data", "limits", "said", "kept"),
    [
        (quoting_zip(), {}, ["its data overlap the entry 1.record by"] + [""] * 3, ["4.record"]),
        (forge(Item("a.record", bytes(20 * MIB))), {}, ["the maximum is 200 times"], []),
        (FIVE, {"entries": 4}, ["it has more than 4 entries; none was read"], []),
        (FIVE, {"directory_bytes": 120}, [""], []),
        (FIVE, {"entries": 5}, [], [f"{number}.record" for number in range(5)]),
    ],
)
def test_zip007(
    check: Check, data: bytes, limits: dict[str, int], said: list[str], kept: list[str]
) -> None:
    checked = check(data, limits=ZipLimits(**limits))
    assert checked.codes == ["ZIP007"] * bool(said)
    messages = checked.messages("ZIP007")
    assert all(one in message for one, message in zip(said, messages, strict=True))
    assert list(checked.bytes_read) == kept


# ZIP012

DATA = random.Random(0).randbytes(400)
PACKED = deflate(DATA)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Item("a.record", b"x", start=0xFFFFFFF0), "no entry begins at byte 4294967280"),
        (
            Item("a.record", b"x", own_name=b"c.record"),
            "its local header has a different name: c.record",
        ),
        (Item("a.record", b"x", own_name=b"a.record2"), "its local header has a different name"),
        *(
            (Item("a.record", DATA, method=method, **change), said)
            for method in (0, 8)
            for change, said in (
                ({"crc": 7}, "its CRC-32 differs from 00000007"),
                ({"size": 3}, "its CRC-32 differs|of 3 declared bytes"),
                ({"size": 1000}, "of 1000 declared bytes"),
            )
        ),
        (Item("a.record", DATA, packed=b"\xff" * 40), "are damaged after 0 bytes"),
        (
            Item("a.record", DATA, packed=PACKED[:-3]),
            r"it ends after [1-9]\d* of 400 declared bytes",
        ),
        (Item("a.record", DATA, packed=b""), "it ends after 0 of 400 declared bytes"),
        # A bomb that looks like none.
        (Item("a.record", packed=deflate(bytes(20 * MIB)), size=100), ""),
    ],
)
def test_zip012(check: Check, shard: bytes, item: Item, said: str) -> None:
    checked = check(forge(Item("b.record", shard), item))
    assert [(one.code, one.shard) for one in checked.findings] == [("ZIP012", "a.zip:a.record")]
    assert re.search(said, checked.messages("ZIP012")[0])
    assert checked.bytes_read == {"b.record": shard}


# ZIP013 and ZIP016: what is in it


def test_zip013(check: Check) -> None:
    assert check(forge()).messages("ZIP013") == ["the zip contains no files"]
    checked = check(real_zip([("a.jpg", b""), ("label_map.pbtxt", LABEL_MAP)]))
    assert checked.messages("ZIP013") == ["none of its 2 files is a TFRecord shard"]


def test_zip013_names_other_formats(check: Check) -> None:
    files = [
        ("a.csv", b"filename,class,xmin,ymin,xmax,ymax"),
        ("annotations.xml", b"<annotations>"),
    ]
    (finding,) = check(real_zip(files)).findings
    assert (finding.code, finding.value) == ("ZIP013", "CSV or CVAT for images")
    assert finding.message == "the zip contains CSV or CVAT for images annotations, not TFRecord"
    assert finding.fix == (
        "To import these into CVAT, choose CVAT 1.1 in its menu. For shards, export TFRecord 1.0 "
        "instead, or convert the zip with tfod convert."
    )


# Its label maps


@pytest.mark.parametrize(
    ("names", "label_map", "candidates"),
    [
        (["maps/label_map.pbtxt"], None, []),
        (["label_map.pbtxt"], "label_map.pbtxt", []),
        (["x/cats_label_map.pbtxt", "x/dogs_label_map.pbtxt"], None, ["x/cats", "x/dogs"]),
        (["x/a_label_map.pbtxt", "x/dogs_label_map.pbtxt"], "x/a_label_map.pbtxt", []),
        (["x/a.pbtxt", "x/conv.pbtxt"], "x/a.pbtxt", []),  # the other is a graph of OpenCV's
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


@pytest.mark.parametrize("name", ["a.tfrecord", "a.bin", "a-00000-of-00002", "a"])
def test_known_by_its_bytes(tmp_path: Path, shard: bytes, name: str) -> None:
    files = [("a.record", shard), ("label_map.pbtxt", LABEL_MAP)]
    (tmp_path / name).write_bytes(real_zip(files))
    report = check_sources([str(tmp_path / name)])
    assert report.counts.records == 2 and "TFR001" not in report.counts.by_code
    assert [len(one.paths) for one in find_shards(tmp_path / name)] == [1]


def test_a_record_as_long_as_a_zip_begins_is_none(tmp_path: Path) -> None:
    length = int.from_bytes(b"PK\3\4\0\0\0\0", "little")
    head = length.to_bytes(8, "little")
    (tmp_path / "a.tfrecord").write_bytes(head + masked_crc32c(head).to_bytes(4, "little"))
    assert check_sources([str(tmp_path / "a.tfrecord")]).counts.by_code.keys() >= {"TFR005"}


# The streams


def test_streams_may_be_read_in_turn_and_into_pieces(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(300_000) + bytes(300_000)
    path = tmp_path / "a.zip"
    path.write_bytes(forge(Item("a", data), Item("b", data, method=0)))
    streams = [entry.open() for entry in read_zip(str(path)).entries.values()]
    copies = [b"", b""]
    target = bytearray(70_001)
    for _ in range(60):
        for place, stream in enumerate(streams):
            assert stream.readinto(memoryview(target)[:0]) == 0
            count = stream.readinto(memoryview(target))
            copies[place] += target[:count]
    assert copies == [data, data]
    for stream in streams:
        stream.close()


# Anything at all


@examples(60)
@given(
    files=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
        .map(lambda text: "f" + text.replace("\\", "_").replace(":", "_"))
        .filter(lambda name: not name.endswith("/")),
        st.binary(max_size=300),
        max_size=5,
    ),
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_reads_what_zipfile_reads(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], method: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"same-{os.getpid()}.zip"
    path.write_bytes(real_zip(files.items(), method))
    content = read_zip(str(path))
    assert {one.name for one in content.readable.values()} == set(files)
    for entry in content.entries.values():
        with entry.open() as stream:
            assert io.BufferedReader(stream).read() == files[entry.name]
