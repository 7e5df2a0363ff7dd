"""Rules for the zip around the shards: hostile, damaged, or not what a reader will find."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence

from tfod.check.findings.finding import Problem, first_of, plural
from tfod.check.rules.registry import rule
from tfod.tfrecord.storage.zip_directory import Entry, Overlap, printable
from tfod.tfrecord.storage.zip_files import DEFLATED, STORED

_METHODS = {
    1: "Shrink",
    6: "Implode",
    9: "Deflate64",
    12: "BZIP2",
    14: "LZMA",
    20: "Zstandard",
    93: "Zstandard",
    95: "XZ",
    96: "JPEG",
    97: "WavPack",
    98: "PPMd",
    99: "AES encryption",
}
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}
_DRIVE = re.compile(r"[A-Za-z]:")
# But for the one in the name of a folder's icon on macOS.
_CONTROL = re.compile(r"[\0-\x0c\x0e-\x1f\x7f-\x9f]|(?<!Icon)\r")
_APPNOTE = "PKWARE APPNOTE.TXT 6.3.10"
_MAKE_AGAIN = "pack the folder again with an ordinary zip program"
_SHOWN_NAMES = 4


@rule(
    "ZIP001 error: not a zip, or its directory is damaged",
    why="Programs refuse the archive, or each of them reads something else from it.",
    fix=f"Export or download it again; otherwise {_MAKE_AGAIN}.",
    source=f"{_APPNOTE}, 4.3; CVE-2025-8291",
)
def damaged_directory(cause: str) -> Iterator[Problem]:
    """The end record, the directory and the entries' own headers agree."""
    yield Problem(cause)


@rule(
    "ZIP002 error: path outside the folder",
    why="Unpacking writes over files elsewhere, or leaves the file where it is not expected.",
    fix=f"Do not unpack it if you do not trust its source; {_MAKE_AGAIN}.",
    source="CWE-22; Snyk, Zip Slip (2018)",
)
def path_outside(entry: Entry) -> Iterator[Problem]:
    """A path stays in the folder, with the separators of any system, and is one at all."""
    parts = entry.name.replace("\\", "/").split("/")
    if not entry.path:
        if not entry.is_folder:
            yield Problem(f"an entry has no file name: '{entry.shown}'")
    # Windows trims dots and blanks from the end of a part: '.. ' is as bad as '..'.
    elif any(".." in part and not part.strip(" .") for part in parts):
        yield Problem(f"the path {entry.shown} has '..' in it", value=entry.shown)
    elif _DRIVE.match(entry.name):
        yield Problem(f"the path {entry.shown} names a drive", value=entry.shown)
    elif _CONTROL.search(entry.name):
        yield Problem(f"the path {entry.shown} has control characters", value=entry.shown)


@rule(
    "ZIP003 error: absolute name",
    why="Unpacking writes it to that place of the disk, or silently to another one.",
    fix="Pack the folder again with relative names.",
    source="CWE-36; Python's zipfile: Lib/zipfile, _extract_member",
)
def absolute_name(entry: Entry) -> Iterator[Problem]:
    """A name does not begin at the root of the disk or with a server."""
    if entry.name.startswith(("/", "\\")):
        yield Problem(f"the name {entry.shown} is absolute", value=entry.shown)


@rule(
    "ZIP004 error: symbolic link or other special file",
    why="A link makes the program that unpacks the archive read or write files elsewhere.",
    fix="Pack the files that are meant, not links to them: zip without --symlinks.",
    source="CWE-61",
)
def special_file(entry: Entry) -> Iterator[Problem]:
    """An entry is a file or a folder."""
    kind = _KINDS.get(stat.S_IFMT(entry.mode))
    if kind:
        yield Problem(f"it is {kind}")


@rule(
    "ZIP005 error: two entries for one file",
    why="Which of them is read depends on the program and on the system.",
    fix="Remove or rename one of them.",
    source=f"CWE-694; {_APPNOTE}, 4.4.17",
)
def duplicate_entry(entry: Entry, earlier: Entry) -> Iterator[Problem]:
    """Names differ by more than case and the way accents are encoded."""
    if entry.path == earlier.path:
        message = f"entries {earlier.number} and {entry.number} have this name; unpacking leaves "
        message += "the last one, and that one was checked"
    else:
        message = f"its name differs from {earlier.shown} only by case or by how accents are "
        message += "encoded; on Windows and macOS they are one file"
    yield Problem(message)


@rule(
    "ZIP006 error: overlapping entries",
    why="The same bytes unpack again and again: kilobytes become terabytes.",
    fix=f"Do not unpack it if you do not trust its source; {_MAKE_AGAIN}.",
    source="D. Fifield, A better zip bomb (WOOT 2019); CVE-2024-0450",
)
def overlapping_entry(overlap: Overlap) -> Iterator[Problem]:
    """An entry's data end before the next entry and before the directory."""
    into = f"the entry {overlap.into.shown}" if overlap.into else "the archive's directory"
    yield Problem(f"its data overlap {into} by {overlap.by} bytes")


@rule(
    "ZIP007 error: unpacks to suspiciously much",
    why="A bomb fills the memory or the disk when it is unpacked.",
    fix="Check the shard by itself if it is really so repetitive.",
    source="CWE-409; CVE-2019-9674",
)
def bomb(unpacked: int, packed: int, most: float) -> Iterator[Problem]:
    """What has been unpacked so far is not too many times what it was unpacked from."""
    message = f"{packed} bytes of it unpack to more than {unpacked}, "
    message += f"{unpacked / max(1, packed):.0f} times as many; {most:g} times are allowed"
    yield Problem(message)


@rule(
    "ZIP008 error: too much to unpack",
    why="It fills the disk when it is unpacked.",
    fix="Split it into several archives, or raise TFOD_MAX_ARCHIVE_BYTES.",
    source="CWE-409",
)
def too_much_in_all(most: int) -> Iterator[Problem]:
    """What has been unpacked in all stays within the limit."""
    yield Problem(f"its entries unpack to more than {most} bytes; the rest was not read")


@rule(
    "ZIP009 error: too many entries",
    why="Files without number exhaust the disk's inodes and everybody's time.",
    fix="Pack fewer files: shards hold many images each, or raise TFOD_MAX_ARCHIVE_ENTRIES.",
    source="CWE-770",
)
def too_many_entries(promised: int, looked_at: int) -> Iterator[Problem]:
    """There are no more entries than are looked at."""
    more = f", {promised} by its end record" if promised > looked_at else ""
    yield Problem(f"it has more than {looked_at} entries{more}; the rest was not read")


@rule(
    "ZIP010 error: encrypted",
    why="Neither CVAT nor a training job knows the password.",
    fix="Pack the folder again without a password.",
    source=f"{_APPNOTE}, 4.4.4 bit 0",
)
def encrypted(entry: Entry) -> Iterator[Problem]:
    """An entry needs no password."""
    if entry.is_encrypted:
        yield Problem("it is encrypted")


@rule(
    "ZIP011 error: unsupported compression",
    why="Many programs cannot unpack it.",
    fix="Pack the folder again with ordinary compression (Deflate) or with none (zip -0).",
    source=f"ISO/IEC 21320-1:2015; {_APPNOTE}, 4.4.5",
)
def unsupported_compression(entry: Entry) -> Iterator[Problem]:
    """An entry is stored or deflated."""
    if entry.is_patch:
        yield Problem("it holds patches of a file and not the file")
    elif entry.method not in (STORED, DEFLATED) and not entry.is_encrypted:
        name = _METHODS.get(entry.method, "unknown")
        yield Problem(f"it is compressed by method {entry.method} ({name})", value=entry.method)


@rule(
    "ZIP012 error: damaged entry",
    why="Unpacking fails at this entry, or leaves a file with wrong bytes.",
    fix=f"Export or download the archive again; otherwise {_MAKE_AGAIN}.",
    source=f"{_APPNOTE}, 4.4.7 to 4.4.9",
)
def damaged_entry(cause: str) -> Iterator[Problem]:
    """What unpacks has the size and the CRC-32 that the directory says."""
    yield Problem(cause)


@rule(
    "ZIP013 error: no shard in the archive",
    why="There is nothing to import.",
    fix="Put the shards into it, named *.tfrecord, *.record or *-00000-of-00010.",
    source="cvat/apps/dataset_manager/formats/tfrecord.py (until v2.11): **/*.tfrecord",
)
def no_shard(files: int, other: str | None) -> Iterator[Problem]:
    """At least one entry is a shard, also one that cannot be read.

    Args:
        files: how many there are.
        other: format of annotations that they are of.
    """
    if other:
        fix = "Export the annotations as TFRecord 1.0 instead."
        yield Problem(f"this zip holds {other} annotations, not TFRecord", value=other, fix=fix)
    elif files:
        yield Problem(f"none of its {plural(files, 'file')} is a TFRecord shard")
    else:
        yield Problem("it has no files in it")


@rule(
    "ZIP014 warning: no label map in the archive",
    why="Class numbers have no names; importers that need a label map find no labels.",
    fix="Add label_map.pbtxt beside the shards, or name one with --label-map.",
    source="datumaro, plugins/tf_detection_api_format; cvat#6304",
)
def no_label_map(stray: Sequence[str]) -> Iterator[Problem]:
    """A label map lies beside a shard or one folder up; those elsewhere are stray."""
    if stray:
        where = "no label map lies beside a shard or one folder up"
        yield Problem(f"{where}; {_listed(stray)} is not looked for")
    else:
        yield Problem("no label map is in it")


@rule(
    "ZIP015 warning: several label maps for one shard",
    why="Each program takes another one, and class numbers change their names.",
    fix="Keep one; or name it <shard>_label_map.pbtxt, or label_map.pbtxt.",
    source="tfod.tfrecord.label_files.find_label_map",
)
def equal_label_maps(names: Sequence[str], shards: int) -> Iterator[Problem]:
    """One label map fits a shard better than the others."""
    also = f", and {plural(shards - 1, 'more shard')}" if shards > 1 else ""
    yield Problem(f"{_listed(names)} fit it equally well{also}; none was used")


@rule(
    "ZIP016 warning: archive in the archive",
    why="Nothing looks into it: shards in there are neither checked nor imported.",
    fix="Unpack it and pack the files themselves.",
    source="CWE-409; OWASP File Upload Cheat Sheet",
)
def nested_archive(kind: str) -> Iterator[Problem]:
    """An entry is no archive itself."""
    yield Problem(f"it is {kind}, which was not looked into")


@rule(
    "ZIP017 info: stray files",
    why="They do no harm, and are not needed.",
    fix="Leave them out: zip -r data.zip data -x '*/.DS_Store' '*__MACOSX*'.",
    source="macOS Archive Utility; Windows Explorer",
)
def stray_files(origin: str, names: Sequence[str]) -> Iterator[Problem]:
    """There is nothing in it that an operating system left behind."""
    yield Problem(f"left behind by {origin}: {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    return first_of([*map(printable, names[:_SHOWN_NAMES])], _SHOWN_NAMES, len(names))
