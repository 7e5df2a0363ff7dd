"""Options of the exporters, defined once for the command line, Python and ``--help``."""

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
    """An option; ``flag`` is its name on the command line, if that differs."""

    help: str
    parse: Callable[[Any], Any] = str
    choices: tuple[str, ...] = ()
    flag: str = ""


_OPTIONS = {
    "save_masks": _Option("Write instance masks, including masks of boxes and polygons", bool),
    "num_shards": _Option("Number of shards per subset", parse_count),
    "shard_size": _Option("Begin a new shard at this size, such as 100MB", parse_size),
    "compression": _Option(
        "Compress each shard", Compression, tuple(method.value for method in Compression)
    ),
    "label_map": _Option(
        "Take class ids from this label map file, or from a label map that tfod ships (coco, …)"
    ),
    "label_key": _Option("Write classes as text, id or both", choices=("both", "text", "id")),
    "layout": _Option(
        "Arrange files as Roboflow does: train/ valid/ test/", choices=("flat", ROBOFLOW)
    ),
    "name": _Option(f"Name of the shards in the roboflow layout (default: {DEFAULT_NAME})"),
    "receiver": _Option(
        "Program that will read the shards; if it parses image/source_id, write numbers there",
        choices=("datumaro", *LARGEST_FOR),
        flag="--for",
    ),
    "profile": _Option(
        "Keys of the records", LabelProfile, tuple(profile.value for profile in LabelProfile)
    ),
}


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export; each exporter has some of them."""

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
    def take(cls, names: Iterable[str], options: dict[str, Any]) -> ExportOptions:
        """Remove the named options from ``options`` and parse them, or raise OptionError."""
        values = {name: value for name in names if (value := options.pop(name, None)) is not None}
        parsed = cls(**{name: _parse(name, value) for name, value in values.items()})
        if parsed.num_shards > 1 and parsed.shard_size is not None:
            raise OptionError("num_shards and shard_size exclude each other; pass only one")
        if parsed.layout != ROBOFLOW:
            if parsed.name:
                raise OptionError("name: only the roboflow layout supports this option")
        elif parsed.save_masks or parsed.label_key != "both":
            raise OptionError(
                "layout: records in the roboflow layout have no masks, and always text and id; "
                "omit save_masks and label_key"
            )
        return parsed


def add_arguments(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add the options of these names to the parser of one of Datumaro's exporters."""
    for name in names:
        option, default = _OPTIONS[name], getattr(ExportOptions, name)
        text = option.help if default is None else f"{option.help} (default: %(default)s)"
        settings: dict[str, Any] = {"action": "store_true"}
        if option.choices:
            settings = {"choices": option.choices, "default": getattr(default, "value", default)}
        elif option.parse is not bool:
            settings = {"type": _make_type(option.parse), "default": default}
        flag = option.flag or "--" + name.replace("_", "-")
        parser.add_argument(flag, dest=name, help=text, **settings)


def _parse(name: str, value: Any) -> Any:
    option = _OPTIONS[name]
    if not option.choices:
        return option.parse(str(value) if option.parse is parse_size else value)
    choice = str(getattr(value, "value", value)).lower()
    if choice not in option.choices:
        raise OptionError(f"{name}: {value!r} is not one of {', '.join(option.choices)}")
    return option.parse(choice)


def _make_type(parse: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return a type for argparse, which requires its own error."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None

    return parse_argument
