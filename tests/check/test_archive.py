"""Zips around shards: hostile, damaged, ordinary."""

from __future__ import annotations

import gzip
import io
import os
import random
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import Finding
from tfod.check.profiles.policy import Policy
from tfod.check.sources.archive import Archive, ArchiveDamageError, ArchiveLimits
from tfod.check.sources.archive_contents import Contents, look_through
from tfod.tfrecord.reader import read_record_stream
from tfod.tfrecord.storage.zip_directory import printable

from tests.conftest import examples
from tests.zip_forge import Item, as_zip64, deflate, forge, quoting_zip, real_zip

LABEL_MAP = b"item { id: 1 name: 'cat' }\n"
MIB = 1 << 20


@dataclass
class Checked:
    """What came of a check."""

    findings: list[Finding]
    names: list[str]
    contents: Contents
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


def check_zip(
    path: Path, data: bytes, limits: ArchiveLimits | None = None, needs_label_map: bool = True
) -> Checked:
    """As the engine does it: look through, read shards, drain the rest."""
    path.write_bytes(data)
    collector = Collector(Policy(), 1000)
    read: dict[str, bytes] = {}
    with Archive(str(path), "a.zip", None, limits) as archive:
        contents = look_through(archive, needs_label_map=needs_label_map)
        contents.begin(collector)
        for entry in (one.entry for one in contents.shards):
            try:
                with archive.open(entry) as stream:
                    read[entry.path] = b"".join(iter(lambda: stream.read(1 << 16), b""))
            except ArchiveDamageError as error:
                assert str(error) == f"a.zip:{entry.shown}: cannot be read further"
        for entry in archive.entries:
            archive.drain(entry)
        names = [entry.name for entry in archive.entries]
    listed = [one for some in collector.findings.listed.values() for one in some]
    assert len(listed) == sum(collector.findings.by_code().values())
    return Checked(listed, names, contents, read)


# Nothing wrong


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_export_of_cvat_is_clean(check: Check, shard: bytes, method: int) -> None:
    files = [("default.tfrecord", shard), ("label_map.pbtxt", LABEL_MAP), ("images/а.jpg", b"x")]
    checked = check(real_zip(files, method))
    assert checked.findings == []
    assert checked.names == [name for name, _ in files]
    assert checked.bytes_read == {"default.tfrecord": shard}
    (only,) = checked.contents.shard_sets
    assert only.subset == "default"
    label_map = checked.contents.shards[0].label_map
    assert label_map is not None
    assert label_map.name == "label_map.pbtxt"
    assert [one.name for one in checked.contents.others] == ["label_map.pbtxt", "images/а.jpg"]


def test_an_export_of_roboflow_is_clean(check: Check, shard: bytes) -> None:
    files = [("README.roboflow.txt", b"hello")]
    for split in ("train", "valid"):
        files.append((f"{split}/Objects.tfrecord", shard))
        files.append((f"{split}/Objects_label_map.pbtxt", LABEL_MAP))
    checked = check(real_zip(files))
    assert checked.findings == []
    assert [one.subset for one in checked.contents.shard_sets] == ["train", "valid"]
    maps = [one.label_map for one in checked.contents.shards]
    assert [one.path for one in maps if one] == [files[2][0], files[4][0]]


def test_missing_shards_of_a_set_are_named(check: Check, shard: bytes) -> None:
    data = real_zip([("x/a-00001-of-00002", shard), ("x/label_map.pbtxt", LABEL_MAP)])
    (only,) = check(data).contents.shard_sets
    assert (only.subset, only.missing) == ("a", ("a-00000-of-00002",))


def test_streaming_writers_prefixes_comments_and_folders_are_fine(
    check: Check, shard: bytes, tmp_path: Path
) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise OSError

        def tell(self) -> int:
            raise OSError

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
    field = b"\1" + zlib.crc32(b"x.txt").to_bytes(4, "little") + "ゆ.txt".encode()
    unicode_path = struct.pack("<HH", 0x7075, len(field)) + field
    checked = check(
        forge(
            Item("кадр.tfrecord", shard),
            Item("ファイル.txt".encode()),
            Item(cp437),
            Item(b"x.txt", extra=unicode_path),
            Item(b"y.txt", extra=unicode_path),
        )
    )
    assert checked.names == ["кадр.tfrecord", "ファイル.txt", "Grüße", "ゆ.txt", "y.txt"]
    assert checked.codes == ["ZIP014"]


def test_names_are_shown_in_their_script_with_the_rest_escaped() -> None:
    assert printable("кадр 1\u3000é.jpg") == "кадр 1\u3000é.jpg"
    assert printable("a\x1b[2J\u202egpj.exe\0") == r"a\x1b[2J\u202egpj.exe\x00"


# ZIP001


@pytest.mark.parametrize(
    ("data", "output"),
    [
        (b"", "it is empty (0 bytes)"),
        (b"hello", "it has no directory of a zip"),
        (b"<html><body>404", "it is not a zip but an HTML page"),
        (b"\x1f\x8b\x08", "it is not a zip but a gzip file"),
        (forge(Item("a", b"x"))[:-22], "it begins as a zip and was cut off"),
        (forge(Item("a", b"x"), promise=2), "its end record promises 2 entries and the directory"),
        (forge()[:4] + b"\1" + forge()[5:], "it is one part of an archive that was split"),
        (forge()[:12] + b"\xff\0" + forge()[14:], "its end record places a directory of 255"),
        (forge()[:12] + struct.pack("<LL", 0, 9) + b"\0\0", "its end record places a directory"),
        (b"x" * 46 + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 46, 0, 0), "is damaged at"),
        (as_zip64(forge(), at=77), "its zip64 end record is not where"),
        (as_zip64(forge(), short=5), "its two end records, zip and zip64, contradict"),
        (as_zip64(forge(Item("a")), count=1 << 40), "its end record promises 1099511627776"),
        (as_zip64(forge(), length=43), "its zip64 end record has a wrong length"),
        (as_zip64(forge(), size=1 << 63), "its end record places a directory"),
        (as_zip64(forge(), offset=1 << 63), "its end record places a directory"),
        (b"\0" + as_zip64(forge())[76 - 20 :], "its zip64 end record is missing"),
    ],
)
def test_zip001_the_whole(check: Check, data: bytes, output: str) -> None:
    checked = check(data)
    assert checked.codes == ["ZIP001"]
    (message,) = checked.messages("ZIP001")
    assert output in message
    assert checked.findings[0].shard == "a.zip"
    assert checked.names == []


@pytest.mark.parametrize(
    ("item", "output"),
    [
        (Item("b.tfrecord", b"x", start=5), "no entry begins at byte 5"),
        (Item("b.tfrecord", b"x", start=0xFFFFFFF0), "no entry begins at byte 4294967280"),
        (Item("b.tfrecord", b"x", own_name=b"c.tfrecord"), "its own header calls it c.tfrecord"),
        (Item("b.tfrecord", b"x", own_name=b"b.tfrecord2"), "its own header calls it"),
        (Item("b.tfrecord", b"x", own_method=0), "disagree on how it is packed"),
        (Item("b.tfrecord", b"x", own_size=9), "its own header says size 9 and the directory 1"),
        (Item(b"\xffb.tfrecord", b"x", flags=0x800), "its name is marked as UTF-8 and is not"),
        (Item("b.tfrecord", b"x", version=64), "it claims to need version 6.4 of the zip"),
        (Item("b.tfrecord", size=0xFFFFFFFF), "its zip64 field is missing or too short"),
        (Item("b.tfrecord", extra=b"\1\0\x08\0x"), "an extra field of its directory record runs"),
    ],
)
def test_zip001_one_entry(check: Check, shard: bytes, item: Item, output: str) -> None:
    checked = check(forge(Item("a.tfrecord", shard), item), needs_label_map=False)
    assert checked.codes == ["ZIP001"]
    (message,) = checked.messages("ZIP001")
    assert output in message
    assert checked.findings[0].shard.endswith("b.tfrecord")
    assert checked.names == ["a.tfrecord"]
    assert checked.bytes_read == {"a.tfrecord": shard}


def test_zip001_zip64_figures_that_lie_are_damage(check: Check, shard: bytes) -> None:
    extra = struct.pack("<HHQ", 1, 8, 1 << 63)
    for field in ("size", "packed_size", "start"):
        lie = Item("b.tfrecord", b"x", extra=extra, **{field: 0xFFFFFFFF})
        codes = check(forge(Item("a.tfrecord", shard), lie), needs_label_map=False).codes
        assert codes == {"size": ["ZIP012"], "packed_size": ["ZIP006"], "start": ["ZIP001"]}[field]


# ZIP002 to ZIP005, ZIP010, ZIP011: what the headers say


@pytest.mark.parametrize(
    "name",
    [
        *("../a.tfrecord", "x/../../a.tfrecord", "..\\a.tfrecord", "x\\..\\a.tfrecord", ".. /a"),
        *("x/.. ./a", "C:\\a.tfrecord", "c:a.tfrecord", "a\0.tfrecord", "a\n.tfrecord", "\x1b[2J"),
        *("", ".", "a/.."),
    ],
)
def test_zip002(check: Check, name: str) -> None:
    checked = check(forge(Item(name, b"x"), Item("a.record", b"y")), needs_label_map=False)
    assert checked.codes == ["ZIP002"]
    assert checked.names == ["a.record"]
    assert all(one.message.isprintable() and one.shard.isprintable() for one in checked.findings)


@pytest.mark.parametrize(
    "name", ["./a.record", "x/..a", "x/a..", "x//a", "x\\a", "...a", "cd:a", "€ 1/ё"]
)
def test_zip002_near(check: Check, shard: bytes, name: str) -> None:
    checked = check(forge(Item(name, b"x"), Item("b.record", shard)), needs_label_map=False)
    assert checked.codes == []
    assert len(checked.names) == 2


@pytest.mark.parametrize("name", ["/a.record", "\\a.record", "\\\\server\\share\\a.record", "/"])
def test_zip003(check: Check, name: str) -> None:
    checked = check(forge(Item(name, b"x"), Item("b.record", b"y")), needs_label_map=False)
    assert checked.codes == ["ZIP003"]
    assert checked.names == ["b.record"]


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        (stat.S_IFLNK, "it is a symbolic link"),
        (stat.S_IFIFO, "it is a named pipe"),
        (stat.S_IFCHR, "it is a character device"),
        (stat.S_IFSOCK, "it is a socket"),
    ],
)
def test_zip004(check: Check, kind: int, output: str) -> None:
    data = forge(Item("a.record", b"/etc/passwd", mode=kind | 0o777))
    checked = check(data, needs_label_map=False)
    assert checked.messages("ZIP004") == [output]
    assert checked.codes == ["ZIP004"]  # and not ZIP013: there is a shard, it is not read
    assert checked.names == []


def test_zip004_near(check: Check, shard: bytes) -> None:
    folder = Item("x", mode=stat.S_IFDIR | 0o755, method=0)
    unknown = Item("a.record", shard, mode=0)
    assert check(forge(folder, unknown), needs_label_map=False).codes == []


@pytest.mark.parametrize(
    ("first", "second", "output", "kept"),
    [
        ("a.record", "a.record", "entries 0 and 1 have this name", 1),
        ("a.record", "./a.record", "entries 0 and 1 have this name", 1),
        ("a.record", "A.record", "differs from a.record only by case", 2),
        ("é.record", "e\u0301.record", "how accents are encoded", 2),
        ("STRASSE.record", "straße.record", "only by case", 2),
        ("a.record", "a.record/", "entries 0 and 1 have this name", 0),
    ],
)
def test_zip005(
    check: Check, shard: bytes, first: str, second: str, output: str, kept: int
) -> None:
    checked = check(forge(Item(first, b"old"), Item(second, shard)), needs_label_map=False)
    assert [output in one for one in checked.messages("ZIP005")] == [True]
    assert len(checked.names) == kept
    assert kept != 1 or list(checked.bytes_read.values()) == [shard]


def test_zip005_near(check: Check, shard: bytes) -> None:
    items = [Item("x/"), Item("x/"), Item("x/a.record", shard), Item("y/a.record", shard)]
    assert check(forge(*items), needs_label_map=False).codes == []


def test_zip006_quoted_headers(check: Check) -> None:
    checked = check(quoting_zip(), needs_label_map=False)
    assert len(checked.messages("ZIP006")) == 4
    assert "its data overlap the entry 1.record by" in checked.messages("ZIP006")[0]
    assert checked.names == ["4.record"]


def test_zip006_one_body_for_two_names_and_into_the_directory(check: Check, shard: bytes) -> None:
    twice = forge(Item("a.record", shard, own_name=b"a.record"), Item("a.record", shard, start=0))
    assert check(twice, needs_label_map=False).codes == ["ZIP005", "ZIP006"]
    deep = forge(Item("a.record", shard, method=0, packed_size=len(shard) + 1))
    checked = check(deep, needs_label_map=False)
    assert checked.messages("ZIP006") == ["its data overlap the archive's directory by 1 bytes"]


@pytest.mark.parametrize("method", [0, 8])
def test_zip010_encrypted(check: Check, shard: bytes, method: int) -> None:
    checked = check(forge(Item("a.record", shard, method=method, flags=1)), needs_label_map=False)
    assert checked.codes == ["ZIP010"]
    assert checked.names == []
    aes = forge(Item("a.record", shard, method=99, flags=1))
    assert check(aes, needs_label_map=False).codes == ["ZIP010"]


@pytest.mark.parametrize(
    ("method", "output"), [(99, "AES encryption"), (9, "Deflate64"), (12, "BZIP2"), (77, "unknown")]
)
def test_zip011_unsupported(check: Check, shard: bytes, method: int, output: str) -> None:
    checked = check(forge(Item("a.record", shard, method=method)), needs_label_map=False)
    assert checked.codes == ["ZIP011"]
    assert output in checked.messages("ZIP011")[0]
    patch = check(forge(Item("a.record", shard, flags=1 << 5)), needs_label_map=False)
    assert patch.messages("ZIP011") == ["it holds patches of a file and not the file"]


# ZIP007 to ZIP009: limits, checked while reading


def test_zip007_bomb(check: Check) -> None:
    checked = check(forge(Item("a.record", bytes(20 * MIB))), needs_label_map=False)
    assert checked.codes == ["ZIP007"]
    assert "200 times are allowed" in checked.messages("ZIP007")[0]
    assert checked.findings[0].shard == "a.zip:a.record"


def test_zip007_is_not_fooled_by_headers(check: Check) -> None:
    packed = deflate(bytes(20 * MIB))
    honest_look = Item("a.record", packed=packed, size=100)
    assert check(forge(honest_look), needs_label_map=False).codes == ["ZIP012"]
    padded = Item("a.record", packed=packed + random.Random(0).randbytes(MIB), size=20 * MIB)
    assert check(forge(padded), needs_label_map=False).codes == ["ZIP007"]


def test_zip007_near(check: Check) -> None:
    small = Item("a.record", bytes(4 * MIB))
    assert check(forge(small), needs_label_map=False).codes == []
    dense = random.Random(0).randbytes(1 << 15)
    mixed = Item("b.record", (dense + bytes(MIB)) * 20)
    assert check(forge(small, mixed), needs_label_map=False).codes == []


def test_zip008_total(check: Check) -> None:
    part = random.Random(0).randbytes(MIB)
    data = forge(*(Item(f"{number}.record", part, method=0) for number in range(5)))
    checked = check(data, limits=ArchiveLimits(total_bytes=3 * MIB + 1024), needs_label_map=False)
    assert [(one.code, one.shard) for one in checked.findings] == [("ZIP008", "a.zip")]
    assert sorted(checked.bytes_read) == ["0.record", "1.record", "2.record"]
    exact = ArchiveLimits(total_bytes=5 * MIB)
    assert check(data, limits=exact, needs_label_map=False).codes == []


def test_zip009_entries(check: Check, shard: bytes) -> None:
    data = forge(*(Item(f"{number}.record", shard) for number in range(5)))
    checked = check(data, limits=ArchiveLimits(entries=4), needs_label_map=False)
    assert checked.messages("ZIP009") == [
        "it has more than 4 entries, 5 by its end record; the rest was not read"
    ]
    assert len(checked.bytes_read) == 4
    assert check(data, limits=ArchiveLimits(entries=5), needs_label_map=False).codes == []
    long_names = ArchiveLimits(directory_bytes=120)
    assert check(data, limits=long_names, needs_label_map=False).codes == ["ZIP009"]


# ZIP012


@pytest.mark.parametrize("method", [0, 8])
@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"crc": 7}, "and 00000007 according to the directory"),
        ({"size": 3}, "it holds more than the 3 bytes that it declares"),
        ({"size": 1000}, "of the 1000 bytes it declares"),
    ],
)
def test_zip012(
    check: Check, shard: bytes, method: int, change: dict[str, int], output: str
) -> None:
    bad = replace(Item("a.record", shard, method=method), **change)
    checked = check(forge(bad, Item("b.record", shard)), needs_label_map=False)
    assert [(one.code, one.shard) for one in checked.findings] == [("ZIP012", "a.zip:a.record")]
    assert output in checked.messages("ZIP012")[0]
    assert checked.bytes_read == {"b.record": shard}


def test_zip012_damaged_deflate(check: Check, shard: bytes) -> None:
    packed = deflate(shard)
    for bad, output in (
        (b"\xff" * 40, "are damaged after 0 bytes"),
        (packed[:-3], "end early"),
        (b"", "end early"),
        (packed + b"spare", "end 5 bytes before the declared end"),
    ):
        checked = check(forge(Item("a.record", shard, packed=bad)), needs_label_map=False)
        assert checked.codes == ["ZIP012"]
        assert output in checked.messages("ZIP012")[0]


def test_zip012_is_said_of_images_as_well(check: Check, shard: bytes) -> None:
    data = forge(Item("a.record", shard), Item("b.jpg", b"image", crc=0))
    checked = check(data, needs_label_map=False)
    assert [(one.code, one.shard) for one in checked.findings] == [("ZIP012", "a.zip:b.jpg")]


# ZIP013 to ZIP017: what is in it


def test_zip013(check: Check) -> None:
    assert check(forge()).messages("ZIP013") == ["it has no files in it"]
    (message,) = check(real_zip([("a.jpg", b""), ("label_map.pbtxt", LABEL_MAP)])).messages(
        "ZIP013"
    )
    assert message == "none of its 2 files is a TFRecord shard"


@pytest.mark.parametrize(
    ("names", "other"),
    [
        (["annotations.xml"], "CVAT for images or video"),
        (["task_7/annotations.xml", "task_7/images/a.jpg"], "CVAT for images or video"),
        (["annotations/instances_default.json", "images/a.jpg"], "COCO"),
        (["train/_annotations.coco.json", "train/a.jpg"], "COCO"),
        (["annotations/default.json", "images/default/a.jpg"], "Datumaro"),
        (["obj.data", "obj.names", "train.txt", "obj_train_data/a.txt"], "YOLO"),
        (["data.yaml", "labels/train/a.txt", "images/train/a.jpg"], "YOLO"),
        (["a.txt", "a.jpg"], "YOLO"),
        (["labelmap.txt", "Annotations/a.xml", "ImageSets/Main/default.txt"], "Pascal VOC"),
        (["valid/a.xml", "valid/a.JPG"], "Pascal VOC"),
    ],
)
def test_zip013_names_other_formats(check: Check, names: list[str], other: str) -> None:
    (found,) = check(real_zip([(name, b"x") for name in names])).findings
    assert found.code == "ZIP013"
    output = f"this zip holds {other} annotations, not TFRecord"
    assert (found.message, found.value) == (output, other)
    assert found.fix == "Export the annotations as TFRecord 1.0 instead."


@pytest.mark.parametrize(
    "names", [["a.jpg"], ["notes.txt", "a.jpg"], ["a.json"], ["maps/annotations.txt"], ["a.xml"]]
)
def test_zip013_near_other_formats(check: Check, names: list[str]) -> None:
    (found,) = check(real_zip([(name, b"x") for name in names])).findings
    assert found.code == "ZIP013" and "of its" in found.message and found.value is None


def test_zip013_near_shards_by_content(check: Check, shard: bytes) -> None:
    checked = check(real_zip([("data", shard), ("zipped.bin", gzip.compress(shard))]))
    assert checked.codes == ["ZIP014"]
    assert sorted(checked.bytes_read) == ["data", "zipped.bin"]


def test_zip014(check: Check, shard: bytes) -> None:
    alone = real_zip([("x/a.record", shard)])
    assert check(alone).messages("ZIP014") == ["no label map is in it"]
    assert check(alone, needs_label_map=False).codes == []
    elsewhere = real_zip([("x/a.record", shard), ("maps/label_map.pbtxt", LABEL_MAP)])
    assert "maps/label_map.pbtxt is not looked for" in check(elsewhere).messages("ZIP014")[0]
    above = real_zip([("x/a.record", shard), ("label_map.pbtxt", LABEL_MAP)])
    assert check(above).codes == []


def test_zip015(check: Check, shard: bytes) -> None:
    shards = [("a.record", shard), ("b.record", shard)]
    candidates = [("cat_label_map.pbtxt", LABEL_MAP), ("dog_label_map.pbtxt", LABEL_MAP)]
    checked = check(real_zip([*shards, *candidates]))
    assert checked.messages("ZIP015") == [
        "cat_label_map.pbtxt, dog_label_map.pbtxt fit it equally well, and 1 more shard; "
        "none was used"
    ]
    assert checked.codes == ["ZIP015"]
    graph = [("x.pbtxt", LABEL_MAP), ("y.pbtxt", b"node { name: 'conv' op: 'Conv2D' }")]
    checked = check(real_zip([*shards, *graph]))
    assert checked.codes == []
    assert {one.label_map.name for one in checked.contents.shards if one.label_map} == {"x.pbtxt"}


@pytest.mark.parametrize(
    ("name", "data", "output"),
    [
        ("more.zip", b"", "a zip archive"),
        ("more", real_zip([("a", b"")]), "a zip archive"),
        ("a.jpg", real_zip([]), "a zip archive"),
        ("more.TAR", b"", "a tar archive"),
        ("more.bin", bytes(257) + b"ustar", "a tar archive"),
        ("a.json.gz", gzip.compress(b"{}", mtime=0), "a gzip file"),
        ("a.rar", b"", "a RAR archive"),
        ("b", b"Rar!\x1a\x07\0", "a RAR archive"),
        ("a.7z", b"", "a 7-Zip archive"),
        ("a", b"BZh9", "a bzip2 file"),
    ],
)
def test_zip016(check: Check, shard: bytes, name: str, data: bytes, output: str) -> None:
    checked = check(real_zip([("a.record", shard), (name, data)]), needs_label_map=False)
    assert checked.codes == ["ZIP016"]
    assert checked.messages("ZIP016") == [f"it is {output}, which was not looked into"]


def test_zip016_near(check: Check, shard: bytes) -> None:
    files = [
        ("a.record.gz", gzip.compress(shard, mtime=0)),
        ("weights.npz", real_zip([("a", b"")])),
        ("notes.txt", b"the word zip"),
        ("a.jpg", b"\xff\xd8\xff"),
    ]
    assert check(real_zip(files), needs_label_map=False).codes == []


def test_zip017(check: Check, shard: bytes) -> None:
    mac = ["__MACOSX/._a.record", "__MACOSX/x/._b", "x/.DS_Store", "._a.record", "x/._a.record"]
    files = [("a.record", shard), ("x/Thumbs.db", b"x"), *((name, b"x") for name in mac)]
    checked = check(real_zip(files), needs_label_map=False)
    assert checked.messages("ZIP017") == [
        "left behind by Windows: x/Thumbs.db",
        f"left behind by macOS: {', '.join(mac[:4])} and 1 more",
    ]
    assert checked.codes == ["ZIP017"]
    assert list(checked.bytes_read) == ["a.record"]
    icon = check(forge(Item("a.record", shard), Item("x/Icon\r")), needs_label_map=False)
    assert icon.messages("ZIP017") == [r"left behind by macOS: x/Icon\r"]
    assert icon.codes == ["ZIP017"]
    near = [("a.record", shard), (".gitignore", b""), ("MACOSX/a.txt", b""), ("x/thumbs.jpg", b"")]
    assert check(real_zip(near), needs_label_map=False).codes == []


# The streams


def test_records_are_read_from_the_stream(tmp_path: Path, shard: bytes) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(real_zip([("a.record", shard), ("b.record", gzip.compress(shard))]))
    collector = Collector(Policy(), 10)
    with Archive(str(path), "a.zip", collector) as archive:
        for entry in archive.entries:
            with archive.open(entry) as stream:
                assert len(list(read_record_stream(stream, entry.name))) == 2
    assert collector.findings.by_code() == {}


def test_streams_may_be_read_in_turn_and_into_pieces(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(300_000) + bytes(300_000)
    path = tmp_path / "a.zip"
    stored = Item("b", data, method=0)
    path.write_bytes(forge(Item("a", data), stored))
    collector = Collector(Policy(), 10)
    with Archive(str(path), "a.zip", collector) as archive:
        streams = [archive.open(entry) for entry in archive.entries]
        copies = [b"", b""]
        target = bytearray(70_001)
        for _ in range(60):
            for place, stream in enumerate(streams):
                assert stream.readinto(memoryview(target)[:0]) == 0
                count = stream.readinto(memoryview(target))
                copies[place] += target[:count]
        assert copies == [data, data]
    assert collector.findings.by_code() == {}


def test_a_finding_is_said_once_however_often_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(forge(Item("a", b"data", crc=1)))
    collector = Collector(Policy(), 10)
    with Archive(str(path), "a.zip", collector) as archive:
        (entry,) = archive.entries
        for _ in range(2):
            with pytest.raises(ArchiveDamageError), archive.open(entry) as stream:
                stream.read()
            archive.drain(entry)
    assert collector.findings.by_code() == {"ZIP012": 1}


def test_refused_entries_stay_refused_with_their_rule_off(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(forge(Item("../a", b"data")))
    collector = Collector(Policy(user={"ZIP": None}), 10)
    with Archive(str(path), "a.zip", collector) as archive:
        assert archive.entries == []
    assert collector.findings.by_code() == {}


# Anything at all


def small_zip(shard: bytes) -> bytes:
    return real_zip([("a.record", shard), ("label_map.pbtxt", LABEL_MAP), ("x/b.jpg", b"jpg")])


def test_truncated_at_every_length(check: Check, shard: bytes) -> None:
    data = small_zip(shard)
    for length in range(len(data)):
        assert "ZIP001" in check(data[:length]).codes, length


def test_one_bit_flipped_at_every_byte_never_fails(check: Check, shard: bytes) -> None:
    for data in (small_zip(shard), as_zip64(small_zip(shard))):
        for place in range(len(data)):
            flipped = bytearray(data)
            flipped[place] ^= 1 << place % 8
            check(bytes(flipped))


_CHANGES = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)), max_size=6
)


@examples(150)
@given(changes=_CHANGES, cut=st.floats(0, 1), zip64=st.booleans())
def test_mutations_end_in_findings(
    tmp_path_factory: pytest.TempPathFactory,
    shard: bytes,
    changes: list[tuple[float, bytes]],
    cut: float,
    zip64: bool,
) -> None:
    data = bytearray(as_zip64(small_zip(shard)) if zip64 else small_zip(shard))
    for where, new in changes:
        # Most of what matters is in the last 300 bytes.
        place = int(where * len(data)) if len(new) % 2 else len(data) - 1 - int(where * 300)
        data[place : place + len(new)] = new
    end = len(data) if cut < 0.8 else int(cut * len(data))
    path = tmp_path_factory.getbasetemp() / f"mutant-{os.getpid()}.zip"
    check_zip(path, bytes(data[:end]))


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
    collector = Collector(Policy(), 10)
    with Archive(str(path), "a.zip", collector) as archive:
        for entry in archive.entries:
            with archive.open(entry) as stream:
                assert stream.read() == files[entry.name]
        alike = {unicodedata.normalize("NFC", name).casefold() for name in files}
        if len(alike) == len(files):  # none that differ only by case or accents
            assert {entry.name for entry in archive.entries} == set(files)
            assert not collector.findings.by_code()
