"""``tfod describe``: what is in shards, or a profile of it."""

from __future__ import annotations

import argparse

from tfod.cli.arguments import Parser, add_profile, named_profile, not_empty
from tfod.cli.printing import print_text


def add_arguments(parser: Parser) -> None:
    """What ``describe`` takes."""
    parser.description = (
        "Print what is in shards: records, keys with kinds and lengths, classes by subset, "
        "sizes of boxes and images, and a tf.io feature description ready to paste."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "a shard, a folder, a glob, a zip or a URL"
    add("sources", metavar="SOURCE", help=text, type=not_empty, nargs="+")
    add_profile(add)
    text = "print a profile for `tfod check --profile` instead, in YAML"
    add("--as-profile", action="store_true", help=text)


def _run(options: argparse.Namespace) -> int:
    from tfod.shards.describe import describe

    profile = named_profile(options.profile)
    found = describe(options.sources, field_mapping=profile.field_mapping if profile else None)
    if options.as_profile:
        from tfod.checker.profiles.file import profile_of_description, profile_to_yaml

        profile = profile_of_description(found.feature_description(), options.sources[0])
        print_text(profile_to_yaml(profile))
    else:
        print_text(found.to_text(*options.sources))
    return 0
