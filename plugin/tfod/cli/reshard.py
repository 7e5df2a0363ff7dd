"""``tfod reshard``: its options, and what it says of what was written."""

from __future__ import annotations

import argparse

from tfod.checker.finding import plural
from tfod.cli.arguments import (
    MOST_SHARDS,
    Parser,
    add_label_map,
    add_receiver,
    not_empty,
    to_write,
    whole_number,
)
from tfod.cli.printing import print_line, print_note
from tfod.errors import TfodError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.writer import ShardLayout, parse_size

_LARGEST_SEED = (1 << 32) - 1


def add_arguments(parser: Parser) -> None:
    """What ``reshard`` takes."""
    parser.description = (
        "Write the records of shards into other shards, byte for byte: another number or size of "
        "them, compressed or not, in order or shuffled. What is not asked for stays as it is. "
        "Several sources are put together; of different label maps one is made, by the names of "
        "the classes, and the ids in the records follow it."
    )
    parser.set_defaults(run=_run, more=())  # of the paths, those behind an option
    add = parser.add_argument
    text = "a shard, a folder, a zip or a glob; the last one is the folder to write"
    add("paths", metavar="SOURCE … DEST", help=text, nargs="+")
    add("--overwrite", action="store_true", help="replace shards of the same subsets there")
    either = parser.add_mutually_exclusive_group().add_argument
    text = "shards of each subset (default: as many as there are)"
    either("--num-shards", metavar="N", help=text, type=whole_number(1, MOST_SHARDS))
    text = "begin a new shard at this size, such as 100MB"
    either("--shard-size", metavar="SIZE", help=text, type=_size)
    text = "compress each shard (default: as it is)"
    add("--compression", help=text, choices=[one.value for one in Compression])
    text = "put the records of each subset in an order that this number decides"
    add("--shuffle", metavar="SEED", help=text, type=whole_number(0, _LARGEST_SEED))
    add("--join", metavar="NAME", help="write all shards as one subset", type=not_empty)
    add_receiver(add)
    add_label_map(add, "classes keep its ids, new ones get ids above its highest")


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except TfodError as error:  # argparse names the option itself
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def _run(options: argparse.Namespace) -> int:
    from tfod.shards.reshard import reshard

    paths: list[str] = [*options.paths, *options.more]
    *sources, folder = paths
    if not sources:
        options.parser.error("name what to read and, last, the folder to write")
    compression = Compression(options.compression) if options.compression else None
    done = reshard(
        sources,
        to_write(folder),
        ShardLayout(options.num_shards, options.shard_size, compression),
        shuffle=options.shuffle,
        overwrite=options.overwrite,
        receiver=options.receiver,
        label_map=options.label_map,
        join=options.join,
    )
    for subset, count in done.records.items():
        print_line(f"{subset}: {plural(count, 'record')}")
    print_line(f"{plural(len(done.paths), 'shard')} in {folder}")
    if done.kept_ids:
        print_line(f"label map: {', '.join(done.kept_ids)}")
    for name in () if done.kept_ids else done.label_maps:
        print_line(f"label map {'made of several' if done.is_joined else 'copied'}: {name}")
    for note in done.notes:
        print_note(note)
    return 0
