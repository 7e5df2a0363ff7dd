"""What ``tfod create`` reads, as datasets to be converted: COCO and Pascal VOC."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from tfod.convert.coco import read_coco
from tfod.convert.dataset import Batch, Dataset
from tfod.errors import TfodError
from tfod.shards.convert.formats import ReadOptions
from tfod.shards.create.coco.create import plan_coco
from tfod.shards.create.coco.reader import CocoSet
from tfod.shards.create.label_maps import ChosenLabelMap
from tfod.shards.create.output import Options, Plan, PlannedSet
from tfod.shards.create.pascal import image_sets, plan_pascal, xml_files
from tfod.shards.create.problems import Problems
from tfod.tfrecord.shard_sets.names import subset_of_stem

_BATCH = 16  # images, whose bytes are held
_PREFIXES = ("instances_", "person_keypoints_")
_ROBOFLOW = "_annotations.coco.json"  # of each subset's folder, beside its images
_DEFAULT = "default"
_ROOT = re.compile(rb"<annotation[\s>]")  # not CVAT's <annotations>


def dataset_of(plans: Mapping[str, Plan]) -> Dataset:
    """A dataset of what was planned by subset, of one label map."""
    chosen = next(iter(plans.values())).chosen
    problems = list({id(plan.problems): plan.problems for plan in plans.values()}.values())

    def finish() -> Sequence[str]:
        for one in problems:
            one.raise_refusals()
        return (*chosen.notes, *(text for one in problems for text in one.sentences()))

    return Dataset(
        [chosen.label_map],
        {subset: _batches(plan.sets[0], chosen, plan.problems) for subset, plan in plans.items()},
        finish,
    )


def _batches(planned: PlannedSet, chosen: ChosenLabelMap, problems: Problems) -> Iterator[Batch]:
    items = iter(planned.items)
    while some := list(itertools.islice(items, _BATCH)):
        made = (planned.make(item, problems) for item in some)
        yield Batch([one for one in made if one is not None], chosen.label_map)


# COCO


def read_coco_folder(path: str, options: ReadOptions) -> Dataset:
    """Read a JSON of instances, or all of a folder's ``annotations``, each a subset.

    Raises:
        TfodError: there is none, or it makes no sense, or has no images.
    """
    files = coco_files(path)
    if not files:
        raise TfodError(f"{path} holds no JSON of COCO's instances; name one")
    sets = {_subset_of(file): _coco_set(file, options.images) for file in files}
    if len(sets) < len(files):
        raise TfodError(f"{path}: two JSONs are of the same subset: {', '.join(files)}; name one")
    plan = plan_coco(list(sets.values()), "", _options(options), include_masks=None)
    return dataset_of(
        {subset: plan._replace(sets=[one]) for subset, one in zip(sets, plan.sets, strict=True)}
    )


def coco_files(path: str) -> list[str]:
    """The JSONs of instances at a path."""
    if os.path.isfile(path):
        return [path] if path.lower().endswith(".json") else []
    roboflow = sorted(glob.glob(os.path.join(glob.escape(path), "*", _ROBOFLOW)))
    if roboflow:
        return roboflow
    inside = os.path.join(path, "annotations")
    folder = inside if os.path.isdir(inside) else path
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [name for name in names if name.lower().endswith(".json") and name[0] != "."]
    instances = [name for name in found if name.startswith("instances")]
    others = [name for name in found if not name.startswith(("captions", "panoptic", "stuff"))]
    return [os.path.join(folder, name) for name in instances or others]


def _subset_of(file: str) -> str:
    folder, name = os.path.split(os.path.abspath(file))
    if name == _ROBOFLOW:
        return os.path.basename(folder)
    return subset_of_stem(os.path.splitext(name)[0].removeprefix(_prefix_of(file)))


def _prefix_of(file: str) -> str:
    # One at most: a subset's name may begin with another.
    return next(filter(os.path.basename(file).startswith, _PREFIXES), "")


def _coco_set(file: str, images: str | None) -> CocoSet:
    subset, folder = _subset_of(file), os.path.dirname(file)
    above = os.path.dirname(os.path.abspath(folder))
    places = [
        os.path.join(where, *parts)
        for where in (folder, above)
        for parts in (("images", subset), (subset,), ("images",))
    ]
    found = [images] if images else [one for one in places if os.path.isdir(one)] or [folder]
    name = os.path.basename(file).removeprefix(_prefix_of(file))
    beside = os.path.join(folder, _PREFIXES[1] + name)
    points = beside if os.path.isfile(beside) else None
    if any(one.get("keypoints") for one in read_coco(file, ()).categories):
        points = file
    return CocoSet(subset, found[0], file, points)


def _options(options: ReadOptions) -> Options:
    return Options(label_map=options.label_map, num_shards=1, policy=options.policy)


# Pascal VOC


def is_voc(path: str) -> bool:
    """Whether a folder is laid out as VOC's, or holds XML files of images."""
    names = os.listdir(path) if os.path.isdir(path) else []
    folders = {"Annotations", "annotations", "annots", "VOC2007", "VOC2012"}.intersection(names)
    beside = (os.path.join(path, one) for one in names if one.lower().endswith(".xml"))
    below = (xml_files(os.path.join(path, one)) for one in folders)
    firsts = (next(iter(some), None) for some in (beside, *below))
    return any(one is not None and _is_annotation(one) for one in firsts)


def _is_annotation(path: str) -> bool:
    with open(path, "rb") as file:
        return _ROOT.search(file.read(1024)) is not None


def read_voc_folder(path: str, options: ReadOptions) -> Dataset:
    """Read VOC's folders, each list of images a subset; or XML files without lists as one.

    Raises:
        TfodError: something is missing or makes no sense.
    """
    names: list[str | None] = [*image_sets(path)] or [None]
    planned = {
        name or _DEFAULT: plan_pascal(
            path, "", _options(options), image_set=name, image_dir=options.images
        )
        for name in names
    }
    return dataset_of(planned)
