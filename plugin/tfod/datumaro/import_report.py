"""What an import noticed and a user should know: one sentence a matter, said at the end."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfod.check.findings.finding import first_of, plural
from tfod.detection.labels.classes import ClassTable
from tfod.detection.labels.label_map import EMPTY_SUBSETS
from tfod.errors import ShardError
from tfod.tfrecord.storage.open import open_shard

if TYPE_CHECKING:
    from tfod.datumaro.import_annotations import AnnotationBuilder

_SHOWN = 8
_LONGEST_COMMENT = 1 << 16


class ImportReport:
    """Collects while reading; :meth:`sentences` tells."""

    def __init__(self) -> None:
        self.missing_shards: list[str] = []
        self.label_map_liberties: list[str] = []
        self.ambiguous_label_maps: set[tuple[str, ...]] = set()
        self.empty_subsets: dict[str, list[str]] = {}
        self.odd_lengths: list[str] = []
        self.other_images = 0
        self._no_images = 0
        self._first_no_image = ""
        self._oddities: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()

    def see(self, oddities: Sequence[str], unread_keys: Sequence[str]) -> None:
        """Note what one record has that is odd or not read."""
        if oddities:
            self._oddities.update(oddities)
        if unread_keys:
            self._unread.update(unread_keys)

    def note_no_image(self, shard: str, number: int) -> None:
        """Note a record whose encoded image cannot be read."""
        self._no_images += 1
        if not self._first_no_image:
            self._first_no_image = f"record {number} of {os.path.basename(shard)}"

    def note_empty_subsets(self, label_map: str) -> None:
        """Remember which subsets the exporter of this label map left empty on purpose."""
        if os.path.exists(label_map) and not os.path.isfile(label_map):
            return
        try:
            with open_shard(label_map) as (file, _):
                first = file.readline(_LONGEST_COMMENT).decode("utf-8", "replace")
        except (OSError, ShardError):  # a name of one that tfod ships
            return
        match = re.match(rf"#\s*{EMPTY_SUBSETS}\s*(.*)", first)
        if match:
            with contextlib.suppress(ValueError):
                folder = os.path.dirname(os.path.abspath(label_map))
                self.empty_subsets[folder] = json.loads(match[1])

    def sentences(self, classes: ClassTable, builder: AnnotationBuilder) -> Iterator[str]:
        """Everything noticed, one sentence a matter."""
        if self.missing_shards:
            yield (
                f"{plural(len(self.missing_shards), 'shard')} of numbered sets not there, "
                f"reading without: {first_of(self.missing_shards, _SHOWN)}"
            )
        yield from self.odd_lengths
        yield from self.label_map_liberties
        for candidates in sorted(self.ambiguous_label_maps):
            yield (
                f"several label maps, none is used: {first_of(candidates, _SHOWN)}; classes come "
                "from the records; choose one with the option label_map"
            )
        if builder.clamped_boxes:
            hint = ""
            if builder.boxes_in_pixels:
                hint = f"; {builder.boxes_in_pixels} of them look like pixels, not normalized"
            yield (
                f"{plural(builder.clamped_boxes, 'box')} outside the image "
                f"clamped to its edge{hint}"
            )
        if builder.odd_masks:
            yield f"{plural(builder.odd_masks, 'mask')} of another size than the image"
        if classes.contradictions:
            examples = [
                f"'{pair.text}' with id {pair.label} ({count})"
                for pair, count in classes.contradictions.most_common(5)
            ]
            total = sum(classes.contradictions.values())
            yield (
                f"{plural(total, 'object')} whose class text and id name different classes "
                f"of the label map; the text was followed: {first_of(examples, _SHOWN)}"
            )
        if classes.unknown_texts:
            texts = [f"{text!r} ({count})" for text, count in classes.unknown_texts.most_common()]
            yield f"classes that the label map lacks, added: {first_of(texts, _SHOWN)}"
        if classes.unknown_ids:
            yield (
                "class ids that the label map lacks, named by their number: "
                f"{first_of([f'{i} ({n})' for i, n in classes.unknown_ids.most_common()], _SHOWN)}"
            )
        if self._no_images:
            yield (
                f"{plural(self._no_images, 'record')} whose encoded image is neither a JPEG, PNG, "
                "GIF, BMP, TIFF or WebP image nor pixels of the record's size; the annotations "
                "were imported, but exports and transforms that use the image will fail (first: "
                f"{self._first_no_image}); look at the shards with: tfod check"
            )
        if self.other_images:
            yield (
                f"{plural(self.other_images, 'record')} with another image than an earlier "
                "record of the same image number; the first was taken"
            )
        for oddity, count in self._oddities.items():
            yield f"{oddity} ({plural(count, 'record')})"
        if self._unread:
            yield (
                "features that have no meaning to Datumaro, not imported: "
                f"{first_of([f'{k} ({n})' for k, n in self._unread.most_common()], _SHOWN)}"
            )
