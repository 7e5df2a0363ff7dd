"""Reading and writing of shards, which have one label map per folder or for all shards."""

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
from tfod.formats.dataset import ConversionResult, Dataset, Images, find_size, subset_error
from tfod.formats.format_writer import FormatWriter
from tfod.formats.options import CompleteShard, ConversionProblems, OddBoxes, Options
from tfod.formats.reading.files import Frame, to_output_frame
from tfod.formats.reading.images_of_records import ImagesOfRecords
from tfod.formats.reading.odd_boxes import fit_boxes
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.sources.layouts import OD_API, describe_missing_objects
from tfod.sources.reading import find_readable
from tfod.tfrecord.output import OutputFolder
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.shard_sets.search import describe_missing, find_subsets
from tfod.tfrecord.shard_sets.shard_names import numbered_file_names, parse_shard_name, to_subset
from tfod.tfrecord.writer import ShardLayout, ShardSetWriter

_CONTEXT = 12  # characters to show before and after invalid text

# Reading


def read(source: str, options: Options) -> Dataset:
    """Read shards with the keys of the OD API or of another layout.

    A label map in the options replaces those next to the shards. Raises TfodError if an option does
    not apply to shards, or the subset or layout is unknown, and the errors of
    :func:`~tfod.sources.reading.find_readable`.
    """
    if options.ignore_difficult:
        raise TfodError(f"{source}: --ignore-difficult only applies to Pascal VOC; remove it")
    shards = find_readable(source, label_map=options.label_map, field_mapping=options.field_mapping)
    sets = list(shards.sets)
    if options.subset is not None:
        sets = [shard_set for shard_set in sets if shard_set.subset == options.subset]
        if not sets:
            names = (shard_set.subset for shard_set in shards.sets)
            raise subset_error(source, options.subset, names)
    paths = [path for shard_set in sets for path in shard_set.paths]
    notes = [*shards.notes, *describe_missing(sets), *shards.require_label_maps()]
    files = {path: file.name for path in paths if (file := shards.label_maps[path])}
    maps = {file: loaded for path, file in files.items() if (loaded := shards.label_map(path))}
    target = options.target_map
    classes = Classes(maps, target.base if target else None)
    problems = ConversionProblems(options)
    all_keys: dict[str, None] = {}

    def read_images() -> Iterator[Images]:
        problems.clear()  # a dataset without a label map is read twice
        for shard_set in sets:
            images = ImagesOfRecords(shard_set, shards)
            for path in shard_set.paths:
                mapping, label_map = shards.field_mapping(path), maps.get(files.get(path, ""))
                for records in read_record_batches(path):
                    examples = ExampleBatch.of(records)
                    all_keys.update(dict.fromkeys(examples.columns))
                    batch = Detections(examples, mapping, in_pixels=options.boxes_in_pixels)
                    joined = images.join(batch, problems) if mapping.image_id else batch
                    fitted = fit_boxes(joined, path, options, problems)
                    rotated = _rotate_photos(fitted, options, problems)
                    yield Images.of(shard_set.subset, rotated, label_map, classes)

    def finish(images: int, objects: int) -> Sequence[str]:
        unexplained = classes.describe_unknown_ids()
        if unexplained and options.odd_boxes is not OddBoxes.KEEP:
            fix = "correct them, or pass the label map with these ids with --label-map"
            raise TfodError(f"{source}: {'; '.join(unexplained)}; {fix}")
        mappings = [] if objects or not images else list(map(shards.field_mapping, paths))
        lost = [describe_missing_objects(all_keys, mappings)] if mappings else []
        problems.raise_refusals(1, objects)  # shards may have no image
        return [*notes, *unexplained, *classes.notes(), *lost, *problems.sentences()]

    subsets = [shard_set.subset for shard_set in sets]
    return Dataset(classes, subsets, read_images, finish, sources=paths, counters=[problems])


def _rotate_photos(
    detections: Detections | list[Detection], options: Options, problems: ConversionProblems
) -> Detections | list[Detection]:
    if not options.upright:
        return detections
    if isinstance(detections, list):
        files = {row: item.encoded for row, item in enumerate(detections) if item.encoded}
    else:
        buffer = memoryview(detections.examples.buffer)
        spans = enumerate(detections.encoded.tolist())
        files = {row: buffer[start:end] for row, (start, end) in spans if end > start}
    orientations = {
        row: orientation
        for row, encoded in files.items()
        if (orientation := read_orientation(encoded)) != UPRIGHT
    }
    if not orientations:
        return detections
    rows = list(detections)
    for row, orientation in orientations.items():
        rows[row] = _rotate(rows[row], orientation, options, problems)
    return rows


def _rotate(
    detection: Detection, orientation: int, options: Options, problems: ConversionProblems
) -> Detection:
    if options.no_images:
        detection = replace(detection, encoded=b"")
    frame = Frame(None, None, orientation, is_upright=False)
    return to_output_frame(detection, frame, options, problems)


# Writing


class Writer(FormatWriter):
    """Writes the records of images, one per image.

    Args:
        output: output that publishes the shards together.
        folder: output folder.
        name: file name of the only shard; '' to name shards after their subsets.
        dataset: dataset to write.
    """

    LAYOUT = OD_API.name
    """Name of the layout of the records."""

    def __init__(
        self, output: OutputFolder, folder: str, name: str, dataset: Dataset, options: Options
    ) -> None:
        super().__init__(folder, None, options)
        self._output = output
        self._name = name
        self._writers: dict[str, ShardSetWriter] = {}
        ids, self._largest_id = dataset.source_ids, options.largest_source_id
        self._numbers = itertools.count(find_last_number(ids, self._largest_id))

    @classmethod
    def write(
        cls, target: str, dataset: Dataset, options: Options, is_file: bool
    ) -> ConversionResult:
        """Write each subset as ``<subset>.tfrecord``, or the only subset to the given shard.

        The dataset is read twice if it has no label map.

        Raises:
            TfodError: the output already exists, nothing remains to write, the target is one shard
                but there are several subsets, or reading or ``verify`` fails.
            WriteError: a file cannot be written.
        """
        if not dataset.classes.label_maps:  # collect the classes
            for images in dataset.read():
                images.require_valid_boxes()
        is_shard = parse_shard_name(target) is not None
        folder, name = os.path.split(target) if is_shard else (target, "")
        folder = folder or "."

        with OutputFolder(
            folder,
            dataset.sources,
            options.overwrite,
            find_existing=(lambda subset: find_subsets(folder).get(subset, []))
            if is_shard
            else None,
            dry_run=options.dry_run,
        ) as output:
            result = cls(output, folder, name, dataset, options).write_all(
                dataset, os.path.dirname(target) if is_shard else target
            )
        deleted = sorted({*output.obsolete}.difference(output.published))
        return result._replace(paths=output.published, deleted=deleted)

    def require_name(self, subset: str) -> None:
        if self._name and self._writers:
            names = ", ".join([*self._writers, subset])
            raise TfodError(
                f"{os.path.join(self.folder, self._name)} is one shard, but there are several "
                f"subsets: {names}; pass a folder, or choose a subset with --set"
            )

    def begin(self, subset: str) -> None:
        shard_name = parse_shard_name(self._name)
        self._writers[subset] = self._output.add_subset(
            subset if shard_name is None else to_subset(shard_name.stem),
            ShardLayout(num_shards=self._options.num_shards),
            None if shard_name is None else functools.partial(numbered_file_names, self._name),
        )

    def add(self, images: Images, label_map: LabelMap) -> None:
        if OD_API.name != self.LAYOUT:  # the OD API's layout can store everything
            self._count_losses(images)
        for row, detection in enumerate(images.detections):
            detection = self._complete(images.renumber(row, detection))
            # Replace an invalid source id by the number of the image.
            number = next(self._numbers)
            ids = SourceIdNumbers(self._largest_id, itertools.repeat(number).__next__)
            detection = ids.number(detection)
            # This also rejects data that no reader accepts, for records in another layout.
            payload = encode_detection(detection)
            for record in self._encode(images.subset, detection, payload):
                self._writers[images.subset].write(record)

    def _encode(self, subset: str, detection: Detection, payload: bytes) -> Iterable[bytes]:
        """Return the records of an image; ``payload`` is its record in the OD API's layout."""
        return (payload,)

    def finish(self, label_map: LabelMap) -> None:
        text = label_map.to_text()
        if not self.label_map_file:
            try:
                self._add_label_map(LABEL_MAP_FILE, text.encode())
            except UnicodeEncodeError as error:  # an unpaired surrogate
                start, end = max(0, error.start - _CONTEXT), error.end + _CONTEXT
                message = f"label map: {error.object[start:end]!a} is not Unicode text"
                raise TfodError(f"{message}; rename the class") from None
        complete = []
        for subset, writer in self._writers.items():
            shards = writer.complete()
            if writer.count:
                complete += [CompleteShard(*paths, subset) for paths in shards.items()]
            else:
                self.notes.append(f"subset {subset} has no records")
        if self._options.verify is not None:
            self._options.verify(complete, text, self.LAYOUT)

    def _add_label_map(self, name: str, content: bytes) -> None:
        self.label_map_file = name
        self._output.add_text(name, content)

    def _complete(self, detection: Detection) -> Detection:
        """Add size, format and hash of the image file if they are missing, and fit the masks."""
        encoded = b"" if self._options.no_images else bytes(detection.encoded or b"")
        height, width = find_size(detection)
        digest = detection.sha256
        if encoded and not digest:
            digest = hashlib.sha256(encoded).hexdigest()
        return replace(
            detection,
            height=height or None,
            width=width or None,
            format=find_format(encoded, detection.filename or "") or detection.format,
            sha256=digest,
            encoded=encoded,
            masks=detection.masks and self._fit_masks(detection, (height, width)),
        )

    def _fit_masks(self, detection: Detection, size: tuple[int, int]) -> list[PngMask | None]:
        """Return masks in the size of the image; omitted masks become boxes: readers need all."""
        masks = list(detection.masks or ())
        for row, mask in enumerate(masks):
            data = bytes(mask.data) if mask else b""
            if png_size(data) in (None, size):
                continue
            pixels = None if is_box_png(data) else self._fit_mask(data, detection, size)
            is_box = pixels is None
            if pixels is None:
                corners = detection.boxes[row].astype(np.float64) * np.tile(size[::-1], 2)
                pixels = fill_box(tuple(corners.tolist()), size)
            masks[row] = PngMask(encode_mask_png(pixels, is_box=is_box))
        return masks
