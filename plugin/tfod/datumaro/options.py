"""The exporter's own options: their command line and their values."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tfod.detection.image import FORMAT_OF_EXTENSION
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.shard_layout import OptionError, parse_count, parse_size

DEFAULT_NAME = "Objects"
"""What Roboflow calls the annotations of a project that were given no name."""
_Choice = TypeVar("_Choice", bound=enum.Enum)


def check_image_extension(extension: str | None) -> None:
    """See that images can be encoded to an extension.

    Raises:
        OptionError: they cannot.
    """
    if extension and f".{extension.lower().lstrip('.')}" not in FORMAT_OF_EXTENSION:
        known = ", ".join(FORMAT_OF_EXTENSION)
        raise OptionError(f"image_ext: {extension!r} is not one of {known}")


def _argument(parse: Callable[[str], int]) -> Callable[[str], int]:
    """A parser for argparse, which wants its own error."""

    def parsed(text: str) -> int:
        try:
            return parse(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None

    return parsed


class Layout(str, enum.Enum):
    """How the files of an export lie; the values are what the command line takes."""

    FLAT = "flat"
    ROBOFLOW = "roboflow"


class LabelKey(str, enum.Enum):
    """How an object's class is written; the values are what the command line takes."""

    BOTH = "both"
    TEXT = "text"
    ID = "id"


@dataclass(frozen=True)
class ExportOptions:
    """How shards are written.

    Attributes:
        save_masks: write an instance mask for each object.
        num_shards, shard_size: shards of a subset, or bytes of a shard at most.
        compression: of each shard as a whole.
        label_key: how classes are written.
        layout: how the files lie.
        name: of the shards, in the layout that has them in folders.
    """

    save_masks: bool
    num_shards: int
    shard_size: int | None
    compression: Compression
    label_key: LabelKey
    layout: Layout
    name: str

    @classmethod
    def parse(
        cls,
        save_masks: bool,
        num_shards: int | str,
        shard_size: int | str | None,
        compression: str,
        label_key: str = LabelKey.BOTH.value,
        layout: str = Layout.FLAT.value,
        name: str | None = None,
    ) -> ExportOptions:
        """Make them from what a caller or a command line gave.

        Raises:
            OptionError: one makes no sense, or two of them together.
        """
        options = cls(
            save_masks,
            parse_count(num_shards),
            None if shard_size is None else parse_size(str(shard_size)),
            one_of("compression", Compression, compression),
            one_of("label_key", LabelKey, label_key),
            one_of("layout", Layout, layout),
            name or DEFAULT_NAME,
        )
        if options.num_shards > 1 and options.shard_size is not None:
            raise OptionError("num_shards and shard_size exclude each other; give one of them")
        if options.layout is not Layout.ROBOFLOW:
            if name:
                raise OptionError("name: only the layout roboflow has shards of this name")
        elif options.save_masks or options.label_key is not LabelKey.BOTH:
            raise OptionError(
                "layout: roboflow's records have no masks and always text and id; leave out "
                "save_masks and label_key"
            )
        return options


def add_shard_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of shards to the parser of Datumaro's exporters."""
    parser.add_argument(
        "--num-shards",
        type=_argument(parse_count),
        default=1,
        help="Number of shards for each subset (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-size",
        type=_argument(parse_size),
        help="Begin a new shard at this size, such as 100MB",
    )
    parser.add_argument(
        "--compression",
        choices=[one.value for one in Compression],
        default=Compression.NONE.value,
        help="Compress each shard (default: %(default)s)",
    )


def add_label_map_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option of classes to the parser of Datumaro's exporters."""
    parser.add_argument(
        "--label-map",
        help="Take class ids from this label map file, or from one that tfod ships (coco, …)",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``tf_detection_api`` to the parser of Datumaro's exporters."""
    parser.add_argument(
        "--save-masks",
        action="store_true",
        help="Include instance masks, of boxes and polygons too (default: %(default)s)",
    )
    add_shard_arguments(parser)
    add_label_map_argument(parser)
    parser.add_argument(
        "--label-key",
        choices=[one.value for one in LabelKey],
        default=LabelKey.BOTH.value,
        help="Write classes as text, as id, or both (default: %(default)s)",
    )
    parser.add_argument(
        "--layout",
        choices=[one.value for one in Layout],
        default=Layout.FLAT.value,
        help="Lay files out as Roboflow does: train/ valid/ test/ (default: %(default)s)",
    )
    parser.add_argument(
        "--name",
        help=f"Name of the shards in the layout roboflow (default: {DEFAULT_NAME})",
    )


def one_of(option: str, kind: type[_Choice], value: str) -> _Choice:
    """The choice of this value.

    Raises:
        OptionError: there is none.
    """
    try:
        return kind(str(getattr(value, "value", value)).lower())
    except ValueError:
        choices = ", ".join(str(one.value) for one in kind)
        raise OptionError(f"{option}: {value!r} is not one of {choices}") from None
