"""The command ``tfod describe``."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tfod.checker.reporters.escaping import escape_json
from tfod.cli.arguments import Parser, add_profile, not_empty, select_arguments
from tfod.cli.printing import print_text
from tfod.functions import describe

if TYPE_CHECKING:
    from tfod.shards.describe import Description, Use

_VERSION = 1
"""The version of the JSON, which increases when a key is changed or removed."""


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
    either = parser.add_mutually_exclusive_group().add_argument
    text = "text or json (default: text)"
    either("--format", metavar="NAME", help=text, choices=("text", "json"), default="text")
    text = "print a YAML profile for `tfod check --profile` instead"
    either("--as-profile", action="store_true", help=text)


def _run(options: argparse.Namespace) -> int:
    description = describe(options.sources, **select_arguments(describe, options))
    if options.as_profile:
        from tfod.checker.profiles.file import description_to_profile, profile_to_yaml

        profile = description_to_profile(description.feature_description(), options.sources[0])
        print_text(profile_to_yaml(profile))
    elif options.format == "json":
        document = {"tfod_describe": _VERSION, "sources": options.sources, **_to_json(description)}
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
        print_text(escape_json(text) + "\n")
    else:
        print_text(description.to_text(*options.sources))
    return 0


def _to_json(description: Description) -> dict[str, Any]:
    """Return the summary as JSON; ``docs/recipes/show.md`` describes the keys."""
    from tfod.shards.describe import quantiles, sort_uses

    boxes = sum(description.class_boxes.values(), Counter["Use"]())
    return {
        "shards": description.shards,
        "bytes": description.file_bytes,
        "records": description.records,
        "records_without_boxes": description.without_boxes,
        "damaged_records": description.damaged,
        "largest_record": description.largest_record,
        "boxes": description.boxes,
        "layouts": list(description.layouts),
        "label_maps": list(description.label_maps),
        "notes": description.notes,
        "keys": {
            key: {
                "kinds": [kind.value if kind else None for kind in summary.kinds],
                "records": summary.records,
                "min_values": summary.shortest,
                "max_values": summary.longest,
            }
            for key, summary in sorted(description.keys.items())
        },
        "classes": [
            {
                "name": use[0],
                "id": use[1],
                "boxes": boxes[use],
                "images": description.class_images[use],
                "boxes_by_subset": {
                    subset: counts[use] for subset, counts in description.class_boxes.items()
                },
            }
            for use in sort_uses(boxes)
        ],
        "numbers": {
            name: quantiles(counts) for name, counts in description.numbers.items() if counts
        },
    }
