"""``tfod merge``: shards with different label maps, put together."""

from __future__ import annotations

import argparse

from tfod.check.findings.finding import plural
from tfod.cli.arguments import Arguments, Parser
from tfod.cli.output import print_line, print_note
from tfod.cli.reshard import add_shards, layout_of, print_written, sources_and_folder


def add_arguments(parser: Parser) -> None:
    """What ``merge`` takes."""
    parser.description = (
        "Put shards together. Their label maps become one, by the names of the classes, and the "
        "ids in the records follow it. Subsets of one name are joined."
    )
    parser.set_defaults(run=_run)
    add_shards(parser, "1", "none")
    arguments = Arguments(parser)
    arguments.label_map("give the classes the ids of this one, or of one that tfod ships (coco, …)")
    text = "leave out a record when an earlier one has the same image and annotations"
    arguments.flag("--drop-equal-images", text)


def _run(options: argparse.Namespace) -> int:
    from tfod.shards.merge.merge import merge

    sources, folder = sources_and_folder(options)
    done = merge(
        sources,
        folder,
        label_map=options.label_map,
        layout=layout_of(options),
        drop_equal_images=options.drop_equal_images,
        overwrite=options.overwrite,
    )
    shards, classes = plural(len(done.paths), "shard"), plural(done.classes, "class")
    print_written(done, f"{shards} in {folder}, {classes}")
    print_line(f"{plural(done.rewritten, 'record')} got other class ids")
    if done.dropped:
        print_line(f"{plural(done.dropped, 'record')} left out: same image, same annotations")
    for sentence in done.repeated():
        print_note(sentence)
    return 0
