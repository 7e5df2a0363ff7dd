"""Any dataset that the format can carry comes back from a round trip as it was."""

from __future__ import annotations

import tempfile
from typing import Any

from datumaro.components.annotation import AnnotationType, Bbox, LabelCategories
from datumaro.components.dataset import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tfod.datumaro import compat
from tfod.datumaro.compat import DatasetItem

from tests.conftest import examples, typed_numbers
from tests.datumaro.conftest import content, labels_of

letters = st.characters(exclude_categories=("Cs", "Cc"))
labels = st.lists(st.text(letters, min_size=1, max_size=12), min_size=1, max_size=6, unique=True)
names = st.from_regex(r"\A[\w ]{1,8}(/[\w ]{1,8}){0,2}\Z").filter(
    lambda name: all(part.strip() for part in name.split("/"))
)
subsets = st.sampled_from(["train", "val", "test", "default", "a b", "x/y", "s-00000-of-00002"])
attributes = st.dictionaries(
    st.sampled_from(["occluded", "difficult", "pose", "count", "ratio", "parts", "кто"]),
    st.one_of(
        st.booleans(),
        st.integers(-(2**70), 2**70),
        typed_numbers,
        st.text(letters, max_size=8),
        st.lists(st.integers(), max_size=2),
    ),
    max_size=4,
)


@st.composite
def boxes(draw: st.DrawFn, count: int, height: int, width: int) -> Bbox:
    """A box inside the image, in hundredths of a pixel as Datumaro keeps them."""
    left, right = sorted(draw(st.tuples(*[st.integers(0, width * 100)] * 2)))
    top, bottom = sorted(draw(st.tuples(*[st.integers(0, height * 100)] * 2)))
    return Bbox(
        left / 100,
        top / 100,
        (right - left) / 100,
        (bottom - top) / 100,
        label=draw(st.one_of(st.none(), st.integers(0, count - 1))),
        attributes=draw(attributes),
    )


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    """A dataset of images with boxes, some with bytes, some with a size alone."""
    classes = draw(labels)
    items = []
    for subset, name in draw(st.lists(st.tuples(subsets, names), max_size=5, unique=True)):
        height, width = draw(st.tuples(*[st.integers(1, 5000)] * 2))
        data = draw(st.one_of(st.none(), st.binary(min_size=1, max_size=40)))
        media = compat.image_without_data(".jpg", (height, width))
        if data is not None and not _looks_like_pixels(data, height, width):
            media = compat.image_from_bytes(
                lambda *_, data=data: data, f"{name}.jpg", (height, width)
            )
        shapes = draw(st.lists(boxes(len(classes), height, width), max_size=4))
        items.append(
            DatasetItem(
                id=name,
                subset=subset,
                media=media,
                annotations=shapes,
                attributes={"source_id": draw(st.one_of(st.none(), st.text(letters)))},
            )
        )
    categories = {AnnotationType.label: LabelCategories.from_iterable(classes)}
    return Dataset.from_iterable(items, categories=categories)


def _looks_like_pixels(data: bytes, height: int, width: int) -> bool:
    return len(data) in (height * width, height * width * 3, height * width * 4)


@examples(60)
@given(
    source=datasets(),
    compression=st.sampled_from(["none", "gzip", "zlib"]),
    num_shards=st.integers(1, 3),
)
def test_round_trip(source: Dataset, compression: str, num_shards: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source.export(
            folder,
            "tf_detection_api",
            save_media=True,
            compression=compression,
            num_shards=num_shards,
        )
        if not len(source):
            return
        loaded = Dataset.import_from(folder, "tf_detection_api")
        assert _plain(loaded) == _plain(source)
        assert labels_of(loaded) == labels_of(source)


def _plain(dataset: Dataset) -> dict[Any, Any]:
    return {
        key: {**one, "annotations": [_exact(shape) for shape in one["annotations"]]}
        for key, one in content(dataset).items()
    }


def _exact(annotation: dict[str, Any]) -> dict[str, Any]:
    """Truth values that have no key of their own must not come back as numbers."""
    kinds = {name: type(value) for name, value in annotation["attributes"].items()}
    for name in ("occluded", "difficult"):  # 0 and 1 of these keys are truth values
        kinds.pop(name, None)
    return {**annotation, "kinds": kinds}
