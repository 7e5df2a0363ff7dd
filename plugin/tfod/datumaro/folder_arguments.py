"""``-p FOLDER`` where Datumaro wants a project, or knows no ``-p`` any more.

The recipes of CVAT and of Datumaro chain commands, ``datum transform -p proj -o ptm``, ``datum
export -p ptm``. But the 0.3 line writes a dataset there, not a project, and 1.x has no projects.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

_PROJECT_OPTIONS = ("-p", "--project")
_MARK_OF_PROJECT = ".datumaro"  # datumaro.components.project.ProjectLayout.aux_dir


def without_project(arguments: Sequence[str], *, has_export: bool) -> list[str]:
    """The command line with the folder where Datumaro takes one.

    Args:
        arguments: behind ``datum``.
        has_export: ``datum export`` takes a folder with ``-p``, as ours on 1.x does.
    """
    found = list(arguments)
    if not found or found[0] not in ("transform", "export"):
        return found
    end = found.index("--") if "--" in found else len(found)
    place = next((at for at in range(1, end - 1) if found[at] in _PROJECT_OPTIONS), None)
    if place is None or os.path.isdir(os.path.join(found[place + 1], _MARK_OF_PROJECT)):
        return found
    if found[0] == "transform":
        folder = found[place + 1]
        # Behind the options: an argument in front of them would take them for the transform's.
        return [*found[:place], *found[place + 2 : end], folder, *found[end:]]
    if not has_export:
        return ["convert", *found[1:place], "-i", *found[place + 1 :]]
    return found
