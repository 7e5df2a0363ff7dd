"""``tfod reshard``, and what ``tfod merge`` has in common with it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tfod.check.findings.finding import plural
from tfod.cli.arguments import MOST_SHARDS, Arguments, Parser, to_write, whole_number
from tfod.cli.output import print_line, print_note
from tfod.errors import TfodError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.writer import ShardLayout, parse_size

if TYPE_CHECKING:
    from tfod.shards.inputs import Written

_LARGEST_SEED = (1 << 32) - 1


def add_arguments(parser: Parser) -> None:
    """What ``reshard`` takes."""
    parser.description = (
        "Write the records of shards into other shards, byte for byte: another number or size of "
        "them, compressed or not, in order or shuffled. What is not asked for stays as it is."
    )
    parser.set_defaults(run=_run)
    add_shards(parser, "as many as there are", "as it is")
    arguments = Arguments(parser)
    text = "put the records of each subset in an order that this number decides"
    arguments.value("--shuffle", "SEED", text, type=whole_number(0, _LARGEST_SEED))
    arguments.receiver()


def add_shards(parser: Parser, number: str, compression: str) -> None:
    """Add what is read and what is written; the defaults as the help says them."""
    arguments = Arguments(parser)
    text = "a shard, a folder, a zip or a glob; the last one is the folder to write"
    arguments.value("paths", "SOURCE … DEST", text, nargs="+")
    arguments.flag("--overwrite", "replace shards of the same subsets there")
    group = Arguments(parser.add_mutually_exclusive_group())
    text = f"shards of each subset (default: {number})"
    group.value("--num-shards", "N", text, type=whole_number(1, MOST_SHARDS))
    group.value("--shard-size", "SIZE", "begin a new shard at this size, such as 100MB", type=_size)
    text = f"compress each shard (default: {compression})"
    arguments.value("--compression", None, text, choices=[one.value for one in Compression])
    parser.set_defaults(more=())  # of the paths, those behind an option


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except TfodError as error:  # argparse names the option itself
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def sources_and_folder(options: argparse.Namespace) -> tuple[list[str], str]:
    """What to read, and where to write."""
    paths: list[str] = [*options.paths, *options.more]
    *sources, folder = paths
    if not sources:
        options.parser.error("name what to read and, last, the folder to write")
    return sources, to_write(folder)


def layout_of(options: argparse.Namespace) -> ShardLayout:
    """What is asked of the shards."""
    compression = Compression(options.compression) if options.compression else None
    return ShardLayout(options.num_shards, options.shard_size, compression)


def _run(options: argparse.Namespace) -> int:
    from tfod.shards.reshard import reshard

    sources, folder = sources_and_folder(options)
    done = reshard(
        sources,
        folder,
        layout_of(options),
        shuffle=options.shuffle,
        overwrite=options.overwrite,
        receiver=options.receiver,
    )
    print_written(done, f"{plural(len(done.paths), 'shard')} in {folder}")
    for name in done.label_maps:
        print_line(f"label map copied: {name}")
    return 0


def print_written(done: Written, shards: str) -> None:
    """Say what was written, subset by subset and in all."""
    for name, count in done.records.items():
        print_line(f"{name}: {plural(count, 'record')}")
    print_line(shards)
    for note in done.notes:
        print_note(note)
