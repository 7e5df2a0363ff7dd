"""The command ``tfod reshard``."""

from __future__ import annotations

import argparse

from tfod.checker.finding import plural
from tfod.cli.arguments import (
    MAX_SHARDS,
    Parser,
    add_label_map,
    add_receiver,
    not_empty,
    output_path,
    select_arguments,
    whole_number,
)
from tfod.cli.printing import print_line, print_note
from tfod.errors import TfodError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.writer import ShardLayout, parse_size

_MAX_SEED = (1 << 32) - 1


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``reshard``."""
    parser.description = (
        "Copy the records of shards to new shards, byte for byte, with a different number, size, "
        "compression or order. Everything else is left unchanged. Several sources are merged; "
        "different label maps are merged by class name, and the ids in the records are updated."
    )
    parser.set_defaults(run=_run, more_paths=())  # more_paths: the paths after an option
    add = parser.add_argument
    text = "a shard, folder, zip or glob; the last path is the folder to write"
    add("paths", metavar="SOURCE … DEST", help=text, nargs="+")
    add("--overwrite", action="store_true", help="replace shards of the same subsets in DEST")
    either = parser.add_mutually_exclusive_group().add_argument
    text = "number of shards per subset (default: unchanged)"
    either("--num-shards", metavar="N", help=text, type=whole_number(1, MAX_SHARDS))
    text = "start a new shard at this size, such as 100MB"
    either("--shard-size", metavar="SIZE", help=text, type=_size)
    text = "compression of the shards (default: unchanged)"
    add("--compression", help=text, choices=[compression.value for compression in Compression])
    text = "shuffle the records of each subset with this random seed"
    add("--shuffle", metavar="SEED", help=text, type=whole_number(0, _MAX_SEED))
    add("--join", metavar="NAME", help="write all shards as one subset", type=not_empty)
    add_receiver(add)
    add_label_map(add, "keep the class ids of this label map; new classes get higher ids")


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except TfodError as error:  # argparse names the option itself
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def _run(options: argparse.Namespace) -> int:
    from tfod.shards.reshard import reshard

    paths: list[str] = [*options.paths, *options.more_paths]
    *sources, folder = paths
    if not sources:
        options.parser.error("name the sources and, last, the folder to write")
    compression = Compression(options.compression) if options.compression else None
    result = reshard(
        sources,
        output_path(folder),
        ShardLayout(options.num_shards, options.shard_size, compression),
        **select_arguments(reshard, options),
    )
    for subset, count in result.records.items():
        print_line(f"{subset}: {plural(count, 'record')}")
    print_line(f"{plural(len(result.paths), 'shard')} in {folder}")
    if result.kept_ids:
        print_line(f"label map: {', '.join(result.kept_ids)}")
    else:
        for name in result.label_maps:
            print_line(f"label map {'merged' if result.is_joined else 'copied'}: {name}")
    for note in result.notes:
        print_note(note)
    return 0
