"""Files inside a zip, read where they lie: Roboflow's exports come as one.

An entry has the path ``export.zip/train/Objects.tfrecord``, as if the archive were a folder, and
nothing is ever unpacked under a name that the archive chose.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tfod.errors import ShardError
from tfod.tfrecord.framing import HEADER_BYTES, is_record_header
from tfod.tfrecord.storage.zip_directory import ZipContent, has_end, read_zip
from tfod.tfrecord.storage.zip_entry import SEE, ZipEntry

MAGIC = (b"PK\3\4", b"PK\5\6", b"PK\7\x08")
"""What a zip begins with."""
_SEPARATORS = frozenset((os.sep, os.altsep or os.sep))


def is_zip(path: str) -> bool:
    """Whether a file is a zip by its first bytes, or by its name when it is damaged."""
    if path.lower().endswith(".zip"):
        return True
    try:
        with open(path, "rb") as file:
            return is_zip_head(file.read(HEADER_BYTES))
    except OSError:
        return False


def is_zip_head(head: bytes) -> bool:
    """Whether a file that begins so is a zip, whatever its name; a record may have this length."""
    return head.startswith(MAGIC) and not is_record_header(head)


def zip_above(path: str) -> str | None:
    """The zip that a path leads into.

    From the top down: a path in a zip may have thousands of folders, above it there are few.
    """
    for place, letter in enumerate(path):
        if place and letter in _SEPARATORS and not os.path.isdir(path[:place]):
            archive = path[:place]
            # By its end, too: one that unpacks itself has a program in front.
            is_one = os.path.isfile(archive) and (is_zip(archive) or has_end(archive))
            return archive if is_one else None
    return None


def sound_content(archive: str) -> ZipContent:
    """What is in a zip.

    Raises:
        ShardError: it cannot be read, or entries overlap.
        OSError: it cannot be opened.
    """
    content = read_zip(archive)
    if content.damage is not None:
        cause, fix = content.damage.cause, "download or export it again"
        raise ShardError(f"is not a readable zip: {cause}", shard=archive, fix=fix)
    return content


def find_entry(path: str) -> ZipEntry | None:
    """The entry that a path such as ``export.zip/train/Objects.tfrecord`` means; None for others.

    Raises:
        ShardError: the archive is damaged, or the entry is one that should not be read.
    """
    archive = zip_above(path)
    if archive is None:
        return None
    inside = path[len(archive) + 1 :].replace(os.sep, "/")
    content = sound_content(archive)
    entry = content.entries.get(os.path.join(archive, *inside.split("/")))
    if entry is not None:
        require_readable(entry, content)
    return entry


def require_readable(entry: ZipEntry, content: ZipContent) -> None:
    """Refuse an entry that is damaged, hostile or packed in a way that is not read.

    Raises:
        ShardError: it is; the message says why.
    """
    refused = content.refused.get(entry.path)
    if refused is not None:
        cause = f"entry {entry.shown} is not read: {refused.cause}"
        raise ShardError(cause, shard=entry.archive, fix=SEE)


def files_in(folder: str) -> Sequence[str]:
    """Paths of the files right in a folder of a zip; nothing where the folder is in none.

    Raises:
        ShardError: the archive is damaged.
    """
    archive = zip_above(os.path.join(folder, ""))
    return sound_content(archive).folders.get(folder, ()) if archive is not None else ()
