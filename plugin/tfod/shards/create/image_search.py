"""Where the image of a Pascal VOC annotation is, in the layouts that people have."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tfod.convert.pascal import VocImage
from tfod.detection.image import FORMAT_OF_EXTENSION
from tfod.shards.create.problems import Problems, Refusal
from tfod.tfrecord.image_names import split_extension

_FOLDERS = ("JPEGImages", "images")  # VOC's own; that of raccoon, kangaroo and most others
_OTHER_NAME = (
    "annotations whose <filename> is not their own; the image that is named as the XML file is read"
)
_AMBIGUOUS = Refusal(
    "annotations of which several images have the name",
    "write the name with its extension into <filename>, or move the other images away",
)


class FoundImage(NamedTuple):
    """The path of an image, and its name with the folder that its annotation is in."""

    path: str
    name: str


@dataclass(frozen=True)
class ImageFinder:
    """Finds the images of annotations.

    An image is named as its XML file, whatever ``<filename>`` and ``<path>`` say: who renames a
    dataset renames the files alone. Else it is the one that ``<filename>`` says, which may lack the
    extension. It is in ``image_dir``; without one in a folder of images beside that of the
    annotations, there in a folder as its annotation is, or beside its annotation.

    Attributes:
        image_dir: the only folder to look in.
    """

    image_dir: str | None = None
    _listed: dict[str, Mapping[str, list[str]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def find(self, root: str, annotations: str, voc: VocImage, problems: Problems) -> FoundImage:
        """The image of an annotation; where there is none, where it would be looked for first.

        Args:
            root: the folder of the dataset.
            annotations: the folder of its annotations.
            voc: the annotation.
            problems: counts those whose ``<filename>`` is passed over, and refuses those that
                several images are named as, unless these are equal.
        """
        beside = os.path.dirname(voc.file)
        stem = os.path.splitext(os.path.basename(voc.file))[0]
        said, extension = split_extension(voc.filename)
        places = list(dict.fromkeys(self._places(root, annotations, beside)))
        for name in dict.fromkeys((stem, said)):
            folder_in_name, own = os.path.split(name)
            for folder, above in places:
                images = self._in(os.path.join(folder, folder_in_name), own, extension)
                if images:
                    found = images[0]
                    if len(images) > 1:
                        problems.refuse(_AMBIGUOUS, f"{voc.file}: {', '.join(images)}")
                    if name == stem and os.path.basename(said) not in ("", stem):
                        problems.add(_OTHER_NAME, f"{voc.file}: {voc.filename}")
                    inside = os.path.join(above, folder_in_name, found)
                    path = os.path.join(folder, folder_in_name, found)
                    return FoundImage(path, os.path.normpath(inside).replace(os.sep, "/"))
        name = voc.filename or stem
        return FoundImage(os.path.join(places[0][0], name), name)

    def _places(self, root: str, annotations: str, beside: str) -> Iterator[tuple[str, str]]:
        """Folders to look in, each with what it adds to the image's name."""
        within = os.path.relpath(beside, annotations)
        if self.image_dir is not None:
            folders = [self.image_dir]
        else:
            folders = [os.path.join(root, name) for name in _FOLDERS]
            folders = [one for one in folders if os.path.isdir(one)] or folders[:1]
        for folder in folders:
            yield os.path.normpath(os.path.join(folder, within)), within
            yield folder, ""
        if self.image_dir is None:
            yield beside, within
            if annotations == root:  # only they were named
                for name in _FOLDERS:
                    yield os.path.normpath(os.path.join(root, os.pardir, name)), ""

    def _in(self, folder: str, stem: str, extension: str) -> list[str]:
        """Names of the images of this stem in a folder: of this extension, or unequal ones."""
        if folder not in self._listed:
            names: dict[str, list[str]] = {}
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                own, ending = os.path.splitext(name)
                if ending.lower() in FORMAT_OF_EXTENSION:
                    names.setdefault(own, []).append(name)
            self._listed[folder] = names
        found = self._listed[folder].get(stem, [])
        if stem + extension in found:
            return [stem + extension]
        first, *others = (os.path.join(folder, name) for name in found) if found else ("",)
        if all(filecmp.cmp(first, other, shallow=False) for other in others):
            return found[:1]
        return found
