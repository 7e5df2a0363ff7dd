"""The quick conversion of plain rectangles: the same boxes as CVAT's own makes, and no others.

Shown for any shapes of a frame, through the extractor of the server.
"""

from __future__ import annotations

from typing import Any

from cvat.apps.dataset_manager import bindings
from hypothesis import given, settings
from hypothesis import strategies as st
from tfod.cvat.rectangles import RectangleConverter

from tests.cvat.tasks import box, make_task, shape, tag, track

coordinates = st.floats(-20, 90, width=32)
attributes = st.fixed_dictionaries(
    {},
    optional={
        "count": st.sampled_from(["1", "2.5", "-3e2", " 7 "]),
        "difficult": st.sampled_from(["true", "false", "True", ""]),
        "colour": st.sampled_from(["", "red", "5"]),
        "unknown": st.just("x"),
    },
)
rectangles = st.builds(
    lambda label, corners, **more: box(0, label, *corners, **more),
    st.sampled_from(["bird", "cat"]),
    st.tuples(coordinates, coordinates, coordinates, coordinates),
    occluded=st.booleans(),
    rotation=st.sampled_from([0.0, 0.0, 0.0, 45.0]),
    group=st.sampled_from([0, 0, 0, 2]),
    z_order=st.integers(-2, 2),
    attributes=attributes,
)
outlines = st.builds(
    lambda label: shape("polygon", 0, label, (1, 1, 20, 1, 20, 20)),
    st.sampled_from(["bird", "cat"]),
)


def plain(task: Any, **options: Any) -> list[dict[str, Any]]:
    with bindings.GetCVATDataExtractor(
        bindings.TaskData(task, task.annotations), **options
    ) as extractor:
        items = list(extractor)
    return [
        {
            "type": one.type.name,
            "label": one.label,
            "points": getattr(one, "points", None),
            "group": one.group,
            # What the export drops anyway: no turn, and notes on key frames.
            "attributes": {
                name: value
                for name, value in one.attributes.items()
                if name != "keyframe" and (name, value) != ("rotation", 0)
            },
        }
        for item in items
        for one in item.annotations
    ]


@settings(max_examples=60)
@given(
    shapes=st.lists(rectangles, max_size=5),
    odd=st.lists(outlines, max_size=1),
    tracked=st.booleans(),
    tagged=st.booleans(),
)
def test_the_same_as_cvat_s_own(
    shapes: list[dict[str, Any]], odd: list[dict[str, Any]], tracked: bool, tagged: bool
) -> None:
    task = make_task(
        *shapes,
        *odd,
        tracks=[track("cat", box(0, "cat", occluded=True))] if tracked else [],
        tags=[tag(0, "bird")] if tagged else [],
    )
    convert = RectangleConverter(bindings.convert_cvat_anno_to_dm)
    assert plain(task, convert_annotations=convert) == plain(task)
