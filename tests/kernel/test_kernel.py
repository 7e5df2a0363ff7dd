"""The compiled kernel, Python's two, protobuf and TensorFlow agree on any bytes."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.kernel import (
    WHY_NOT_COMPILED,
    code_spans,
    copy_spans,
    find_records,
    gather_spans,
    hash_spans,
    lockstep,
    parse_examples,
    reference,
)
from tfod.kernel.checksum import crc32c
from tfod.kernel.return_types import Columns, FoundRecords, ListKind, ProblemCode, WalkEnd
from tfod.tfrecord.framing import masked_crc32c

from tests.commands import run_python
from tests.conftest import CORPUS, examples
from tests.mutants.make import all_mutants
from tests.mutants.run import files_of
from tests.records import encode, frame, image, objects

SHARDS = sorted(path for path in CORPUS.rglob("*record") if path.is_file())
MALFORMED = ProblemCode.MALFORMED


def test_it_is_compiled_where_there_is_cargo() -> None:
    """CI has cargo; without it, the tests compare Python's two kernels."""
    if os.environ.get("TFOD_REQUIRE") or sys.platform == "emscripten":
        assert WHY_NOT_COMPILED == ""


@pytest.mark.parametrize(
    ("library", "why"),
    [(None, "not compiled when tfod was installed"), (b"\x7fELF?", "it cannot be loaded: ")],
)
def test_python_replaces_it(tmp_path: Path, library: bytes | None, why: str) -> None:
    """The library is missing, or is for another machine."""
    package = tmp_path / "tfod" / "kernel"
    ignored = shutil.ignore_patterns("*tfod_kernel*")
    shutil.copytree(Path(reference.__file__).parent, package, ignore=ignored)
    (tmp_path / "tfod/__init__.py").touch()
    if library is not None:
        (package / "libtfod_kernel.so").write_bytes(library)
    code = "from tfod.kernel import *; print(WHY_NOT_COMPILED, find_records(b'').position)"
    done = run_python("-c", code, folder=tmp_path, PYTHONPATH=str(tmp_path), TFOD_KERNEL="")
    assert done.out.startswith(why) and done.out.endswith(" 0\n")


@pytest.mark.skipif(sys.platform != "emscripten", reason="tests/browser runs it in Pyodide")
def test_webassembly_that_fails(tmp_path: Path) -> None:
    """A call may end in a trap, which is the end of a panic; the next call gets a new instance."""
    from tfod.kernel.library import LIBRARY
    from tfod.kernel.webassembly import load

    assert LIBRARY("tfod_write", 0xFFFFFF00, outputs=(np.zeros(8, np.uint8),)) is None
    with pytest.raises(MemoryError):
        LIBRARY("tfod_write", 0xFFFFFF00, outputs=(np.zeros(1 << 28, np.uint8),))
    assert len(same_walk(frame(b"a")).starts) == 1
    (tmp_path / "not.wasm").write_bytes(b"\0asm?")
    with pytest.raises(ImportError, match="it cannot be loaded: "):
        load(str(tmp_path / "not.wasm"))


@pytest.mark.parametrize(
    ("kernel", "printed"),
    [("", "0xe3069283"), ("0", "tfod needs the package google-crc32c: .*: TFOD_KERNEL=0")],
)
def test_checksums_without_google_crc32c(kernel: str, printed: str) -> None:
    """The compiled kernel computes them; without it, the message says what to install."""
    if WHY_NOT_COMPILED and not kernel:
        pytest.skip(WHY_NOT_COMPILED)
    code = (
        "import sys; sys.modules['google_crc32c'] = None; from tfod.kernel.checksum import crc32c"
    )
    done = run_python("-c", f"{code}; print(hex(crc32c(b'123456789')))", TFOD_KERNEL=kernel)
    assert re.search(printed, done.out or done.err)


@given(st.binary(max_size=600), st.integers(0, 20))
def test_checksums_agree(data: bytes, start: int) -> None:
    compiled = pytest.importorskip("tfod.kernel.compiled", exc_type=ImportError)
    part = np.frombuffer(data, np.uint8)[start:]
    google_crc32c = pytest.importorskip("google_crc32c")
    assert compiled.crc32c(part) == google_crc32c.value(data[start:])


def test_a_bug_is_an_error_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pytest.importorskip("tfod.kernel.compiled", exc_type=ImportError)
    monkeypatch.setattr(compiled, "LIBRARY", lambda *arguments, outputs: None)
    with pytest.raises(RuntimeError, match="TFOD_KERNEL=0"):
        compiled.find_records(b"")


def plain_columns(columns: Columns) -> tuple[Any, ...]:
    """The content of columns in order, bit by bit."""
    found = [
        (one.key, one.kind, one.rows.tolist(), one.ends.tolist(), one.values.tobytes())
        for one in columns.columns
    ]
    return columns.rows, found, columns.problems


def spans(payloads: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Payloads side by side."""
    lengths = np.array([len(one) for one in payloads], np.int64)
    starts = np.cumsum(np.concatenate(([0], lengths)))[:-1].astype(np.int64)
    return b"".join(payloads), starts, lengths


def both(payloads: list[bytes]) -> Columns:
    """The columns, on which all kernels agree; lockstep is for batches."""
    many = payloads * (1 + 16 // max(len(payloads), 1))
    for batch in (many, payloads):
        buffer, starts, lengths = spans(batch)
        array = np.frombuffer(buffer, np.uint8)
        columns = parse_examples(buffer, starts, lengths)
        expected = plain_columns(reference.parse_examples(array, starts, lengths))
        assert plain_columns(columns) == expected
        assert plain_columns(lockstep.parse_examples(array, starts, lengths)) == expected
    return columns


def values_of(columns: Columns, buffer: bytes, row: int) -> dict[bytes, tuple[ListKind, list[Any]]]:
    """The features of a row, as lists."""
    found: dict[bytes, tuple[ListKind, list[Any]]] = {}
    for one in columns.columns:
        for index in np.flatnonzero(one.rows == row)[:1].tolist():
            start = int(one.ends[index - 1]) if index else 0
            values: list[Any] = one.values[start : int(one.ends[index])].tolist()
            if one.kind is ListKind.BYTES:
                values = [buffer[first : first + length] for first, length in values]
            found[one.key] = one.kind, values
    return found


SEEDS = [
    encode({**image(), **objects([[0.1, 0.2, 0.3, 0.4]] * 2, ["cat", "dog"], [1, 300])}),
    encode({"a": [1, 2, 3], "b": ["x", "yy"], "c": [1.5], "d": [-1, 1 << 62]}),
    b"\n\x08\n\x06\n\x01a\x12\x01\x00",
    b"\n\x0d\n\x0b\n\x01a\x12\x06\x1a\x04\x08\x01\x08\x02",  # numbers one by one
    b"\n\x10\n\x0e\n\x01a\x12\x09\x1a\x03\n\x01\x05\x12\x02\x0d\x00",
    b"",
]
FRAGMENTS = [
    b"\n", b"\x12", b"\x1a", b"\x08", b"\x0d", b"\x00\x00\x80\x3f", b"\x0b", b"\x0c", b"\x13\x14",
    b"\xff" * 9 + b"\x01", b"\x80", b"\x02", b"\x04", b"\n\x01a", b"\x12\x02\x1a\x00",
    b"\x0b" * 120,
]  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Records, most of them a little damaged."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["insert", "delete", "write", "repeat", "add"]))
        if change == "insert":
            data[place:place] = draw(st.sampled_from(FRAGMENTS))
        elif change == "delete":
            del data[place : place + draw(st.integers(1, 4))]
        elif change == "repeat":
            data[place:place] = data[place : place + draw(st.integers(1, 24))]
        elif place < len(data):
            byte = draw(st.integers(0, 255))
            data[place] = byte if change == "write" else (data[place] + 1 + byte % 3) & 0xFF
    return bytes(data)


@examples(400)
@given(st.lists(records() | st.binary(max_size=60), max_size=6))
def test_the_reference_agrees(payloads: list[bytes]) -> None:
    both(payloads)


@pytest.mark.tensorflow
@examples(600)
@given(records())
def test_protobuf_agrees(payload: bytes) -> None:
    """Its errors are malformed records; other records are equal unless they are unusual."""
    example = pytest.importorskip("tensorflow").train.Example
    columns = parse_examples(*spans([payload]))
    codes = {one.code for one in columns.problems}
    try:
        parsed = example.FromString(payload)
    except Exception:  # of whichever implementation it is
        assert codes == {MALFORMED}
        return
    assert MALFORMED not in codes
    if ProblemCode.UNUSUAL in codes:  # its implementations differ about unknown fields of a map
        return
    expected = {}
    for key, feature in parsed.features.feature.items():
        name = feature.WhichOneof("kind")
        kind = ListKind[name.removesuffix("_list").upper()] if name else ListKind.NONE
        expected[key.encode()] = kind, list(getattr(feature, name).value) if name else []
    assert repr(sorted(values_of(columns, payload, 0).items())) == repr(sorted(expected.items()))


def same_as_tensorflow(payloads: list[bytes]) -> None:
    """TensorFlow's fast parser reads the same from each record without a problem."""
    tf = pytest.importorskip("tensorflow")
    dtypes = {ListKind.BYTES: tf.string, ListKind.FLOAT: tf.float32, ListKind.INT64: tf.int64}
    columns = parse_examples(*spans(payloads))
    buffer = b"".join(payloads)
    for row in set(range(len(payloads))) - {one.row for one in columns.problems}:
        found = {key: one for key, one in values_of(columns, buffer, row).items() if key and one[0]}
        if found:
            features = {
                key.decode(): tf.io.RaggedFeature(dtypes[one[0]]) for key, one in found.items()
            }
            for key, tensor in tf.io.parse_single_example(payloads[row], features).items():
                assert repr(tensor.numpy().tolist()) == repr(found[key.encode()][1])


@pytest.mark.tensorflow
@examples(200)
@given(records())
def test_tensorflow_agrees(payload: bytes) -> None:
    same_as_tensorflow([payload])


@pytest.mark.tensorflow
def test_tensorflow_agrees_on_every_mutant() -> None:
    same_as_tensorflow(framed_in_mutants())


def test_the_reference_agrees_on_every_mutant() -> None:
    """All find the same records, and read the same from them."""
    for data in mutants():
        same_walk(data)
    payloads = framed_in_mutants()
    assert len(payloads) > 200
    both(payloads)


def mutants() -> set[bytes]:
    return {data for mutant in all_mutants() for _, data in files_of(mutant.content)}


def framed_in_mutants() -> list[bytes]:
    """The payloads, even if their checksums are wrong."""
    found = set()
    for data in mutants():
        end = WalkEnd.DATA_CHECKSUM
        while end is WalkEnd.DATA_CHECKSUM:
            framed = find_records(data, max_length=len(data))
            for start, length in zip(framed.starts, framed.lengths, strict=True):
                found.add(data[start : start + length])
            data, end = data[framed.position :], framed.end
            if end is WalkEnd.DATA_CHECKSUM:
                stop = 12 + int.from_bytes(data[:8], "little")
                found.add(data[12:stop])
                data = data[stop + 4 :]
    return sorted(found)


def write_seeds(folder: Path) -> None:
    """Write the seeds of tests/kernel/fuzz."""
    for number, seed in enumerate([*SEEDS, frame(*SEEDS[1:4])]):
        (folder / str(number)).write_bytes(seed)


def test_what_was_fuzzed() -> None:
    """Both agree on every input that reached new code: whole, in halves, and together."""
    folder = os.environ.get("TFOD_FUZZED")
    if folder is None:
        pytest.skip("tests/kernel/fuzz sets the folder")
    inputs = sorted(Path(folder).iterdir())
    assert inputs
    found = [path.read_bytes() for path in inputs]
    for data in found:
        same_walk(data)
        both([data])
    halves = [data[: len(data) // 2] for data in found] + [data[len(data) // 2 :] for data in found]
    both(found + halves)


@pytest.mark.parametrize("shard", SHARDS, ids=lambda path: str(path.relative_to(CORPUS)))
def test_real_shards(shard: Path) -> None:
    data = shard.read_bytes()
    found = find_records(data)
    assert (found.position, found.end) == (len(data), WalkEnd.BUFFER)
    columns = parse_examples(data, found.starts, found.lengths)
    assert len(columns.columns) > 0 and columns.problems == []
    array = np.frombuffer(data, np.uint8)
    for python in (reference, lockstep):
        parsed = python.parse_examples(array, found.starts, found.lengths)
        assert plain_columns(columns) == plain_columns(parsed)


def same_walk(data: bytes, longest: int = 1 << 40) -> FoundRecords:
    ours = find_records(data, max_length=longest)
    other = reference.find_records(data, max_length=longest)
    assert ours.starts.tolist() == other.starts.tolist()
    assert ours.lengths.tolist() == other.lengths.tolist()
    assert (ours.position, ours.end) == (other.position, other.end)
    return ours


@given(st.lists(st.binary(max_size=50), max_size=5), st.data())
def test_records_of_damaged_shards(payloads: list[bytes], data: st.DataObject) -> None:
    shard = bytearray(frame(*payloads))
    whole = same_walk(bytes(shard))
    spans = zip(whole.starts, whole.lengths, strict=True)
    assert [bytes(shard[start : start + length]) for start, length in spans] == payloads
    if shard:
        offset = data.draw(st.integers(0, len(shard) - 1))
        shard[offset] ^= 1 << data.draw(st.integers(0, 7))
        found = same_walk(bytes(shard))
        assert found.position <= offset and found.end is not WalkEnd.FULL
    same_walk(bytes(shard[: data.draw(st.integers(0, len(shard)))]))


def test_limits() -> None:
    shard = frame(b"a", b"bb", b"c")
    assert same_walk(shard, 1).end is WalkEnd.TOO_LONG
    head = (2**64 - 1).to_bytes(8, "little")
    forged = head + masked_crc32c(head).to_bytes(4, "little") + b"x"
    assert same_walk(forged).end is WalkEnd.TOO_LONG
    shard = frame(*(b"" for _ in range(70_000)))  # more than one call returns
    found = find_records(shard)
    assert len(found.starts) == 70_000 and found.position == len(shard)


@pytest.mark.parametrize(
    ("start", "length"), [(-1, 3), (0, 9), (9, 0), (2**63 - 1, 5), (3, -1), (0, 2**63 - 1)]
)
def test_spans_beyond_the_buffer(start: int, length: int) -> None:
    columns = parse_examples(b"12345678", np.array([start]), np.array([length]))
    assert [(one.row, one.code) for one in columns.problems] == [(0, MALFORMED)]


def test_every_problem_by_name() -> None:
    """A record for each code, and valid ones."""
    twice = encode({"a": [1]}) + encode({"a": [2]})
    payloads = [
        encode({"a": [7]}),
        b"\xff",
        encode({"a": [1]}) + b"\x12\x00",
        twice,
        b"\n\x10\n\x0e\n\x01a\x12\x09\x1a\x03\n\x01\x05\x1a\x02\x08\x06",
        encode({"a": [1]}) + b"\x18\x01",
    ]
    columns = both(payloads)
    assert [(one.row, one.code, one.key) for one in columns.problems] == [
        (1, MALFORMED, None),
        (2, ProblemCode.SEQUENCE_EXAMPLE, None),
        (3, ProblemCode.REPEATED_KEY, b"a"),
        (4, ProblemCode.SEVERAL_LISTS, b"a"),
        (5, ProblemCode.UNUSUAL, None),
    ]
    buffer = b"".join(payloads)
    assert [values_of(columns, buffer, row).get(b"a", (0, []))[1] for row in range(6)] == [
        [7], [], [1], [2], [5, 6], [1],
    ]  # fmt: skip


def test_columns_come_in_the_order_of_their_first_rows() -> None:
    """Malformed records and lists that another one replaces are in no column."""
    damaged = encode({"b": [1], "a": [2]}) + b"\n\x08\n\x06\n\x01z\x12\x01\xff"
    replaced = b"\n\x12\n\x10\n\x01a\x12\x0b\x1a\x03\n\x01\x05\x0a\x04\n\x02xx"
    columns = both([damaged, replaced, encode({"c": [1.5], "a": [3]}), encode({"b": [4]})])
    assert [(one.key, one.kind) for one in columns.columns] == [
        (b"a", ListKind.BYTES),
        (b"c", ListKind.FLOAT),
        (b"a", ListKind.INT64),
        (b"b", ListKind.INT64),
    ]


NUMBERS = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1))


def hash_of(part: bytes) -> int:
    """The hash in integers, which do not overflow."""
    second = zlib.crc32(part)
    if len(part) >= 512:
        words = (part[start : start + 8] for start in range(0, len(part), 8))
        total = sum(int.from_bytes(word, "little") for word in words)
        second = total * 0x9E3779B97F4A7C15 % 2**64 // 2**32
    return crc32c(part) << 32 | second


@examples(300)
@given(st.binary(max_size=300), st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30), st.data())
def test_the_reference_agrees_on_spans(
    buffer: bytes, numbers: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Spans beyond the buffer are empty for both."""
    separator = data.draw(st.sampled_from([b"", b"\0", b"\xff"]))
    array, found = np.frombuffer(buffer, np.uint8), np.array(numbers, np.int64).reshape(-1, 2)
    parts = [buffer[a : a + n] if 0 <= a <= a + n <= len(buffer) else b"" for a, n in numbers]
    assert gather_spans(buffer, found, separator) == separator.join(parts)
    assert reference.gather_spans(array, found, separator) == separator.join(parts)
    joined = b"".join(parts)
    for copy, source in ((copy_spans, buffer), (reference.copy_spans, array)):
        room = np.zeros(len(joined) + 1, np.uint8)
        copy(source, found, room[:-1])
        assert room.tobytes() == joined + b"\0"
        with pytest.raises(ValueError, match="the spans have"):
            copy(source, found, room)
        assert room.tobytes() == joined + b"\0"
    expected = [hash_of(part) for part in parts]
    assert hash_spans(buffer, found).tolist() == expected
    assert reference.hash_spans(array, found).tolist() == expected
    for codes, firsts in (code_spans(buffer, found), reference.code_spans(array, found)):
        assert [parts[firsts[code]] for code in codes] == parts
        assert [parts[first] for first in firsts] == list(dict.fromkeys(parts))


def test_many_different_strings() -> None:
    """More strings than entries of the first table, each several times."""
    buffer = b"".join(b"%05d" % number for number in range(3000))
    spans = np.stack([np.arange(3000) * 5, np.full(3000, 5)], axis=1)
    codes, firsts = code_spans(buffer, np.concatenate([spans, spans[::-1], spans]))
    assert codes.tolist() == [*range(3000), *reversed(range(3000)), *range(3000)]
    assert firsts.tolist() == list(range(3000))


@pytest.mark.parametrize("length", [63, 64, 127, 128, 511, 512, 519, 520, 1000, 100_001])
def test_hashes_of_long_spans(length: int) -> None:
    buffer = np.random.default_rng(length).bytes(length + 3)
    spans = np.array([[start, length] for start in range(4)])
    expected = [hash_of(buffer[start : start + length]) for start in range(4)]
    assert hash_spans(buffer, spans).tolist() == expected
    assert reference.hash_spans(np.frombuffer(buffer, np.uint8), spans).tolist() == expected
