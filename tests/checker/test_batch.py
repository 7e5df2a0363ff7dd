"""A batch as the rules look at it: which classes its boxes use."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.batch import Batch, Expectation
from tfod.check.profiles.profile import READY
from tfod.tfrecord.records import RecordBatch

from tests.conftest import encode, objects

BOX = (0.1, 0.2, 0.3, 0.4)
IDS = st.sampled_from([-(1 << 63), -1, 0, 1, 2, 300, (1 << 63) - 1])
RECORDS = st.lists(
    st.lists(st.tuples(st.sampled_from(["", "cat", "dog"]), IDS), max_size=4).flatmap(
        lambda pairs: st.tuples(st.just(pairs), st.booleans(), st.booleans())
    ),
    max_size=5,
)


@given(RECORDS)
def test_each_box_has_its_text_and_its_id(
    records: list[tuple[list[tuple[str, int]], bool, bool]],
) -> None:
    payloads, expected = [], []
    for pairs, with_texts, with_ids in records:
        texts, ids = [one for one, _ in pairs], [one for _, one in pairs]
        boxes = objects([BOX] * len(pairs), texts if with_texts else (), ids if with_ids else ())
        payloads.append(encode({"image/height": 10, **boxes}))
        expected += [(text if with_texts else None, i if with_ids else None) for text, i in pairs]
    lengths = np.array([len(one) for one in payloads], np.int64)
    buffer = bytearray(b"".join(payloads))
    batch = RecordBatch("s", 0, 12, buffer, np.cumsum(lengths) - lengths, lengths)
    codes, uses = Batch(batch, Expectation(READY["cvat"])).uses
    assert [uses[code] for code in codes.tolist()] == expected
    assert len(set(uses)) == len(uses) == len(set(codes.tolist()))
