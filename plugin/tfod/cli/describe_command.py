"""``tfod describe``: what is in shards."""

from __future__ import annotations

import argparse

from tfod.detection.describe import describe

EXIT_OK = 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``describe`` to the commands."""
    parser = commands.add_parser(
        "describe",
        help="say what is in shards",
        description="Print what is in shards: records, keys with kinds and lengths, classes, "
        "sizes, and a tf.io feature description ready to paste.",
    )
    parser.add_argument("source", metavar="SHARD", help="a shard, a folder or a glob")
    parser.add_argument(
        "--as-profile",
        action="store_true",
        help="print a profile for `tfod check --profile` instead, in YAML",
    )
    parser.set_defaults(run=_describe)


def _describe(options: argparse.Namespace) -> int:
    found = describe(options.source)
    if options.as_profile:
        from tfod.check.profiles.file import profile_of_description, profile_to_yaml

        print(profile_to_yaml(profile_of_description(found, options.source)), end="")
    else:
        print(found.to_text(), end="")
    return EXIT_OK
