"""``tfod describe``, ``reshard``, ``merge``, ``split`` and ``index``: what is done with shards."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from tfod.check.findings.finding import plural
from tfod.cli.command_line import (
    Commands,
    add_number,
    add_receiver,
    print_line,
    print_note,
    whole_number,
)
from tfod.errors import TfodError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.writer import ShardLayout, parse_count, parse_size

_MOST_LISTED = 10
_LARGEST_SEED = (1 << 32) - 1


def add_parser(commands: Commands) -> None:
    """Add ``describe``, ``reshard``, ``merge``, ``split`` and ``index`` to the commands."""
    text = "Print what is in shards: records, keys with kinds and lengths, classes, sizes, and a "
    text += "tf.io feature description ready to paste."
    parser = commands.add_parser("describe", help="say what is in shards", description=text)
    parser.add_argument("source", metavar="SHARD", help="a shard, a folder or a glob")
    text = "print a profile for `tfod check --profile` instead, in YAML"
    parser.add_argument("--as-profile", action="store_true", help=text)
    parser.set_defaults(run=_describe)

    parser = _add_command(
        commands,
        "reshard",
        _reshard,
        "write shards as another number of shards",
        "Write the records of shards into other shards, byte for byte: another number or size of "
        "them, compressed or not, in order or shuffled. What is not asked for stays as it is.",
    )
    _add_output(parser)
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
    _add_output(parser)
    text = "give the classes the ids of this label map, or of one that tfod ships (coco, …)"
    parser.add_argument("--label-map", metavar="FILE|NAME", help=text)
    _add_layout(parser, "1", "none")
    text = "leave out a record when an earlier one has the same image and annotations"
    parser.add_argument("--drop-equal-images", action="store_true", help=text)

    parser = _add_command(
        commands,
        "split",
        _split,
        "split shards into subsets, each with its share of every class",
        "Split the records of shards into subsets such as train, val and test, each with its share "
        "of the boxes of every class. Equal images stay together.",
        "SOURCE|NAME=PART",
        "shards, folders, zips or globs; then the subsets, each with its share (train=0.8) or its "
        "number of records (train=800)",
    )
    _add_output(parser)
    seed = whole_number(0, _LARGEST_SEED)
    text = "another one splits otherwise (default: 0)"
    parser.add_argument("--seed", type=seed, default=0, help=text)
    _add_layout(parser, "1", "none")

    parser = _add_command(
        commands,
        "index",
        _index,
        "write index files, for NVIDIA DALI and others that jump to a record",
        "Write SHARD.idx for each shard: a line for each record, the byte at which it begins and "
        "how many bytes it has.",
    )
    text = "where to write (default: beside the shards)"
    parser.add_argument("-o", "--output", metavar="FOLDER", help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace index files")


def _add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    description: str,
    metavar: str = "SOURCE",
    sources: str = "a shard, a folder, a zip or a glob",
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=description)
    parser.add_argument("sources", metavar=metavar, nargs="+", help=sources)
    parser.set_defaults(run=run, more=())
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-o", "--output", metavar="FOLDER", required=True, help="where to write")
    add("--overwrite", action="store_true", help="replace shards of the same subsets there")


def _add_layout(parser: argparse.ArgumentParser, number: str, compression: str) -> None:
    add = parser.add_mutually_exclusive_group().add_argument
    text = f"shards of each subset (default: {number})"
    add("--num-shards", type=_argument(parse_count), metavar="N", help=text)
    text = "begin a new shard at this size, such as 100MB"
    add("--shard-size", type=_argument(parse_size), metavar="SIZE", help=text)
    text = f"compress each shard (default: {compression})"
    choices = [one.value for one in Compression]
    parser.add_argument("--compression", choices=choices, help=text)


def _argument(parse: Callable[[str], int]) -> Callable[[str], int]:
    """A parser for argparse, which wants its own error and names the option itself."""

    def parsed(text: str) -> int:
        try:
            return parse(text)
        except TfodError as error:
            raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None

    return parsed


def _layout(options: argparse.Namespace) -> ShardLayout:
    compression = Compression(options.compression) if options.compression else None
    return ShardLayout(options.num_shards, options.shard_size, compression)


def _describe(options: argparse.Namespace) -> int:
    from tfod.detection.features.describe import describe

    found = describe(options.source)
    if options.as_profile:
        from tfod.check.profiles.file import profile_of_description, profile_to_yaml

        print(profile_to_yaml(profile_of_description(found, options.source)), end="")
    else:
        print(found.to_text(), end="")
    return 0


def _reshard(options: argparse.Namespace) -> int:
    from tfod.shards.reshard import reshard

    done = reshard(
        [*options.sources, *options.more],
        options.output,
        _layout(options),
        shuffle=options.shuffle,
        overwrite=options.overwrite,
        receiver=options.receiver,
    )
    _print_subsets(done.records)
    print_line(f"{plural(len(done.paths), 'shard')} in {options.output}")
    for name in done.label_maps:
        print_line(f"label map copied: {name}")
    return _end(done.notes)


def _merge(options: argparse.Namespace) -> int:
    from tfod.shards.merge.merge import merge

    done = merge(
        [*options.sources, *options.more],
        options.output,
        label_map=options.label_map,
        layout=_layout(options),
        drop_equal_images=options.drop_equal_images,
        overwrite=options.overwrite,
    )
    _print_subsets(done.records)
    shards, classes = plural(len(done.paths), "shard"), plural(done.classes, "class")
    print_line(f"{shards} in {options.output}, {classes}")
    print_line(f"{plural(done.rewritten, 'record')} got other class ids")
    if done.dropped:
        print_line(f"{plural(done.dropped, 'record')} left out: same image, same annotations")
    for count, what in (
        (done.equal_images - done.dropped, "the image of an earlier record"),
        (done.equal_names, "the file name of an earlier record of its subset"),
    ):
        if count:
            print_note(f"{plural(count, 'record')} written with {what}")
    for one in done.equal[:_MOST_LISTED]:
        what = "same image" if one.same_image else "same file name"
        what += ", left out" * one.dropped
        print_note(f"{what}: {one.second}; first in {one.first}")
    more = done.equal_images + done.equal_names - _MOST_LISTED
    if more > 0:
        print_note(f"and {more:,} more of these")
    return _end(done.notes)


def _split(options: argparse.Namespace) -> int:
    from tfod.check.reporters.escaping import in_columns
    from tfod.shards.split.split import parse_parts, split

    sources, parts = _sources_and_parts([*options.sources, *options.more])
    done = split(
        sources,
        options.output,
        parse_parts(parts),
        seed=options.seed,
        layout=_layout(options),
        overwrite=options.overwrite,
    )
    rows = [("", *done.records), ("records", *map(str, done.records.values()))]
    boxes = done.boxes.T.tolist()
    rows += [(name, *map(str, row)) for name, row in zip(done.classes, boxes, strict=True)]
    for line in in_columns(rows):
        print_line(line)
    if done.equal_images:
        equal = f"{plural(done.equal_images, 'record')} with the image of another one"
        print_line(f"{equal}, kept in the same subset")
    print_line(f"{plural(len(done.paths), 'shard')} in {options.output}")
    return _end(done.notes)


def _sources_and_parts(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    first = len(arguments)
    while first and "=" in arguments[first - 1] and not os.path.exists(arguments[first - 1]):
        first -= 1
    if not arguments[:first]:
        raise TfodError("name the shards to split, in front of the parts")
    if not arguments[first:]:
        raise TfodError("name the parts behind the shards, for example: train=0.8 val=0.2")
    return arguments[:first], arguments[first:]


def _index(options: argparse.Namespace) -> int:
    from tfod.shards.index import write_indexes

    sources = [*options.sources, *options.more]
    written = write_indexes(sources, options.output, overwrite=options.overwrite)
    _print_subsets(written)
    return 0


def _print_subsets(records: Mapping[str, int]) -> None:
    for name, count in records.items():
        print_line(f"{name}: {plural(count, 'record')}")


def _end(notes: Iterable[str]) -> int:
    for note in notes:
        print_note(note)
    return 0
