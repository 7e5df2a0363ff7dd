"""Records to look at: of each an image with its boxes, masks, keypoints and classes.

The reporters of the check draw them (:mod:`tfod.checker.reporters.drawing`), and make the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, repeat

from tfod.checker.finding import join_names, plural
from tfod.checker.profiles.choice import profile_of
from tfod.checker.profiles.profile import Profile
from tfod.checker.reporters.drawing import class_colour, draw, undrawn
from tfod.checker.reporters.html import Card
from tfod.checker.reporters.samples import classes_of, read_sample
from tfod.checker.reporters.wording import record_name
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import RecordError, TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.sources.layouts import no_objects_sentence
from tfod.sources.resolved import ResolvedSources, Shard
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.reader import walk
from tfod.tfrecord.storage.zip_entry import ZipEntryError

_LARGEST_RECORD = 256 << 20
_MOST_NAMES, _MOST_LABELS = 8, 6
_TALLEST = 22.0  # rem, of an image on a page


@dataclass
class Shown:
    """The chosen records, the classes and what could not be read on the way to the last of them.

    Attributes:
        without_objects: why no box is shown; empty if there is one.
    """

    cards: Sequence[Card] = ()
    classes: set[str] = field(default_factory=set)
    unreadable: int = 0
    damage: Damage | None = None
    keys: dict[str, None] = field(default_factory=dict)
    without_objects: str = ""

    @property
    def boxes(self) -> int:
        """How many there are, drawn or not; labels of whole images have no colour."""
        return sum(count for one in self.cards for _, colour, count in one.classes if colour)


def draw_records(
    found: ResolvedSources,
    profile: Profile | None = None,
    *,
    first: int = 24,
    records: frozenset[int] | None = None,
    class_name: str | None = None,
) -> Shown:
    """Draw records, in the order of the shards.

    Args:
        found: the shards.
        profile: of all of them; else the one that fits best.
        first: how many, unless ``records`` says which.
        records: their numbers in the only shard.
        class_name: only those with an object, or a label, of this class.

    Raises:
        TfodError: the shards hold nothing that can be shown, or nothing of that class; or jinja2 or
            Pillow is not installed.
    """
    profile, _, unknown = profile_of(profile, found.shards, _LARGEST_RECORD)
    if unknown is not None:
        features = join_names(unknown.keys, _MOST_NAMES) or "none"
        raise TfodError(
            f"{unknown.shard}: there are no images or boxes to show, its features are {features};"
            " tfod describe says more"
        )
    if records is not None and len(found.shards) > 1:
        raise TfodError("--records are numbers within a shard; name one shard, not several")
    shown = Shown()
    cards = _cards(found, profile, shown, records, class_name)
    shown.cards = list(islice(cards, None if records else first))
    if shown.cards and not shown.boxes:
        shown.without_objects = no_objects_sentence(shown.keys, [profile.field_mapping])
    if not shown.cards and shown.damage is not None and not shown.classes:
        raise shown.damage.to_error()
    if not shown.cards and class_name is not None:
        some = join_names(sorted(map(repr, shown.classes)), _MOST_NAMES) or "none"
        raise TfodError(f"no object is of the class {class_name!r:.81}; there are {some}")
    return shown


def _cards(
    found: ResolvedSources,
    profile: Profile,
    shown: Shown,
    records: frozenset[int] | None,
    class_name: str | None,
) -> Iterator[Card]:
    number = -1
    for dataset, shard in ((one, shard) for one in found.datasets for shard in one.shards):
        file = dataset.label_map_of(shard)
        where = f"{shard.name}, " if len(found.shards) > 1 else ""
        for detections, row in _rows(shard, profile, shown):
            number = detections.examples.records.first + row
            if records is None or number in records:
                card, drawing = _card(detections, row, file.label_map if file else None, where)
                names = {name for name, _, _ in card.classes}
                shown.classes |= names
                if class_name is None or class_name in names:
                    yield replace(card, svg=drawing())
            if records is not None and number >= max(records):
                return
    if records is not None:
        raise TfodError(f"--records {max(records)}: the last record is {number}")


def _rows(shard: Shard, profile: Profile, shown: Shown) -> Iterator[tuple[Detections, int]]:
    with shard.open() as stream:
        try:
            for records in walk(stream, shard.name, shard.size, _LARGEST_RECORD):
                if isinstance(records, Damage):
                    shown.unreadable += 1
                    shown.damage = shown.damage or records
                    continue
                detections = Detections(ExampleBatch.of(records), profile.field_mapping)
                shown.keys |= dict.fromkeys(detections.examples.columns)
                refused = detections.examples.refused
                shown.unreadable += len(refused)
                yield from ((detections, row) for row in range(len(records)) if row not in refused)
        except ZipEntryError:
            shown.unreadable += 1


def _card(
    detections: Detections, row: int, label_map: LabelMap | None, where: str
) -> tuple[Card, Callable[[], str]]:
    """What is said of a record, which is an Example, and what draws it.

    Of a record that has a problem, masks, keypoints and labels are left out.
    """
    sample = read_sample(detections, row)
    texts, ids = classes_of(detections, row)
    boxes = zip(chain(texts, repeat("")), chain(ids, repeat(None)), sample.boxes, strict=False)
    classes = [_class(text, label, label_map) for text, label, _ in boxes]
    sample = replace(sample, classes=tuple(name for name, _ in classes))
    detection, notes = Detection(), []
    try:
        detection = detections[row]
    except RecordError as error:
        notes.append(f"{error.feature or ''} {error.cause}".strip())
    lacking = dict.fromkeys(name for name, _ in classes if label_map and name[:1] == "#")
    notes += [f"id {name[1:]} is not in the label map" for name in lacking]
    if left := undrawn(sample):
        notes.append(f"{plural(left, 'box')} not drawn")
    labels = []
    for one in detection.image_labels[:_MOST_LABELS]:
        name, _ = _class(one.text or "", one.label, label_map)
        labels.append((f"not {name}" if one.confidence == 0 else name, "", 1))
    counts = [(name, colour, count) for (name, colour), count in Counter(classes).most_common()]
    card = Card(
        svg="",
        name=sample.item or "",
        where=where + record_name(sample.record),
        notes=notes,
        classes=[*labels, *counts],
    )
    colours = [colour for _, colour in classes]
    return card, partial(draw, sample, max_height=_TALLEST, colours=colours, detection=detection)


def _class(text: str, label: int | None, label_map: LabelMap | None) -> tuple[str, str]:
    """Name and colour of a class: the text decides, then the id."""
    number = "" if label is None else f"#{label}"
    item = label_map.find(text) if label_map and text else None
    if item is None and label_map and label is not None and text in ("", number):
        item = label_map.find_id(label)
        text = item.class_name if item else number
    text = text or number
    return text, class_colour(text, item.id if item else None)
