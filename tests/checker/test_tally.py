"""The results of pieces of work, put together in any order and any grouping."""

from __future__ import annotations

import copy
import pickle
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.collector import Findings
from tfod.check.examined import Examined, Figures
from tfod.check.finding import Finding, Severity
from tfod.check.rules.labels import LabelMapFile
from tfod.check.statistics import Statistics
from tfod.check.tally import ShardSummary, Tally, WorkResult, joined_parts
from tfod.detection.label_map import LabelMap, LabelMapItem

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


@st.composite
def figures_of(draw: st.DrawFn, label_map: str | None) -> Figures:
    """Figures of some records."""
    counts = np.array(draw(st.lists(st.integers(0, 3), max_size=3)), np.int64)
    corners = np.random.default_rng(int(counts.sum())).random((int(counts.sum()), 4))
    statistics = Statistics(image_sizes=Counter({(480, draw(st.integers(1, 3))): 1}))
    statistics.add_boxes(corners, counts)
    uses = draw(st.lists(st.tuples(st.sampled_from(["cat", None]), st.integers(1, 2))))
    seen = draw(st.sets(st.integers(0, 9), max_size=3))
    return Figures(statistics, {label_map: Counter(uses)} if uses else {}, seen)


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
def results(draw: st.DrawFn, most: int) -> list[WorkResult]:
    """Results in the order of the work: of shards, of parts of shards, of archives and of files."""
    made: list[WorkResult] = []
    for place in range(draw(st.integers(0, 6))):
        name, label_map = f"{place}.record", draw(st.sampled_from([None, *_MAPS]))
        for part in range(draw(st.integers(1, 3))):
            work = place << _PART_BITS | part
            result = WorkResult(work, draw(findings_of(name, most)), draw(figures_of(label_map)))
            for number in range(draw(st.integers(0, 2))):
                named = name if number == 0 else f"{place}.zip/{part}.{number}"
                result.shards.append(draw(summaries(work, number, named)))
            if draw(st.booleans()):
                result.label_maps[f"{work}/{label_map}"] = _MAPS["a.pbtxt"]
                result.digests[f"{work}"] = f"{work:064x}"
            made.append(result)
    return made


def told(tally: Tally) -> object:
    """All that a tally says, with the order of what the report has in order."""
    findings = copy.deepcopy(tally.findings())
    open_ones = list(findings.once.items())
    findings.close()
    return (
        {code: listed for code, listed in findings.listed.items() if listed},
        {code: list(counts.items()) for code, counts in findings.counts.items()},
        findings.severities,
        open_ones,
        findings.choose(),
        list(findings.by_shard().items()),
        tally.parts(),
        tally.shards(),
        _shown(tally.figures),
        tally.label_maps,
        tally.digests,
    )


def _shown(figures: Figures) -> object:
    return figures.statistics.to_json(), figures.uses, figures.seen


class _Whole(Tally):
    """The results in order, with nothing left out on the way."""

    def __init__(self, works: Sequence[WorkResult], most: int) -> None:
        super().__init__(most)
        self._works, self._limit = works, most
        for one in works:
            self.figures.merge(one.figures)
            self.label_maps.update(one.label_maps)
            self.digests.update(one.digests)

    def findings(self) -> Findings:
        found = Findings(self._limit)
        for one in self._works:
            found.merge(one.findings)
        return found

    def parts(self) -> list[ShardSummary]:
        return [shard for one in self._works for shard in one.shards]


def in_order(works: Sequence[WorkResult], most: int) -> object:
    """What a tally of these results has to say."""
    return told(_Whole(works, most))


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
    one_by_one = Tally(most)
    for one in works:
        one_by_one.add(one)
    assert told(one_by_one) == right
    groups = [Tally(most) for _ in range(order.randrange(1, 5))]
    for one in order.sample(works, len(works)):
        order.choice(groups).add(pickle.loads(pickle.dumps(one)) if order.random() < 0.5 else one)
        if order.random() < 0.3:
            number = order.randrange(len(groups))
            groups[number] = pickle.loads(pickle.dumps(groups[number]))
    while len(groups) > 1:
        taken = groups.pop(order.randrange(len(groups)))
        order.choice(groups).merge(taken)
    assert told(groups[0]) == right
    assert pickle.dumps(works) == before  # they may be another's, too


def test_findings_that_would_not_be_listed_are_forgotten() -> None:
    most, count = 10, 500
    tally = Tally(most)
    for work in reversed(range(count)):
        found = Findings(most)
        for record in range(15):
            found.keep(finding("BOX902", f"{work}", record))
        tally.add(WorkResult(work, found))
    assert len(pickle.dumps(tally)) < 200 * count  # the findings of a work have more than that
    kept = tally.findings()
    assert kept.by_code() == {"BOX902": 15 * count}
    assert [(one.shard, one.record) for one in kept.listed["BOX902"]] == [
        ("0", record) for record in range(10)
    ]


def test_the_features_of_many_shards_are_held_once() -> None:
    groups = []
    for group in range(4):
        tally = Tally(10)
        for work in range(100):
            keys = frozenset(f"image/{number}" for number in range(20))
            one = ShardSummary(work, 0, f"{group}-{work}", "train", keys=keys)
            tally.add(WorkResult(group * 1000 + work, Findings(10), shards=[one]))
        groups.append(pickle.loads(pickle.dumps(tally)))
    for other in groups[1:]:
        groups[0].merge(other)
    assert len(groups[0].parts()) == 400
    assert len({id(one.keys) for one in groups[0].parts()}) == 1


def test_parts_of_a_shard_make_up_the_shard() -> None:
    first = ShardSummary(0, 0, "a", "train", "m", ("r",), records=2, images=1, decoded=1, boxes=5)
    second = replace(first, work=1, records=3, boxes=1, keys=frozenset("xy"), has_defects=True)
    other = replace(first, work=1 << _PART_BITS, name="b")
    third = replace(first, work=2, records=4, keys=frozenset("z"))
    whole = replace(
        first, records=9, images=3, decoded=3, boxes=11, keys=frozenset("xyz"), has_defects=True
    )
    assert joined_parts([first, second, third, other]) == [whole, other]


def test_a_shard_is_added_with_what_it_has_shown() -> None:
    result = WorkResult(3, Findings(10))
    examined = Examined(
        "a", Findings(10), records=4, images=3, decoded=1, boxes=2, keys={"k"}, seen={7}
    )
    examined.uses["cat", 1] += 2
    examined.findings.keep(finding("TFR901", "a", 1))
    summary = ShardSummary(3, 0, "a", "train", "a.pbtxt")
    result.add(summary, examined)
    assert result.shards == [
        replace(
            summary,
            records=4,
            images=3,
            decoded=1,
            boxes=2,
            keys=frozenset({"k"}),
            has_defects=True,
        )
    ]
    assert result.findings.by_code() == {"TFR901": 1}
    assert result.figures.uses == {"a.pbtxt": Counter({("cat", 1): 2})}
    assert result.figures.seen == {7}
