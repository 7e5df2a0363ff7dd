"""The options of our exporters: one definition each for the command line, Python and ``--help``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tfod.detection.encoder import LabelProfile
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.formats.layouts.roboflow import DEFAULT_NAME
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.writer import OptionError, parse_count, parse_size

ROBOFLOW = "roboflow"
"""The layout of Roboflow's exports."""


@dataclass(frozen=True)
class _Option:
    """What ``--help`` says of an option, and how a value is made of what was given.

    Choices are all that it may be; ``flag`` is its name on the command line where that is another.
    """

    help: str
    parse: Callable[[Any], Any] = str
    choices: tuple[str, ...] = ()
    flag: str = ""


_OPTIONS = {
    "save_masks": _Option("Include instance masks, of boxes and polygons too", bool),
    "num_shards": _Option("Number of shards for each subset", parse_count),
    "shard_size": _Option("Begin a new shard at this size, such as 100MB", parse_size),
    "compression": _Option(
        "Compress each shard", Compression, tuple(one.value for one in Compression)
    ),
    "label_map": _Option(
        "Take class ids from this label map file, or from one that tfod ships (coco, …)"
    ),
    "label_key": _Option("Write classes as text, as id, or both", choices=("both", "text", "id")),
    "layout": _Option(
        "Lay files out as Roboflow does: train/ valid/ test/", choices=("flat", ROBOFLOW)
    ),
    "name": _Option(f"Name of the shards in the layout roboflow (default: {DEFAULT_NAME})"),
    "receiver": _Option(
        "Who reads the shards next: numbers as image/source_id for those that parse it",
        choices=("datumaro", *LARGEST_FOR),
        flag="--for",
    ),
    "profile": _Option(
        "Keys of the records", LabelProfile, tuple(one.value for one in LabelProfile)
    ),
}


@dataclass(frozen=True)
class ExportOptions:
    """How shards are written; each exporter takes those that it names."""

    save_masks: bool = False
    num_shards: int = 1
    shard_size: int | None = None
    compression: Compression = Compression.NONE
    label_map: str | None = None
    label_key: str = "both"
    layout: str = "flat"
    name: str | None = None
    receiver: str = "datumaro"
    profile: LabelProfile = LabelProfile.IMAGE_CLASSIFICATION

    @classmethod
    def take(cls, names: Iterable[str], given: dict[str, Any]) -> ExportOptions:
        """Take the options of these names out of what a caller or a command line gave.

        Raises:
            OptionError: one makes no sense, or two of them together.
        """
        values = {
            name: _parsed(name, value)
            for name in names
            if (value := given.pop(name, None)) is not None
        }
        options = cls(**values)
        if options.num_shards > 1 and options.shard_size is not None:
            raise OptionError("num_shards and shard_size exclude each other; give one of them")
        if options.layout != ROBOFLOW:
            if options.name:
                raise OptionError("name: only the layout roboflow has shards of this name")
        elif options.save_masks or options.label_key != "both":
            raise OptionError(
                "layout: roboflow's records have no masks and always text and id; leave out "
                "save_masks and label_key"
            )
        return options


def add_arguments(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add the options of these names to the parser of one of Datumaro's exporters."""
    for name in names:
        one, default = _OPTIONS[name], getattr(ExportOptions, name)
        shown = one.help if default is None else f"{one.help} (default: %(default)s)"
        more: dict[str, Any] = {"action": "store_true"}
        if one.choices:
            more = {"choices": one.choices, "default": getattr(default, "value", default)}
        elif one.parse is not bool:
            more = {"type": _argument(one.parse), "default": default}
        flag = one.flag or "--" + name.replace("_", "-")
        parser.add_argument(flag, dest=name, help=shown, **more)


def _parsed(name: str, value: Any) -> Any:
    one = _OPTIONS[name]
    if not one.choices:
        return one.parse(str(value) if one.parse is parse_size else value)
    choice = str(getattr(value, "value", value)).lower()
    if choice not in one.choices:
        raise OptionError(f"{name}: {value!r} is not one of {', '.join(one.choices)}")
    return one.parse(choice)


def _argument(parse: Callable[[Any], Any]) -> Callable[[str], Any]:
    """A parser for argparse, which wants its own error."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None

    return parsed
