"""The options of our exporters: one definition each for the command line, Python and ``--help``."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from tfod.detection.encoder import LabelProfile
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.writer import OptionError, parse_count, parse_size

LAYOUT_OPTIONS = frozenset(
    (
        *("num_shards", "shard_size", "compression", "label_key", "save_masks", "image_ext"),
        *("layout", "name", "receiver", "profile"),
    )
)
"""Options that change shards whose images did not change."""

DEFAULT_NAME = "Objects"
"""What Roboflow calls the annotations of a project that were given no name."""


class Layout(str, enum.Enum):
    """How the files of an export lie; the values are what the command line takes."""

    FLAT = "flat"
    ROBOFLOW = "roboflow"


class LabelKey(str, enum.Enum):
    """How an object's class is written; the values are what the command line takes."""

    BOTH = "both"
    TEXT = "text"
    ID = "id"


class ReadBy(str, enum.Enum):
    """Who reads the shards next; the values are what the command line takes."""

    DATUMARO = "datumaro"
    OD_API = "od-api"
    TF_VISION = "tf-vision"
    MODEL_MAKER = "model-maker"
    EFFICIENTDET = "efficientdet"


def _about(help: str, parse: Callable[[Any], Any] = str, flag: str = "") -> dict[str, Any]:
    return {"help": help, "parse": parse, "flag": flag}


@dataclass(frozen=True)
class ExportOptions:
    """How shards are written; each exporter takes those that it names."""

    save_masks: bool = field(
        default=False, metadata=_about("Include instance masks, of boxes and polygons too", bool)
    )
    num_shards: int = field(
        default=1, metadata=_about("Number of shards for each subset", parse_count)
    )
    shard_size: int | None = field(
        default=None, metadata=_about("Begin a new shard at this size, such as 100MB", parse_size)
    )
    compression: Compression = field(
        default=Compression.NONE, metadata=_about("Compress each shard", Compression)
    )
    label_map: str | None = field(
        default=None,
        metadata=_about(
            "Take class ids from this label map file, or from one that tfod ships (coco, …)"
        ),
    )
    label_key: LabelKey = field(
        default=LabelKey.BOTH, metadata=_about("Write classes as text, as id, or both", LabelKey)
    )
    layout: Layout = field(
        default=Layout.FLAT,
        metadata=_about("Lay files out as Roboflow does: train/ valid/ test/", Layout),
    )
    name: str | None = field(
        default=None,
        metadata=_about(f"Name of the shards in the layout roboflow (default: {DEFAULT_NAME})"),
    )
    receiver: ReadBy = field(
        default=ReadBy.DATUMARO,
        metadata=_about(
            "Who reads the shards next: numbers as image/source_id for those that parse it",
            ReadBy,
            "--for",
        ),
    )
    profile: LabelProfile = field(
        default=LabelProfile.IMAGE_CLASSIFICATION,
        metadata=_about("Keys of the records", LabelProfile),
    )

    @classmethod
    def take(cls, names: Iterable[str], given: dict[str, Any]) -> ExportOptions:
        """Take the options of these names out of what a caller or a command line gave.

        Raises:
            OptionError: one makes no sense, or two of them together.
        """
        values = {
            one.name: _parsed(one.name, one.metadata["parse"], value)
            for one in fields(cls)
            if one.name in names and (value := given.pop(one.name, None)) is not None
        }
        options = cls(**values)
        if options.num_shards > 1 and options.shard_size is not None:
            raise OptionError("num_shards and shard_size exclude each other; give one of them")
        if options.layout is not Layout.ROBOFLOW:
            if options.name:
                raise OptionError("name: only the layout roboflow has shards of this name")
        elif options.save_masks or options.label_key is not LabelKey.BOTH:
            raise OptionError(
                "layout: roboflow's records have no masks and always text and id; leave out "
                "save_masks and label_key"
            )
        return options


def add_arguments(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add the options of these names to the parser of one of Datumaro's exporters."""
    known = {one.name: one for one in fields(ExportOptions)}
    for one in (known[name] for name in names):
        parse, default = one.metadata["parse"], one.default
        flag = one.metadata["flag"] or "--" + one.name.replace("_", "-")
        shown = one.metadata["help"]
        if default is not None:
            shown += " (default: %(default)s)"
        if parse is bool:
            parser.add_argument(flag, action="store_true", help=shown)
        elif isinstance(parse, type) and issubclass(parse, enum.Enum):
            choices = [choice.value for choice in parse]
            parser.add_argument(
                flag, dest=one.name, choices=choices, default=default.value, help=shown
            )
        else:
            parser.add_argument(flag, type=_argument(parse), default=default, help=shown)


def _parsed(name: str, parse: Any, value: Any) -> Any:
    if not (isinstance(parse, type) and issubclass(parse, enum.Enum)):
        return parse(str(value) if parse is parse_size else value)
    try:
        return parse(str(getattr(value, "value", value)).lower())
    except ValueError:
        choices = ", ".join(str(one.value) for one in parse)
        raise OptionError(f"{name}: {value!r} is not one of {choices}") from None


def _argument(parse: Callable[[Any], Any]) -> Callable[[str], Any]:
    """A parser for argparse, which wants its own error."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None

    return parsed
