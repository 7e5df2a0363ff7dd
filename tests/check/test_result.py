"""Results of inputs, added up in any order and any grouping."""

from __future__ import annotations

import copy
import pickle
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.duplicates.row_blocks import RowStore
from tfod.check.findings.collector import Findings
from tfod.check.findings.finding import Finding, Severity
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import READY
from tfod.check.records import result as result_module
from tfod.check.records.examiner import Examiner
from tfod.check.records.instructions import Instructions
from tfod.check.records.result import Result, ShardSummary
from tfod.check.rules.labels import LabelMapFile
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.tfrecord.reader import RecordBatch

from tests.conftest import examples
from tests.mutants import sound

_PART_BITS = 24
_SEVERITIES = {"TFR901": Severity.ERROR, "BOX902": Severity.WARNING, "NAM903": Severity.INFO}
_MAPS = {
    name: LabelMapFile(name, LabelMap((LabelMapItem(number + 1, name),)))
    for number, name in enumerate(("a.pbtxt", "b.pbtxt"))
}


def finding(code: str, shard: str, record: int) -> Finding:
    """A finding that is like no other."""
    return Finding(code, _SEVERITIES[code], f"no. {record}", "", shard, record, feature="f")


@st.composite
def findings_of(draw: st.DrawFn, shard: str, most: int) -> Findings:
    """What an examination says of a shard."""
    found = Findings(most)
    codes = draw(st.lists(st.sampled_from(sorted(_SEVERITIES)), max_size=10))
    for record, code in enumerate(codes):
        found.keep(finding(code, shard, record))
    for code in draw(st.sets(st.sampled_from(sorted(_SEVERITIES)), max_size=2)):
        found.once[code, shard, "f"] = finding(code, shard, draw(st.integers(0, 99)))
    return found


def add_figures(draw: st.DrawFn, result: Result, label_map: str | None) -> None:
    """Figures of some records."""
    result.image_sizes = Counter({(480, draw(st.integers(1, 3))): 1})
    uses = draw(st.lists(st.tuples(st.sampled_from(["cat", None]), st.integers(1, 2))))
    result.uses = {label_map: Counter(uses)} if uses else {}


@st.composite
def summaries(draw: st.DrawFn, work: int, number: int, name: str) -> ShardSummary:
    """What is known of a shard."""
    return ShardSummary(
        work,
        number,
        name,
        "train",
        records=draw(st.integers(0, 9)),
        images=draw(st.integers(0, 9)),
        decoded=draw(st.integers(0, 9)),
        boxes=draw(st.integers(0, 9)),
        keys=frozenset(draw(st.sets(st.sampled_from(["k1", "k2", "k3"])))),
        has_defects=draw(st.booleans()),
    )


@st.composite
def results(draw: st.DrawFn, most: int) -> list[Result]:
    """Results in the order of the inputs: of shards and their parts, of zips, of files."""
    made: list[Result] = []
    for place in range(draw(st.integers(0, 6))):
        name, label_map = f"{place}.record", draw(st.sampled_from([None, *_MAPS]))
        for part in range(draw(st.integers(1, 3))):
            work = place << _PART_BITS | part
            result = Result(most, {work: draw(findings_of(name, most))})
            add_figures(draw, result, label_map)
            shards = result.shards.setdefault(work, [])
            for number in range(draw(st.integers(0, 2))):
                named = name if number == 0 else f"{place}.zip/{part}.{number}"
                shards.append(draw(summaries(work, number, named)))
            if draw(st.booleans()):
                result.label_maps[f"{work}/{label_map}"] = _MAPS["a.pbtxt"]
                result.digests[f"{work}"] = f"{work:064x}"
            made.append(result)
    return made


def contents(result: Result) -> object:
    """All that a result has, with the order of what the report has in order."""
    findings = copy.deepcopy(result.all_findings())
    open_ones = list(findings.once.items())
    findings.close()
    return (
        {code: listed for code, listed in findings.listed.items() if listed},
        {code: list(counts.items()) for code, counts in findings.counts.items()},
        findings.severities,
        open_ones,
        findings.choose(),
        list(findings.by_shard().items()),
        result.shard_parts(),
        result.all_shards(),
        result.image_sizes,
        result.uses,
        result.label_maps,
        result.digests,
    )


def in_order(results: Sequence[Result], most: int) -> object:
    """What these come to, in order, with nothing left out on the way."""
    whole = Result(most)
    for one in results:
        whole += replace(one, findings={}, shards={})
    whole.findings = {number: one for result in results for number, one in result.findings.items()}
    whole.shards = {number: one for result in results for number, one in result.shards.items()}
    return contents(whole)


@examples(40)
@given(
    data=st.data(),
    most=st.integers(0, 4) | st.just(1000),
    order=st.randoms(use_true_random=False),
)
def test_results_in_any_order_and_grouping(
    data: st.DataObject, most: int, order: random.Random
) -> None:
    works = data.draw(results(most))
    before = pickle.dumps(works)
    right = in_order(works, most)
    one_by_one = Result(most)
    for one in works:
        one_by_one += one
    assert contents(one_by_one) == right
    groups = [Result(most) for _ in range(order.randrange(1, 5))]
    for one in order.sample(works, len(works)):
        group = order.choice(groups)
        group += pickle.loads(pickle.dumps(one)) if order.random() < 0.5 else one
        if order.random() < 0.3:
            number = order.randrange(len(groups))
            groups[number] = pickle.loads(pickle.dumps(groups[number]))
    while len(groups) > 1:
        taken = groups.pop(order.randrange(len(groups)))
        group = order.choice(groups)
        group += taken
    assert contents(groups[0]) == right
    assert pickle.dumps(works) == before  # they may be another's, too


def test_findings_that_would_not_be_listed_are_forgotten() -> None:
    most, count = 10, 500
    total = Result(most)
    for work in reversed(range(count)):
        found = Findings(most)
        for record in range(15):
            found.keep(finding("BOX902", f"{work}", record))
        total += Result(most, {work: found})
    assert len(pickle.dumps(total)) < 200 * count  # the findings of a work have more than that
    kept = total.all_findings()
    assert kept.by_code() == {"BOX902": 15 * count}
    assert [(one.shard, one.record) for one in kept.listed["BOX902"]] == [
        ("0", record) for record in range(10)
    ]


def test_inputs_whose_findings_are_forgotten_are_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = Counter[str]()

    def counted(one: Findings, **changes: Any) -> Findings:
        copies["made"] += 1
        return replace(one, **changes)

    monkeypatch.setattr(result_module, "replace", counted)
    total = Result(2)
    for work in range(300):
        found = Findings(2)
        found.keep(finding("BOX902", f"{work}", 0))
        total += Result(2, {work: found})
    assert copies["made"] < 3 * 300
    assert [one.shard for one in total.all_findings().listed["BOX902"]] == ["0", "1"]


def test_the_features_of_many_shards_are_held_once() -> None:
    groups = []
    for group in range(4):
        total = Result(10)
        for work in range(100):
            keys = frozenset(f"image/{number}" for number in range(20))
            one = ShardSummary(work, 0, f"{group}-{work}", "train", keys=keys)
            total += Result(10, shards={group * 1000 + work: [one]})
        groups.append(pickle.loads(pickle.dumps(total)))
    for other in groups[1:]:
        groups[0] += other
    assert len(groups[0].shard_parts()) == 400
    assert len({id(one.keys) for one in groups[0].shard_parts()}) == 1


def test_parts_of_a_shard_make_up_the_shard() -> None:
    first = ShardSummary(0, 0, "a", "train", "m", ("r",), records=2, images=1, decoded=1, boxes=5)
    second = replace(first, work=1, records=3, boxes=1, keys=frozenset("xy"), has_defects=True)
    other = replace(first, work=1 << _PART_BITS, name="b")
    third = replace(first, work=2, records=4, keys=frozenset("z"))
    whole = replace(
        first, records=9, images=3, decoded=3, boxes=11, keys=frozenset("xyz"), has_defects=True
    )
    assert Result(10, shards={0: [first, second, third, other]}).all_shards() == [whole, other]


def test_a_shard_with_an_error_has_defects() -> None:
    for payload, has_defects in ((sound.record(), False), (b"\n", True)):
        instructions = Instructions(READY["tf_detection_api"], Policy(), max_findings=10)
        examiner = Examiner(instructions, ShardSummary(0, 0, "s", ""), None, RowStore(None))
        lengths = np.array([len(payload)], np.int64)
        starts = np.zeros(1, np.int64)
        examiner.look_at(RecordBatch("s", 0, 12, bytearray(payload), starts, lengths))
        (found,) = examiner.finish().all_shards()
        assert found.has_defects is has_defects


def test_the_shards_of_an_archive_are_added_up() -> None:
    summaries = [ShardSummary(3, number, f"{number}", "train") for number in range(2)]
    result = Result(10, {3: Findings(10)})
    for one in summaries:
        found = Findings(10)
        found.keep(finding("TFR901", one.name, 1))
        result += Result(10, {3: found}, {3: [one]})
    assert result.all_shards() == summaries
    assert result.all_findings().by_code() == {"TFR901": 2}
