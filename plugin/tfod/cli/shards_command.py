"""``tfod reshard`` and ``merge``: what is done with shards."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfod.check.findings.finding import plural
from tfod.cli.command_line import (
    MOST_SHARDS,
    Commands,
    add_number,
    add_receiver,
    print_line,
    print_note,
)
from tfod.errors import TfodError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.writer import ShardLayout, parse_size

if TYPE_CHECKING:
    from tfod.shards.inputs import Written

_LARGEST_SEED = (1 << 32) - 1


def add_parser(commands: Commands) -> None:
    """Add ``reshard`` and ``merge`` to the commands."""
    parser = _add_command(
        commands,
        "reshard",
        _reshard,
        "write shards as another number of shards",
        "Write the records of shards into other shards, byte for byte: another number or size of "
        "them, compressed or not, in order or shuffled. What is not asked for stays as it is.",
    )
    _add_layout(parser, "as many as there are", "as it is")
    text = "put the records of each subset in an order that this number decides"
    add_number(parser, "--shuffle", text, least=0, most=_LARGEST_SEED, metavar="SEED")
    add_receiver(parser)

    parser = _add_command(
        commands,
        "merge",
        _merge,
        "put shards with different label maps together",
        "Put shards together. Their label maps become one, by the names of the classes, and the "
        "ids in the records follow it. Subsets of one name are joined.",
    )
    text = "give the classes the ids of this label map, or of one that tfod ships (coco, …)"
    parser.add_argument("--label-map", metavar="FILE|NAME", help=text)
    _add_layout(parser, "1", "none")
    text = "leave out a record when an earlier one has the same image and annotations"
    parser.add_argument("--drop-equal-images", action="store_true", help=text)


def _add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    description: str,
) -> argparse.ArgumentParser:
    usage = "%(prog)s [options] SOURCE [SOURCE ...] DEST"
    parser = commands.add_parser(name, help=text, description=description, usage=usage)
    text = "a shard, a folder, a zip or a glob; the last one is the folder to write"
    parser.add_argument("paths", metavar="SOURCE … DEST", nargs="+", help=text)
    text = "replace shards of the same subsets there"
    parser.add_argument("--overwrite", action="store_true", help=text)
    parser.set_defaults(run=run, more=())
    return parser


def _sources_and_folder(options: argparse.Namespace) -> tuple[list[str], str]:
    """What to read, and where to write."""
    paths: list[str] = [*options.paths, *options.more]
    *sources, folder = paths
    if not sources:
        options.parser.error("name what to read and, last, the folder to write")
    if not folder:
        raise TfodError("the name of what to write is empty; is a variable not set?")
    return sources, folder


def _add_layout(parser: argparse.ArgumentParser, number: str, compression: str) -> None:
    group = parser.add_mutually_exclusive_group()
    add_number(
        group, "--num-shards", f"shards of each subset (default: {number})", most=MOST_SHARDS
    )
    text = "begin a new shard at this size, such as 100MB"
    group.add_argument("--shard-size", type=_size, metavar="SIZE", help=text)
    text = f"compress each shard (default: {compression})"
    choices = [one.value for one in Compression]
    parser.add_argument("--compression", choices=choices, help=text)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except TfodError as error:  # argparse names the option itself
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def _layout(options: argparse.Namespace) -> ShardLayout:
    compression = Compression(options.compression) if options.compression else None
    return ShardLayout(options.num_shards, options.shard_size, compression)


def _reshard(options: argparse.Namespace) -> int:
    from tfod.shards.reshard import reshard

    sources, folder = _sources_and_folder(options)
    done = reshard(
        sources,
        folder,
        _layout(options),
        shuffle=options.shuffle,
        overwrite=options.overwrite,
        receiver=options.receiver,
    )
    _print(done, f"{plural(len(done.paths), 'shard')} in {folder}")
    for name in done.label_maps:
        print_line(f"label map copied: {name}")
    return 0


def _merge(options: argparse.Namespace) -> int:
    from tfod.shards.merge.merge import merge

    sources, folder = _sources_and_folder(options)
    done = merge(
        sources,
        folder,
        label_map=options.label_map,
        layout=_layout(options),
        drop_equal_images=options.drop_equal_images,
        overwrite=options.overwrite,
    )
    shards, classes = plural(len(done.paths), "shard"), plural(done.classes, "class")
    _print(done, f"{shards} in {folder}, {classes}")
    print_line(f"{plural(done.rewritten, 'record')} got other class ids")
    if done.dropped:
        print_line(f"{plural(done.dropped, 'record')} left out: same image, same annotations")
    for sentence in done.repeated():
        print_note(sentence)
    return 0


def _print(done: Written, shards: str) -> None:
    for name, count in done.records.items():
        print_line(f"{name}: {plural(count, 'record')}")
    print_line(shards)
    for note in done.notes:
        print_note(note)
