"""What a dataset is: the shards of one folder, with those of its folders for splits; or one zip."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tfod.check.findings.finding import plural
from tfod.check.rules.registry import RuleProblems
from tfod.check.rules.shards import missing_shards, mixed_sets
from tfod.check.sources.inventory import Inventory, ShardGroup
from tfod.tfrecord.shard_sets.names import (
    MOST_MISSING,
    SPLITS,
    first_number,
    missing_of_sets,
    parse_shard_name,
    subset_of_stem,
)
from tfod.tfrecord.shard_sets.search import is_roboflow_export
from tfod.tfrecord.storage.urls import folder_of, is_url, name_of


def datasets_of(inventory: Inventory) -> list[Inventory]:
    """The datasets of an inventory, in its order.

    Shards belong together that lie in one folder, or in folders below it that are named as splits
    (``train``, ``valid``, ``test``, …) or that a Roboflow export has. A zip is a dataset.
    """
    folder_of_dataset = functools.cache(_folder_of_dataset)
    groups: dict[str, list[ShardGroup]] = {}
    for group in inventory.groups:
        for key, part in _parts_of(group, folder_of_dataset):
            groups.setdefault(key, []).append(part)
    groups = {key: _by_split(parts) for key, parts in groups.items()}
    whole = replace(inventory, groups=(), archives=())
    found = [replace(whole, name=_name_of(one), groups=one) for one in groups.values()]
    for archive in inventory.archives:
        found.append(replace(whole, name=archive.name, archives=(archive,)))
    return found


def _by_split(parts: list[ShardGroup]) -> list[ShardGroup]:
    """Subsets that have one name in several folders get the names of their folders."""
    folders: dict[str, set[str]] = {}
    for part in parts:
        folders.setdefault(part.subset, set()).add(folder_of(part.shards[0].location.path))
    return [_named_by_folder(one) if len(folders[one.subset]) > 1 else one for one in parts]


def _named_by_folder(part: ShardGroup) -> ShardGroup:
    subset = subset_of_stem(name_of(folder_of(part.shards[0].location.path)))
    return ShardGroup(subset, [replace(one, subset=subset) for one in part.shards], part.missing)


def _parts_of(
    group: ShardGroup, folder_of_dataset: Callable[[str], str]
) -> Iterator[tuple[str, ShardGroup]]:
    """The shards of a subset by dataset and folder."""
    parts: dict[str, list[int]] = {}
    for number, shard in enumerate(group.shards):
        parts.setdefault(folder_of(shard.location.path), []).append(number)
    for folder, numbers in parts.items():
        shards = [group.shards[number] for number in numbers]
        missing = group.missing
        if missing and len(parts) > 1:
            missing = missing_of_sets([one.location.path for one in shards])
        yield folder_of_dataset(folder), ShardGroup(group.subset, shards, missing)


def _folder_of_dataset(folder: str) -> str:
    """The folder itself, or the one above it where it is one of a split."""
    parent = folder_of(folder)
    is_split = name_of(folder).lower() in SPLITS
    if is_split or (not is_url(parent) and is_roboflow_export(parent)):
        return parent
    # ``train_data`` and ``val_data`` are one split, too.
    words = re.split("([^a-z]+)", name_of(folder).lower())
    if SPLITS.isdisjoint(words):
        return folder
    alike = "".join("*" if word in SPLITS else word for word in words)
    return f"{parent.rstrip('/')}/{alike}" if is_url(parent) else os.path.join(parent, alike)


def _name_of(groups: list[ShardGroup]) -> str:
    """The folder as the shards are named by it; of uploads, which have none, their names."""
    locations = [shard.location for group in groups for shard in group.shards]
    first = locations[0]
    folders = {folder_of(one.path) for one in locations}
    folder = folders.pop() if len(folders) == 1 else _folder_of_dataset(folder_of(first.path))
    if first.remote:
        return folder
    if first.name != first.path:  # an upload, or standard input
        more = len(locations) - 1
        return f"{first.name} and {plural(more, 'more file')}" if more else first.name
    return folder if os.path.isabs(first.name) else os.path.relpath(folder)


def problems_of_sets(
    paths: Sequence[str], missing: Sequence[str]
) -> Iterator[tuple[str, RuleProblems]]:
    """The stems of the numbered sets that the shards of a subset make up, and what is wrong.

    ``train-00003-of-00010`` has the stem train and the total 10; ``missing`` are the names that
    the numbering promises.
    """
    totals: dict[str, dict[int, str]] = {}
    there: dict[str, set[int]] = {}
    for path in paths:
        name = parse_shard_name(path)
        if name is not None and name.total is not None:
            folder = folder_of(path) if is_url(path) else os.path.dirname(path)
            stem = os.path.join(folder, name.stem)
            totals.setdefault(stem, {}).setdefault(name.total, name_of(path))
            there.setdefault(stem, set()).add(name.number or 0)
    missing_of: dict[str, list[str]] = {}
    for one in missing:
        name = parse_shard_name(one)
        missing_of.setdefault(name.stem if name else "", []).append(one)
    for stem, found in totals.items():
        names = missing_of.get(os.path.basename(stem), [])
        count, total = len(names), next(iter(found))
        if len(found) == 1 and len(missing) >= MOST_MISSING:  # of which not all are named
            count = total - len(there[stem])
        if len(found) > 1:
            yield stem, mixed_sets(found)
        elif names:
            yield stem, missing_shards(names, count, first_number(there[stem], total))
