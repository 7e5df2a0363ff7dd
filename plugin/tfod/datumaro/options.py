"""The exporter's own options: their command line and their values."""

from __future__ import annotations

import argparse
import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tfod.compression import Compression
from tfod.errors import TfodError
from tfod.picture import FORMAT_OF_EXTENSION

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\Z", re.IGNORECASE)
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_Choice = TypeVar("_Choice", bound=enum.Enum)


class OptionError(TfodError):
    """An option of the exporter makes no sense."""


def parse_size(text: str) -> int:
    """Bytes of a size such as ``100MB`` (units of 1024).

    Raises:
        OptionError: it is none.
    """
    match = _SIZE.match(text.strip())
    size = int(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0
    if size < 1:
        raise OptionError(f"shard_size: {text!r} is no size; write for example 100MB")
    return size


def check_image_extension(extension: str | None) -> None:
    """See that pictures can be encoded to an extension.

    Raises:
        OptionError: they cannot.
    """
    if extension and f".{extension.lower().lstrip('.')}" not in FORMAT_OF_EXTENSION:
        known = ", ".join(FORMAT_OF_EXTENSION)
        raise OptionError(f"image_ext: {extension!r} is not one of {known}")


def parse_count(value: int | str) -> int:
    """A number from 1.

    Raises:
        OptionError: it is none.
    """
    if not str(value).isdigit() or int(value) < 1:
        raise OptionError(f"num_shards: {value!r} is no number from 1")
    return int(value)


def _argument(parse: Callable[[str], int]) -> Callable[[str], int]:
    """A parser for argparse, which wants its own error."""

    def parsed(text: str) -> int:
        try:
            return parse(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None

    return parsed


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
        label_map: a label map file or name that gives the class ids.
        label_key: how classes are written.
    """

    save_masks: bool
    num_shards: int
    shard_size: int | None
    compression: Compression
    label_map: str | None
    label_key: LabelKey

    @classmethod
    def parse(
        cls,
        save_masks: bool,
        num_shards: int | str,
        shard_size: int | str | None,
        compression: str,
        label_map: str | None,
        label_key: str,
    ) -> ExportOptions:
        """Make them from what a caller or a command line gave.

        Raises:
            OptionError: one makes no sense, or two of them together.
        """
        options = cls(
            save_masks,
            parse_count(num_shards),
            None if shard_size is None else parse_size(str(shard_size)),
            _one_of("compression", Compression, compression),
            label_map,
            _one_of("label_key", LabelKey, label_key),
        )
        if options.num_shards > 1 and options.shard_size is not None:
            raise OptionError("num_shards and shard_size exclude each other; give one of them")
        return options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of Datumaro's exporters."""
    parser.add_argument(
        "--save-masks",
        action="store_true",
        help="Include instance masks, of boxes and polygons too (default: %(default)s)",
    )
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
    parser.add_argument(
        "--label-map",
        help="Take class ids from this label map file, or from one that tfod ships (coco, …)",
    )
    parser.add_argument(
        "--label-key",
        choices=[one.value for one in LabelKey],
        default=LabelKey.BOTH.value,
        help="Write classes as text, as id, or both (default: %(default)s)",
    )


def _one_of(option: str, kind: type[_Choice], value: str) -> _Choice:
    try:
        return kind(str(getattr(value, "value", value)).lower())
    except ValueError:
        choices = ", ".join(str(one.value) for one in kind)
        raise OptionError(f"{option}: {value!r} is not one of {choices}") from None
