"""Columns have the values of each record, and a batch equals its records read one by one."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.detection.detection import Detection, Keypoints
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import KERAS_COCO, FieldMapping
from tfod.errors import RecordError
from tfod.example.example import bytes_feature, encode_example, float_feature, int64_feature
from tfod.example.example_batch import Column, ExampleBatch
from tfod.example.wire import Kind
from tfod.tfrecord.reader import require_undamaged, walk

from tests.changed_records import SOUND, changed_records, sound_record
from tests.conftest import examples
from tests.records import encode, frame, image, objects

ENCODERS: Mapping[Kind, Any] = {
    Kind.BYTES: bytes_feature,
    Kind.FLOAT: float_feature,
    Kind.INT64: int64_feature,
}
TEXTS = st.binary(max_size=20)
LISTS: Mapping[Kind, st.SearchStrategy[Any]] = {
    Kind.BYTES: TEXTS,
    Kind.FLOAT: st.floats(width=32, allow_nan=False),
    Kind.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
}


def features(kinds: list[Kind]) -> st.SearchStrategy[tuple[Kind, list[Any]]]:
    """A list of one of these kinds."""
    return st.sampled_from(kinds).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(LISTS[kind], max_size=4))
    )


RECORDS = st.lists(
    st.dictionaries(st.sampled_from("abc"), features(list(Kind)), max_size=3), max_size=6
)


def batch_of(*payloads: bytes) -> ExampleBatch:
    """Records of a shard in one batch, none of them the first."""
    data = frame(b"", *payloads)
    (records,) = map(require_undamaged, walk(io.BytesIO(data), "s", len(data)))
    return ExampleBatch.of(records)


def written(record: Mapping[str, tuple[Kind, list[Any]]]) -> bytes:
    return encode_example({key: ENCODERS[kind](values) for key, (kind, values) in record.items()})


def values_of(column: Column, row: int) -> list[Any]:
    values = column[row].tolist()
    if column.kind is Kind.BYTES:
        return [bytes(column.buffer[start : start + length]) for start, length in values]
    return values


class TestColumn:
    @given(RECORDS)
    def test_it_holds_what_each_record_has(self, records: list[Any]) -> None:
        batch = batch_of(*map(written, records))
        records = [{}, *records]
        assert batch.columns.keys() == {key for record in records for key in record}
        for key in "abc":
            there = {one.kind for one in batch.find_columns(key)}
            assert there == {record[key][0] for record in records if key in record}
            for kind in Kind:
                mine = [(key in one and one[key][0] is kind, one.get(key)) for one in records]
                wanted = [found[1] if is_here else [] for is_here, found in mine]
                column = batch.column(key, kind)
                assert len(column) == len(batch) == len(wanted)
                assert [values_of(column, row) for row in range(len(column))] == wanted
                assert column.counts.tolist() == [len(one) for one in wanted]
                assert np.diff(column.row_splits).tolist() == column.counts.tolist()
                assert column.row_splits[0] == 0 and column.row_splits[-1] == len(column.values)
                present = [is_here for is_here, _ in mine]
                assert column.present.tolist() == present
                assert [column.has(row) for row in range(len(column))] == present
                assert column.rows.tolist() == np.flatnonzero(present).tolist()
                if kind is Kind.BYTES:
                    assert column.byte_strings() == [one for some in wanted for one in some]


PAYLOADS = st.one_of(
    st.sampled_from(sorted(SOUND)).flatmap(changed_records),
    st.sampled_from(sorted(SOUND)).map(sound_record),
    st.sampled_from([b"", b"\xff", b"\x12\x00"]),
)
"""Records of every kind, most of them valid; a few are not an Example."""
MAPPINGS = [
    FieldMapping(),
    KERAS_COCO,
    FieldMapping(filename="path", box=("bbox",), image_id="image/source_id"),
]


def plain(value: Any) -> Any:
    """Something to compare, to the bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Keypoints | Detection):
        return {key: plain(one) for key, one in vars(value).items()}
    if isinstance(value, memoryview):
        return bytes(value)
    return [plain(one) for one in value] if isinstance(value, list) else value


def output(detections: Detections, row: int) -> Any:
    """Return the values of a row, or the error."""
    try:
        found = plain(detections[row])
    except RecordError as error:
        return str(error)
    return {**found, "unread_keys": sorted(found["unread_keys"])}  # their order is the batch's


class TestDetections:
    @examples(60)
    @given(st.lists(PAYLOADS, max_size=5), st.sampled_from(MAPPINGS))
    def test_a_batch_says_of_each_record_what_it_says_alone(
        self, records: list[bytes], mapping: FieldMapping
    ) -> None:
        batch = batch_of(*records)
        together = Detections(batch, mapping)
        problems = [(one.row, one.code, one.key, one.cause) for one in together.problems]
        boxes = []
        for row, record in enumerate(batch.records.records()):
            alone = Detections(
                ExampleBatch.of(type(batch.records).from_record(record, "s")), mapping
            )
            assert output(together, row) == output(alone, 0)
            mine = [(row, one.code, one.key, one.cause) for one in alone.problems]
            assert [one for one in problems if one[0] == row] == mine
            for name in ("filenames", "formats", "heights", "headers", "image_ids"):
                assert getattr(together, name)[row] == getattr(alone, name)[0]
            assert together.sizes[row].tolist() == alone.sizes[0].tolist()
            assert together.box_counts[row] == alone.box_counts[0]
            assert together.annotation_ids(row) == alone.annotation_ids(0)
            first, end = together.box_splits[row : row + 2]
            boxes.append(alone.boxes)
            assert plain(together.boxes[first:end]) == plain(alone.boxes)
        assert together.boxes.tobytes() == b"".join(one.tobytes() for one in boxes)

    def test_what_is_generated_has_boxes_and_problems(self) -> None:
        """Or the property would hold of nothing."""
        cat = encode(image() | objects([(0, 0, 1, 1)], text=["cat"]))
        found = Detections(batch_of(cat, b"\xff", encode(objects([(0, 0, 1, 1)], ["a", "b"]))))
        assert found.unreadable_rows == {2, 3}
        assert found.box_splits.tolist() == [0, 0, 1, 1, 1]
        assert found[1].class_text == ["cat"]
        with pytest.raises(RecordError, match=r"record 3, .* holds 2 values for 1 boxes"):
            _ = found[3]
