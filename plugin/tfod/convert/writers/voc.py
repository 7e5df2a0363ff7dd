"""Pascal VOC: ``Annotations/*.xml``, ``JPEGImages`` and the lists in ``ImageSets/Main``.

Corners are pixels as the OD API's scripts and tfod read them: nothing is added, although VOC's own
files count from 1. Source: the devkit's VOC2012, and CVAT's for ``occluded``.
"""

from __future__ import annotations

import os
from dataclasses import replace

from tfod.convert.cvat_xml.document import xml_text
from tfod.convert.dataset import Images
from tfod.convert.numbers import digits, lines_of
from tfod.convert.pascal import VOC_ANNOTATIONS
from tfod.convert.writers.writer import Writer
from tfod.detection.detection import AttributeValue
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.tfrecord.image_names import safe_relative_path, split_extension
from tfod.tfrecord.shard_sets.names import stem_of_subset

_DECIMALS = 6
_FLAGS = ("truncated", "difficult", "occluded")
_FRACTIONS = "flags that are no whole numbers, rounded up"
# Whoever reads VOC strips the lines of its lists, and most the classes, too.
_BLANKS = "blanks at the ends of names, left out, since VOC is read without them"


class VocWriter(Writer):
    """Names of images are unique in the whole dataset, since all XML files share a folder."""

    IMAGES = "JPEGImages"
    CARRIES = frozenset(("view", "pose", *_FLAGS))

    def begin(self, subset: str) -> None:
        self._list = os.path.join(self.folder, "ImageSets", "Main", f"{stem_of_subset(subset)}.txt")
        self.documents.append(self._list)
        self._write(self._list, b"")

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._image_names(self._without_blanks(images))
        self._write_images(images, names)
        self._count_losses(images)
        classes = {one.id: xml_text(one.class_name.strip()) for one in label_map.items}
        left, top, right, bottom = (digits(side, _DECIMALS) for side in images.in_pixels().T)
        corners = (
            lines_of(
                *(b"<xmin>", left, b"</xmin><ymin>", top, b"</ymin><xmax>", right),
                *(b"</xmax><ymax>", bottom, b"</ymax>\n"),
            )
            .decode()
            .splitlines()
        )
        stems = [os.path.splitext(name)[0] for name in names]
        for row, (stem, name) in enumerate(zip(stems, names, strict=True)):
            height, width = images.sizes[row].tolist()
            start, end = images.splits[row : row + 2]
            flags = [""] * (end - start) if images.is_plain else self._flags(images, row)
            objects = "".join(
                f"<object><name>{classes[images.classes[at]]}</name>{flags[at - start]}"
                f"<bndbox>{corners[at]}</bndbox></object>\n"
                for at in range(start, end)
            )
            text = (
                f"<annotation>\n<filename>{xml_text(name)}</filename>\n<size><width>{width}</width>"
                f"<height>{height}</height><depth>3</depth></size>\n{objects}</annotation>\n"
            )
            path = os.path.join(self.folder, VOC_ANNOTATIONS, f"{stem}.xml")
            self._write(path, text.encode("utf-8", "replace"))
        with open(self._list, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(f"{stem}\n" for stem in stems)

    def finish(self, label_map: LabelMap) -> None:
        # Datumaro and CVAT take other classes than VOC's own from here.
        names: dict[str, str] = {}
        for one in label_map.items:
            name = one.class_name.strip()
            if not name or name in names:
                other = f"that of {names[name]!r}" if name else "empty"
                raise TfodError(
                    f"the class {one.class_name!r} would be {other} in VOC, which is read without "
                    "blanks at the ends of names; rename it"
                )
            names[name] = one.class_name
            self.losses[_BLANKS]["classes"] += name != one.class_name
        lines = [f"{name}:::\n" for name in names]
        text = "".join(("# label:color_rgb:parts:actions\n", *lines))
        self._write(os.path.join(self.folder, "labelmap.txt"), text.encode())

    def _without_blanks(self, images: Images) -> Images:
        """The same with names whose stems neither begin nor end with a blank."""
        filenames = []
        for filename in images.filenames:
            path = safe_relative_path(filename or "")
            stem, extension = split_extension(path.strip())
            filenames.append(stem.rstrip() + extension)
            self.losses[_BLANKS]["images"] += filenames[-1] != path
        return replace(images, filenames=filenames)

    def _flags(self, images: Images, row: int) -> list[str]:
        """What the XML has between the class and the box of each object."""
        attributes = images.detections[row].attributes
        views = attributes.get("view") or attributes.get("pose")
        texts = [""] * (images.splits[row + 1] - images.splits[row])
        for at in range(len(texts)):
            if views is not None and views[at] is not None:
                texts[at] += f"<pose>{xml_text(str(views[at]))}</pose>"
            for name in _FLAGS:
                value = attributes[name][at] if name in attributes else None
                if value is not None:
                    texts[at] += f"<{name}>{self._flag(value)}</{name}>"
        return texts

    def _flag(self, value: AttributeValue) -> int:
        if isinstance(value, int):
            return int(value)
        self.losses[_FRACTIONS][""] += bool(value)
        return int(bool(value))
