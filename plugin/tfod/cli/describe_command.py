"""``tfod describe``: what is in shards, or a profile of it."""

from __future__ import annotations

import argparse

from tfod.cli.command_line import Commands, file_name, print_text


def add_parser(commands: Commands) -> None:
    """Add ``describe`` to the commands."""
    text = "Print what is in shards: records, keys with kinds and lengths, classes by subset, "
    text += "sizes of boxes and images, and a tf.io feature description ready to paste."
    parser = commands.add_parser("describe", help="say what is in shards", description=text)
    text = "a shard, a folder, a glob, a zip or a URL"
    parser.add_argument("sources", type=file_name, metavar="SOURCE", nargs="+", help=text)
    text = "print a profile for `tfod check --profile` instead, in YAML"
    parser.add_argument("--as-profile", action="store_true", help=text)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from tfod.shards.describe import describe

    found = describe(options.sources)
    if options.as_profile:
        from tfod.check.profiles.file import profile_of_description, profile_to_yaml

        profile = profile_of_description(found.feature_description(), options.sources[0])
        print_text(profile_to_yaml(profile))
    else:
        print_text(found.to_text(*options.sources))
    return 0
