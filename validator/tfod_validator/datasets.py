"""What a dataset is: the shards of one folder, with those of its folders for splits; or one zip."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tfod.remote import folder_of, is_url, name_of
from tfod.shards import SPLITS, is_roboflow_export, missing_of_sets

from tfod_validator.amounts import plural
from tfod_validator.sources import Inventory, ShardGroup


@dataclass(frozen=True)
class Dataset:
    """What is judged by one profile and has one verdict.

    Attributes:
        name: its folder or zip, as the user has named it.
        inventory: what is in it.
    """

    name: str
    inventory: Inventory


def datasets_of(inventory: Inventory) -> list[Dataset]:
    """The datasets of an inventory, in its order.

    Shards belong together that lie in one folder, or in folders below it that are named as splits
    (``train``, ``valid``, ``test``, …) or that a Roboflow export has. A zip is a dataset.
    """
    folder_of_dataset = functools.cache(_folder_of_dataset)
    groups: dict[str, list[ShardGroup]] = {}
    for group in inventory.groups:
        for key, part in _parts_of(group, folder_of_dataset):
            groups.setdefault(key, []).append(part)
    whole = replace(inventory, groups=(), archives=())
    found = [Dataset(_name_of(of_key), replace(whole, groups=of_key)) for of_key in groups.values()]
    for archive in inventory.archives:
        found.append(Dataset(archive.name, replace(whole, archives=(archive,))))
    return found


def _parts_of(
    group: ShardGroup, folder_of_dataset: Callable[[str], str]
) -> Iterator[tuple[str, ShardGroup]]:
    """The shards of a subset by dataset."""
    parts: dict[str, list[int]] = {}
    for number, shard in enumerate(group.shards):
        key = folder_of_dataset(folder_of(shard.location.path))
        parts.setdefault(key, []).append(number)
    for key, numbers in parts.items():
        shards = [group.shards[number] for number in numbers]
        missing = group.missing
        if missing and len(parts) > 1:
            missing = missing_of_sets([one.location.path for one in shards])
        yield key, ShardGroup(group.subset, shards, missing)


def _folder_of_dataset(folder: str) -> str:
    """The folder itself, or the one above it where it is one of a split."""
    parent = folder_of(folder)
    is_split = name_of(folder).lower() in SPLITS
    if is_split or (not is_url(parent) and is_roboflow_export(parent)):
        return parent
    return folder


def _name_of(groups: list[ShardGroup]) -> str:
    """The folder as the shards are named by it; of uploads, which have none, their names."""
    locations = [shard.location for group in groups for shard in group.shards]
    first = locations[0]
    folder = _folder_of_dataset(folder_of(first.path))
    if first.remote:
        return folder
    if first.name != first.path:  # an upload, or standard input
        more = len(locations) - 1
        return f"{first.name} and {plural(more, 'more file')}" if more else first.name
    return folder if os.path.isabs(first.name) else os.path.relpath(folder)
