"""One image with its objects, of whatever format: where its boxes were drawn, and which can stay.

Tools show a photo as its EXIF orientation says, or as its pixels are stored. The size that the
annotation gives tells the two apart where the image is turned by a quarter and is not square
(tensorflow#49834, labelImg#376); else it was drawn upright, as every tool of today shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfod.detection.detection import AttributeValue, Detection, Keypoints, PngMask
from tfod.detection.images.image import QUARTER, UPRIGHT
from tfod.detection.images.upright import opposite, turned_back, with_upright_pixels
from tfod.formats.dataset import KnownClasses
from tfod.formats.files import ImageFile, ImageFiles, read_image
from tfod.formats.options import OddBoxes, Options, Problems, Refusal
from tfod.tfrecord.image_names import safe_relative_path

Size: TypeAlias = "tuple[int, int]"
"""Height and width in pixels."""
AnnotatedSize: TypeAlias = "tuple[int | None, int | None]"
"""Height and width that an annotation gives; None where it does not."""

TURNED = "images turned as their EXIF orientation shows them, and stored without it"
_TURNED_BACK = "images whose boxes were drawn as EXIF shows them, put on the stored pixels"
TAKEN_UPRIGHT = (
    "images with an EXIF orientation whose sizes do not tell how they were shown, taken as "
    "annotated upright"
)
_EXCHANGED = Refusal(
    "images whose annotation exchanges their height and width, and no EXIF orientation says how "
    "they were turned",
    "export images and annotations together again, or correct the sizes",
)
_CONTRADICTORY = Refusal(
    "images whose boxes fit them only as their EXIF orientation shows them, though their "
    "annotation gives the stored size",
    "correct the annotation's size",
)
_NO_SIZE = Refusal(
    "images without a size in their annotations, which boxes in pixels need",
    "write width and height there, or leave --no-images out",
)
OTHER_SIZE = (
    "images of another size than their annotation says; their boxes are divided by the annotation's"
)
_SLOPPY = 1e-3  # of the image's side: boxes may pass its edge by sloppiness, not by a turn
_ROUNDING = 1e-5  # of the image's side: what float32 does
_DECIMALS = 0.011  # pixels: x and width of two decimals, as COCO has them, add up to so much

NORMALIZED = (1, 1)
"""In place of a size: boxes are divided by it already."""
_ORDER = "where many are, look whether xmin, ymin, xmax and ymax are mixed up; "
_FIX = "correct them"
_CHOICE = ", or choose --odd-boxes clip or --odd-boxes drop"
_NOT_FINITE = "boxes with a number that is not finite"
_INVERTED = "boxes whose maximum is below their minimum"
_FLAT = "boxes without width or height"
_OUTSIDE = "boxes that reach outside their image"
_LARGEST = float(np.finfo(np.float32).max)
_LEAST_SIDE = float(np.finfo(np.float32).eps)


class Frame(NamedTuple):
    """The image as it was annotated.

    Attributes:
        size: height and width that boxes in pixels are divided by; None where nothing says it.
        own: the image's size in this frame, by its header.
        orientation: EXIF's, of the file.
        is_upright: whether it was annotated as that shows it.
    """

    size: Size | None
    own: Size | None
    orientation: int = UPRIGHT
    is_upright: bool = True


def frame_of(
    image: ImageFile | None,
    annotated: AnnotatedSize,
    boxes: Sequence[Sequence[float]],
    where: str,
    problems: Problems,
) -> Frame:
    """Find out in which frame an image was annotated; what contradicts itself is refused.

    Boxes are xmin, ymin, xmax, ymax in the pixels of the annotated size, else of the image; of an
    image without any nothing has to be found out.
    """
    known = (annotated[0], annotated[1]) if annotated[0] and annotated[1] else None
    if image is None:
        return Frame(known, known)
    stored, turn = (image.height, image.width), image.orientation
    by_quarter = turn >= QUARTER
    shown = stored[::-1] if by_quarter else stored
    follows = _agrees(annotated, stored), _agrees(annotated, stored[::-1])
    is_upright = True
    if stored[0] != stored[1] and follows == (False, True) and not by_quarter and len(boxes):
        problems.add(_EXCHANGED, f"{where}: {by(stored[::-1])}, the file {by(stored)}")
    elif by_quarter and follows == (True, False):
        is_upright = False
        if len(boxes) and _fit(boxes, shown) and not _fit(boxes, stored):
            problems.add(_CONTRADICTORY, where)
    elif turn != UPRIGHT and not (by_quarter and follows == (False, True)) and len(boxes):
        problems.add(TAKEN_UPRIGHT, f"{where}: orientation {turn}, {by(stored)}")
    own = shown if is_upright else stored
    size = (annotated[0] or own[0], annotated[1] or own[1]) if len(boxes) else own
    return Frame(size, own, turn, is_upright)


def _agrees(annotated: AnnotatedSize, size: Size) -> bool:
    pairs = zip(annotated, size, strict=True)
    return any(annotated) and all(one in (None, own) for one, own in pairs)


def _fit(boxes: Sequence[Sequence[float]], size: Size) -> bool:
    right, bottom = np.array(boxes, np.float64).reshape(-1, 4)[:, 2:].max(axis=0)
    return bool(right <= size[1] * (1 + _SLOPPY) and bottom <= size[0] * (1 + _SLOPPY))


def by(size: Size) -> str:
    """A size as messages have it: width first."""
    return f"{size[1]}x{size[0]}"


def settled(one: Detection, frame: Frame, options: Options, problems: Problems) -> Detection:
    """A Detection in the frame that is written, from that in which it was annotated.

    Raises:
        TfodError: its image cannot be turned.
    """
    turn = frame.orientation
    if turn == UPRIGHT:
        return one
    if frame.is_upright != options.upright:
        one = turned_back(one, turn if frame.is_upright else opposite(turn))
    if options.upright:
        problems.add(TURNED, f"{one.filename}: orientation {turn}")
        return with_upright_pixels(one) if one.encoded else one
    if frame.is_upright and len(one.boxes):
        problems.add(_TURNED_BACK, f"{one.filename}: orientation {turn}")
    return one


class Objects(NamedTuple):
    """The objects of an image as a document has them.

    Attributes:
        names: of their classes.
        boxes: xmin, ymin, xmax, ymax.
        places: where each is written, for messages.
        attributes: more values of each object, by name.
        keypoints: in the unit of the boxes.
        draw: makes the mask of each, when it is known in which frame they were drawn.
        is_normalized: whether boxes and keypoints are not in pixels.
    """

    names: Sequence[str]
    boxes: Sequence[Sequence[float]]
    places: Sequence[str]
    attributes: Mapping[str, Sequence[AttributeValue]] = {}
    keypoints: Keypoints | None = None
    draw: Callable[[Frame], Sequence[PngMask]] | None = None
    is_normalized: bool = False


@dataclass(frozen=True)
class Reading:
    """A dataset while it is read.

    Attributes:
        classes: that its objects have to be of.
        options: what was asked for.
        problems: where what does not fit is counted.
    """

    classes: KnownClasses
    options: Options
    problems: Problems

    def detection(
        self,
        images: ImageFiles,
        names: Sequence[str],
        annotated: AnnotatedSize,
        objects: Objects,
        where: str,
        *,
        unread: str = "",
        source_id: str | None = None,
    ) -> Detection | None:
        """The record of an image, with its objects as far as their boxes can be written.

        None where its image is missing, which is counted.

        Args:
            images: where it is looked for.
            names: that the annotation has for it, the best first.
            annotated: height and width as the annotation has them.
            objects: what is on it.
            where: the annotation, for messages.
            unread: what the record calls it where its file is not read; else the first name.
            source_id: as the format has it.

        Raises:
            TfodError: a class is not known, or the image cannot be read or turned.
        """
        name, image = unread or safe_relative_path(names[0]), None
        is_needed = not self.options.no_images
        if is_needed or not all(annotated):
            found = read_image(images, names, where, self.problems, is_needed)
            if found is not None:
                name, image = found[0].name, found[1]
            elif is_needed:
                return None
        frame = frame_of(image, annotated, objects.boxes, where, self.problems)
        own = frame.own or (None, None)
        file = image.fields(is_needed) if image else {"format": "", "encoded": b""}
        one = Detection(
            filename=name,
            source_id=source_id,
            height=own[0],
            width=own[1],
            **file,
            **self._fields(objects, frame, where),
        )
        return settled(one, frame, self.options, self.problems)

    def _fields(self, objects: Objects, frame: Frame, where: str) -> dict[str, Any]:
        """The fields of a Detection that are about its objects."""
        problems = self.problems
        problems.annotated += len(objects.boxes)
        if frame.size and frame.own and frame.size != frame.own:
            problems.add(OTHER_SIZE, f"{where}: {by(frame.size)}, the image {by(frame.own)}")
        known = NORMALIZED if objects.is_normalized else frame.size
        if known is None and len(objects.boxes):
            problems.add(_NO_SIZE, where)
        size = known or NORMALIZED
        corners, kept = sound_boxes(objects.boxes, size, objects.places, self.options, problems)
        masks = objects.draw(frame) if objects.draw and known else None
        points = objects.keypoints if known else None
        return {
            "boxes": normalized(corners, size),
            "class_text": [objects.names[row] for row in kept],
            "class_label": [
                self.classes.id_of(objects.names[row], objects.places[row]) for row in kept
            ],
            "attributes": {
                name: [values[row] for row in kept] for name, values in objects.attributes.items()
            },
            "masks": masks and [masks[row] for row in kept],
            "keypoints": points
            and replace(
                points,
                xy=(points.xy[kept] / size[::-1]).astype(np.float32),
                visibility=points.visibility[kept],
            ),
        }


def normalized(boxes: np.ndarray, size: Size) -> np.ndarray:
    """Boxes divided by height and width; float32 of shape (n, 4)."""
    height, width = size
    return np.asarray((boxes / (width, height, width, height)).astype(np.float32))


def sound_boxes(
    boxes: Sequence[Sequence[float]],
    size: Size,
    places: Sequence[str],
    options: Options,
    problems: Problems,
) -> tuple[np.ndarray, list[int]]:
    """Find the boxes that can be written, by one policy, whatever format they are from.

    Boxes are xmin, ymin, xmax, ymax in the pixels of ``size``, which is 1, 1 for normalized ones;
    messages say by ``places`` where each is written.

    Returns:
        Those boxes, float64 of shape (n, 4), clipped to the image unless the policy keeps them, in
        the unit in which they came; and which of the boxes that were given these are.
    """
    height, width = size
    odd = options.odd_boxes
    given = np.array(boxes, np.float64).reshape(-1, 4)
    sides = np.array((width, height, width, height), np.float64)
    in_pixels = size != NORMALIZED
    if in_pixels:
        furthest = float(np.abs(given[np.isfinite(given)]).max(initial=0))
        problems.furthest = max(problems.furthest, furthest)
    clipped = np.clip(given, 0, sides)
    rounding = _ROUNDING + (_DECIMALS / sides if in_pixels else 0)
    kept = []
    for row, oddity in enumerate(_oddities(given / sides, clipped / sides, rounding)):
        if not oddity:
            kept.append(row)
            continue
        if odd is OddBoxes.KEEP and oddity in (_FLAT, _OUTSIDE):
            kept.append(row)
            clipped[row] = given[row]
            continue
        spelled = "xmin {:g}, ymin {:g}, xmax {:g}, ymax {:g}".format(*given[row])
        where = f"{places[row]}: {spelled}" + f" in {width}x{height}" * in_pixels
        if odd in (OddBoxes.REFUSE, OddBoxes.KEEP):
            choice = _CHOICE * (odd is OddBoxes.REFUSE)
            problems.add(Refusal(oddity, _ORDER * (oddity == _INVERTED) + _FIX + choice), where)
        elif odd is OddBoxes.CLIP and oddity == _OUTSIDE and _has_area(clipped[row] / sides):
            problems.add(f"{oddity}, clipped to it", where)
            kept.append(row)
        else:
            problems.add(f"{oddity}, left out", where)
    return clipped[kept], kept


def _oddities(given: np.ndarray, clipped: np.ndarray, rounding: np.ndarray | float) -> list[str]:
    """What is odd about each normalized box; '' for nothing."""
    with np.errstate(invalid="ignore"):
        finite = (np.abs(given) <= _LARGEST).all(axis=1)
        inverted = (given[:, 2:] < given[:, :2]).any(axis=1)
        flat = (given[:, 2:] - given[:, :2] <= _LEAST_SIDE).any(axis=1)
        outside = (np.abs(given - clipped) > rounding).any(axis=1)
        outside |= ~_has_area(clipped)
    conditions = [~finite, inverted, flat, outside]
    found: list[str] = np.select(conditions, [_NOT_FINITE, _INVERTED, _FLAT, _OUTSIDE], "").tolist()
    return found


def _has_area(boxes: np.ndarray) -> np.ndarray:
    found: np.ndarray = (boxes[..., 2:] - boxes[..., :2] > _LEAST_SIDE).all(axis=-1)
    return found
