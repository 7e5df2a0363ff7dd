"""Shards as a dataset like any other: read as columns, each with the label map beside its shard."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tfod.detection.detection import Detection, PngMask
from tfod.detection.detections import Detections
from tfod.detection.encoder import encode_detection
from tfod.detection.images.exif_rotation import read_orientation
from tfod.detection.images.image import UPRIGHT, find_format
from tfod.detection.images.mask_images import encode_mask_png, fill_box, is_box_png, png_size
from tfod.detection.images.source_ids import SourceIdNumbers, find_last_number
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.formats.dataset import Converted, Dataset, Images, no_subset, size_of
from tfod.formats.format_writer import FormatWriter
from tfod.formats.options import CompleteShard, ConversionProblems, OddBoxes, Options
from tfod.formats.reading.files import Frame, to_output_frame
from tfod.formats.reading.images_of_records import ImagesOfRecords
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.sources.layouts import OD_API, describe_missing_objects
from tfod.sources.reading import ReadableShards, find_readable
from tfod.tfrecord.output import OutputFolder
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.shard_sets.search import ShardSet, missing_shards, shards_by_subset
from tfod.tfrecord.shard_sets.shard_names import numbered_file_names, parse_shard_name, to_subset
from tfod.tfrecord.writer import ShardLayout, ShardSetWriter

_AROUND = 12  # characters before and behind the bytes that are not text


# Reading


def read(source: str, options: Options) -> Dataset:
    """Read shards of the OD API's keys, or of another layout.

    A label map of the options is for all shards, instead of those next to them.

    Raises:
        ShardsNotFoundError: there is no shard.
        LabelMapError: a label map cannot be read.
        TfodError: an option is not for shards, there is no such subset, or the records have no
            known layout.
    """
    if options.odd_boxes not in (OddBoxes.REFUSE, OddBoxes.KEEP):
        raise TfodError(
            f"{source}: --odd-boxes is for annotations; odd boxes of shards are repaired by: "
            "tfod repair"
        )
    if options.ignore_difficult:
        raise TfodError(f"{source}: --ignore-difficult is for Pascal VOC; leave it out")
    shards = find_readable(source, label_map=options.label_map, field_mapping=options.field_mapping)
    sets = list(shards.sets)
    if options.subset is not None:
        sets = [one for one in sets if one.subset == options.subset]
        if not sets:
            raise no_subset(source, options.subset, [one.subset for one in shards.sets])
    paths = [path for one in sets for path in one.paths]
    notes = [*shards.notes, *missing_shards(sets), *shards.require_label_maps()]
    files = {path: file.name for path in paths if (file := shards.label_maps[path])}
    maps = {file: one for path, file in files.items() if (one := shards.label_map(path))}
    target = options.target_map
    classes = Classes(maps, target.base if target else None)
    problems = ConversionProblems(options)
    found_keys: dict[str, None] = {}

    def images() -> Iterator[Images]:
        for one in sets:
            for path, found in _batches(one, shards, options, problems, found_keys):
                upright = _upright(found, options, problems)
                yield Images.of(one.subset, upright, maps.get(files.get(path, "")), classes)

    def finish(images: int, objects: int) -> Sequence[str]:
        unexplained = classes.describe_unknown_ids()
        if unexplained and options.odd_boxes is not OddBoxes.KEEP:
            fix = "correct them, or name the label map of the ids with --label-map"
            raise TfodError(f"{source}: {'; '.join(unexplained)}; {fix}")
        mappings = [] if objects or not images else list(map(shards.field_mapping, paths))
        lost = [describe_missing_objects(found_keys, mappings)] if mappings else []
        return [*notes, *unexplained, *classes.notes(), *lost, *problems.sentences()]

    return Dataset(classes, [one.subset for one in sets], images, finish, sources=paths)


def _batches(
    shard_set: ShardSet,
    shards: ReadableShards,
    options: Options,
    problems: ConversionProblems,
    found_keys: dict[str, None],
) -> Iterator[tuple[str, Detections | list[Detection]]]:
    """The records of a subset; those of one image as one Detection."""
    images = ImagesOfRecords(shard_set, shards)
    for path in shard_set.paths:
        mapping = shards.field_mapping(path)
        for records in read_record_batches(path):
            examples = ExampleBatch.of(records)
            found_keys |= dict.fromkeys(examples.columns)
            found = Detections(examples, mapping, in_pixels=options.boxes_in_pixels)
            yield path, images.join(found, problems) if mapping.image_id else found


def _upright(
    found: Detections | list[Detection], options: Options, problems: ConversionProblems
) -> Detections | list[Detection]:
    """The same with the images that EXIF turns, and all on them, as it shows them."""
    if not options.upright:
        return found
    if isinstance(found, list):
        return [_turned(one, read_orientation(one.encoded), options, problems)
                if one.encoded else one for one in found]  # fmt: skip
    if found.mapping.encoded is None:
        return found
    spans, buffer = found.encoded, memoryview(found.examples.buffer)
    turned = {
        row: turn
        for row in np.flatnonzero(spans[:, 1] > spans[:, 0]).tolist()
        if (turn := read_orientation(buffer[slice(*spans[row].tolist())])) != UPRIGHT
    }
    if not turned:
        return found
    rows = list(found)
    for row, turn in turned.items():
        rows[row] = _turned(rows[row], turn, options, problems)
    return rows


def _turned(one: Detection, turn: int, options: Options, problems: ConversionProblems) -> Detection:
    if turn == UPRIGHT:
        return one
    one = replace(one, encoded=b"") if options.no_images else one
    return to_output_frame(one, Frame(None, None, turn, is_upright=False), options, problems)


# Writing


class Writer(FormatWriter):
    """Writes the records of some images; a subset is begun with its first one at the latest.

    Args:
        output: what the shards are in.
        folder: where that is.
        name: of the only shard; '' to name them for their subsets.
        dataset: which is written.
        options: what was asked for.
    """

    LAYOUT = OD_API.name
    """The name of the layout of its records."""

    def __init__(
        self, output: OutputFolder, folder: str, name: str, dataset: Dataset, options: Options
    ) -> None:
        super().__init__(folder, None, options)
        self._output = output
        self._name = name
        self._writers: dict[str, ShardSetWriter] = {}
        ids, self._largest = dataset.source_ids, options.largest_source_id
        self._numbers = itertools.count(find_last_number(ids, self._largest))

    @classmethod
    def write(cls, target: str, dataset: Dataset, options: Options, is_file: bool) -> Converted:
        """Write shards, each subset as ``<subset>.tfrecord``, or the only one under its own name.

        A dataset is read twice where only its objects name the classes.

        Raises:
            TfodError: something is there already, nothing is left, the target is one shard and
                there are several subsets, or whatever reading and ``verify`` raise.
            WriteError: a file cannot be written.
        """
        if not dataset.classes.label_maps:
            for images in dataset.read():
                images.require_sound_boxes()
        folder, name = target or ".", ""
        is_shard = parse_shard_name(target) is not None
        if is_shard:
            folder, name = os.path.split(target)
            folder = folder or "."

        def find_existing(subset: str) -> list[str]:
            return shards_by_subset(folder).get(subset, [])

        with OutputFolder(
            folder,
            dataset.sources,
            options.overwrite,
            find_existing=find_existing if is_shard else None,
        ) as output:
            return cls(output, folder, name, dataset, options).write_all(
                dataset, os.path.dirname(target) if is_shard else target
            )

    def require_name(self, subset: str) -> None:
        if self._name and self._writers:
            names = ", ".join([*self._writers, subset])
            raise TfodError(
                f"{os.path.join(self.folder, self._name)} is one shard, and there are the subsets "
                f"{names}; name a folder, or choose one with --set"
            )

    def begin(self, subset: str) -> None:
        one = parse_shard_name(self._name)
        self._writers[subset] = self._output.add_subset(
            subset if one is None else to_subset(one.stem),
            ShardLayout(num_shards=self._options.num_shards),
            None if one is None else functools.partial(numbered_file_names, self._name),
        )

    def add(self, images: Images, label_map: LabelMap) -> None:
        if OD_API.name != self.LAYOUT:  # which has a place for everything
            self._count_losses(images)
        for row, one in enumerate(images.detections):
            one = images.renumbered(row, one)
            last = next(self._numbers)  # what is free behind it, of a record that needs a number
            one = SourceIdNumbers(self._largest, itertools.repeat(last).__next__).number(
                self._completed(one)
            )
            # Refuses what no reader takes, also of records in another layout.
            payload = encode_detection(one)
            for record in self._records(images.subset, one, payload):
                self._writers[images.subset].write(record)

    def _records(self, subset: str, one: Detection, payload: bytes) -> Iterable[bytes]:
        """Return the records of an image, which is ``payload`` as the OD API has it."""
        return (payload,)

    def finish(self, label_map: LabelMap) -> None:
        text = label_map.to_text()
        if not self.label_map_file:
            try:
                self._add_label_map(LABEL_MAP_FILE, text.encode())
            except UnicodeEncodeError as error:  # half a surrogate pair
                part = ascii(error.object[max(0, error.start - _AROUND) : error.end + _AROUND])
                what = f"the label map: {part} is not Unicode text; rename it"
                raise TfodError(what) from None
        complete = []
        for subset, writer in self._writers.items():
            shards = writer.complete()
            if writer.count:
                complete += [CompleteShard(*one, subset) for one in shards.items()]
            else:
                self.notes.append(f"{subset} holds no record")
        if self._options.verify is not None:
            self._options.verify(complete, text, self.LAYOUT)

    def _add_label_map(self, name: str, content: bytes) -> None:
        self.label_map_file = name
        self._output.add_text(name, content)

    def _completed(self, one: Detection) -> Detection:
        """What the source has not said of an image, as its file has it."""
        encoded = b"" if self._options.no_images else bytes(one.encoded or b"")
        height, width = size_of(one)
        digest = one.sha256
        if encoded and not digest:
            digest = hashlib.sha256(encoded).hexdigest()
        return replace(
            one,
            height=height or None,
            width=width or None,
            format=find_format(encoded, one.filename or "") or one.format,
            sha256=digest,
            encoded=encoded,
            masks=one.masks and self._masks(one, (height, width)),
        )

    def _masks(self, one: Detection, size: tuple[int, int]) -> list[PngMask | None]:
        """Masks of the size of their image, as far as that is asked for."""
        found = list(one.masks or ())
        for row, mask in enumerate(found):
            data = bytes(mask.data) if mask else b""
            if png_size(data) in (None, size):
                continue
            drawn = None
            if not is_box_png(data):
                drawn = self._pixels(data, one, size)
            is_box = drawn is None
            if drawn is None:  # where one object has a mask, readers want one of each
                corners = one.boxes[row].astype(np.float64) * np.tile(size[::-1], 2)
                drawn = fill_box(tuple(corners.tolist()), size)
            found[row] = PngMask(encode_mask_png(drawn, is_box=is_box))
        return found
