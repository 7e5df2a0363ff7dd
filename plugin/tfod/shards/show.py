"""Selection of records to draw, with their boxes, masks, keypoints and classes.

:mod:`tfod.checker.reporters.drawing` draws them, :mod:`tfod.checker.reporters.html` makes the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, repeat

from tfod.checker.finding import Finding, join_names, plural
from tfod.checker.profiles.choice import choose_profile
from tfod.checker.profiles.profile import Profile
from tfod.checker.reporters.drawing import choose_class_colour, count_undrawn, draw
from tfod.checker.reporters.html import Card, list_lines
from tfod.checker.reporters.samples import mark_findings, read_object_classes, read_sample
from tfod.checker.reporters.wording import format_record
from tfod.detection.detection import Detection, ImageLabel
from tfod.detection.detections import Detections
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import RecordError, TfodError, excerpt
from tfod.example.example_batch import ExampleBatch
from tfod.sources.layouts import describe_missing_objects
from tfod.sources.resolved import ResolvedSources, Shard
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.reader import walk
from tfod.tfrecord.storage.zip_entry import ZipEntryError

_MAX_RECORD_BYTES = 256 << 20
_MAX_NAMES, _MAX_LABELS = 8, 6
_MAX_HEIGHT = 22.0  # of an image on the page, rem


@dataclass
class DrawnRecords:
    """The selected records, with the classes and errors of all records up to the last of them.

    Attributes:
        without_objects: why no boxes are drawn; empty if there are boxes.
    """

    cards: Sequence[Card] = ()
    classes: set[str] = field(default_factory=set)
    unreadable: int = 0
    damage: Damage | None = None
    keys: dict[str, None] = field(default_factory=dict)
    without_objects: str = ""

    @property
    def boxes(self) -> int:
        """The number of boxes, drawn or not; labels of whole images have no colour."""
        return sum(count for card in self.cards for _, colour, count in card.classes if colour)


def draw_records(
    sources: ResolvedSources,
    profile: Profile | None = None,
    *,
    first: int = 24,
    records: frozenset[int] | None = None,
    class_name: str | None = None,
) -> DrawnRecords:
    """Draw records, in the order of the shards.

    Args:
        sources: shards to draw.
        profile: profile of all shards; None for the one that fits best.
        first: number of records to draw, unless ``records`` is set.
        records: numbers of the records to draw; the source must be a single shard.
        class_name: class of an object or of the image that each record must have; None for any.

    Raises TfodError if there is nothing to draw, or jinja2 or Pillow is not installed.
    """
    profile = require_drawable(sources.shards, profile)
    if records is not None and len(sources.shards) > 1:
        raise TfodError("--records takes record numbers of a single shard; name only one shard")
    drawn = DrawnRecords()
    cards = _cards(sources, profile, drawn, records, class_name)
    drawn.cards = list(islice(cards, None if records else first))
    if drawn.cards and not drawn.boxes:
        drawn.without_objects = describe_missing_objects(drawn.keys, [profile.field_mapping])
    if not drawn.cards and drawn.damage is not None and not drawn.classes:
        raise drawn.damage.to_error()
    if not drawn.cards and class_name is not None:
        names = join_names(sorted(map(repr, drawn.classes)), _MAX_NAMES) or "none"
        raise TfodError(f"no object has the class {excerpt(class_name)}; existing classes: {names}")
    return drawn


def require_drawable(shards: Sequence[Shard], profile: Profile | None) -> Profile:
    """Return the profile of shards; raise TfodError if they have no images or boxes."""
    profile, _, unknown = choose_profile(profile, shards, _MAX_RECORD_BYTES)
    if unknown is not None:
        features = join_names(unknown.keys, _MAX_NAMES) or "none"
        raise TfodError(
            f"{unknown.shard}: there are no images or boxes to show (features: {features}); "
            "for details run tfod describe"
        )
    return profile


def _cards(
    sources: ResolvedSources,
    profile: Profile,
    drawn: DrawnRecords,
    records: frozenset[int] | None,
    class_name: str | None,
) -> Iterator[Card]:
    number = -1
    pairs = ((dataset, shard) for dataset in sources.datasets for shard in dataset.shards)
    for dataset, shard in pairs:
        file = dataset.get_label_map(shard)
        label_map = file.label_map if file else None
        location = f"{shard.name}, " if len(sources.shards) > 1 else ""
        for detections, row in _rows(shard, profile, drawn):
            number = detections.examples.records.first + row
            if records is None or number in records:
                card, render = make_card(detections, row, label_map, location)
                names = {name for name, _, _ in card.classes}
                drawn.classes |= names
                if class_name is None or class_name in names:
                    yield replace(card, svg=render())
            if records is not None and number >= max(records):
                return
    if records is not None:
        raise TfodError(f"--records {max(records)}: the last record is {number}")


def _rows(shard: Shard, profile: Profile, drawn: DrawnRecords) -> Iterator[tuple[Detections, int]]:
    with shard.open() as stream:
        try:
            for records in walk(stream, shard.name, shard.size, _MAX_RECORD_BYTES):
                if isinstance(records, Damage):
                    drawn.unreadable += 1
                    drawn.damage = drawn.damage or records
                    continue
                detections = Detections(ExampleBatch.of(records), profile.field_mapping)
                drawn.keys |= dict.fromkeys(detections.examples.columns)
                skipped = detections.examples.unreadable
                drawn.unreadable += len(skipped)
                yield from ((detections, row) for row in range(len(records)) if row not in skipped)
        except ZipEntryError:
            drawn.unreadable += 1


def make_card(
    detections: Detections,
    row: int,
    label_map: LabelMap | None,
    location: str = "",
    findings: Sequence[Finding] = (),
    **size: float,
) -> tuple[Card, Callable[[], str]]:
    """Return the card of a record without its drawing, and a function that draws it.

    A record with problems is drawn without masks, keypoints and labels.

    Args:
        detections: records.
        row: row of the record.
        label_map: label map of the shard, or None.
        location: text before the number of the record.
        findings: findings about the record, which the card lists with their fixes.
        size: size of the drawing, as for :func:`~tfod.checker.reporters.drawing.draw`.
    """
    sample = mark_findings(read_sample(detections, row), findings)
    texts, ids = read_object_classes(detections, row)
    boxes = zip(chain(texts, repeat("")), chain(ids, repeat(None)), sample.boxes, strict=False)
    classes = [name_class(text, class_id, label_map) for text, class_id, _ in boxes]
    sample = replace(sample, classes=tuple(classes))
    detection, notes = Detection(), []
    try:
        detection = detections[row]
    except RecordError as error:
        notes.append(f"{error.feature or ''} {error.cause}".strip())
    unknown_ids = dict.fromkeys(name[1:] for name in classes if label_map and name[:1] == "#")
    notes += [f"id {number} is not in the label map" for number in unknown_ids]
    if count := count_undrawn(sample):
        notes.append(f"{plural(count, 'box')} not drawn")
    labels = [(name_label(x, label_map), "", 1) for x in detection.image_labels[:_MAX_LABELS]]
    counts = [(name, choose_class_colour(name), n) for name, n in Counter(classes).most_common()]
    card = Card(
        svg="",
        name=sample.item or "",
        where=location + format_record(sample.record),
        lines=list_lines(findings, with_fixes=True),
        notes=notes,
        classes=[*labels, *counts],
    )
    return card, partial(draw, sample, detection=detection, **({"max_height": _MAX_HEIGHT} | size))


def name_label(label: ImageLabel, label_map: LabelMap | None) -> str:
    """Return the name of a class of the whole image: ``not cat`` if it is verified to be absent."""
    name = name_class(label.text or "", label.label, label_map)
    return f"not {name}" if label.confidence == 0 else name


def name_class(text: str, label: int | None, label_map: LabelMap | None) -> str:
    """Return the name of a class; its text takes precedence over its id."""
    number = "" if label is None else f"#{label}"
    item = label_map.find(text) if label_map and text else None
    if item is None and label_map and label is not None and text in ("", number):
        item = label_map.find_id(label)
        text = item.class_name if item else number
    return text or number
