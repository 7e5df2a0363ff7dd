"""The command ``tfod describe``."""

from __future__ import annotations

import argparse

from tfod.cli.arguments import Parser, add_profile, not_empty, select_arguments
from tfod.cli.printing import print_text
from tfod.functions import describe


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``describe``."""
    parser.description = (
        "Print a summary of shards: records, keys with types and lengths, classes per subset, box "
        "and image sizes, and a tf.io feature description."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "a shard, folder, glob, zip or URL"
    add("sources", metavar="SOURCE", help=text, type=not_empty, nargs="+")
    add_profile(add)
    text = "print a YAML profile for `tfod check --profile` instead"
    add("--as-profile", action="store_true", help=text)


def _run(options: argparse.Namespace) -> int:
    description = describe(options.sources, **select_arguments(describe, options))
    if options.as_profile:
        from tfod.checker.profiles.file import description_to_profile, profile_to_yaml

        profile = description_to_profile(description.feature_description(), options.sources[0])
        print_text(profile_to_yaml(profile))
    else:
        print_text(description.to_text(*options.sources))
    return 0
