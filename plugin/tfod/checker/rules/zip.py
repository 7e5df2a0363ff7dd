"""ZIP: the zip around the shards: hostile, damaged, or not what a reader will find."""

from __future__ import annotations

from collections.abc import Iterator

from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, Severity, plural
from tfod.checker.rules.registry import dataset_rule
from tfod.detection.problems import READ
from tfod.sources.format_recognition import (
    FORMATS,
    SourceFiles,
    convert_command,
    recognize_annotations,
)
from tfod.sources.other_tools import find_other_tool
from tfod.sources.resolved import Zip
from tfod.tfrecord.shard_sets.search import is_hidden, shards_in_zip
from tfod.tfrecord.storage.archive import ZipFault
from tfod.tfrecord.storage.urls import name_of
from tfod.tfrecord.storage.zip_entry import ZipEntry, ZipEntryError, printable

_APPNOTE = "PKWARE APPNOTE.TXT 6.3.10"
_MAKE_AGAIN = "pack the folder again with an ordinary zip program"
_ARCHIVES = (
    *(".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z"),
    *(".rar", ".gz", ".bz2", ".xz", ".zst"),
)
_READ_STEP = 1 << 18
_CASES = {READ: Severity.ERROR}
"""With that of what an import does not read: other files, and the checksum behind a shard."""


def _zip_rule(heading: str, fault: ZipFault, *, why: str, fix: str, source: str) -> None:
    """Declare the rule that reports a fault of the directory, which says itself what is wrong."""

    @dataset_rule(heading, why=why, fix=fix, source=source, cases=_CASES)
    def of_fault(result: DatasetResult) -> Iterator[Finding]:
        return _faults(result, fault)


def _faults(result: DatasetResult, fault: ZipFault) -> Iterator[Finding]:
    for archive in result.dataset.zips:
        content = archive.content
        problems = [one for one in content.problems if one.fault is fault]
        shards = shards_in_zip(content) if problems and content.refused else ()
        lost = {path: id(content.refused[path]) for path in shards if path in content.refused}
        for one in problems:
            is_name = fault is ZipFault.OUTSIDE and one.entry is not None
            is_shard = one.entry is not None and one.entry.path in lost
            stops = content.damage is not None or is_shard or id(one) in lost.values()
            yield Finding(
                message=one.cause,
                shard=archive.name_of(one.entry),
                value=printable(one.entry.name) if one.entry and is_name else None,
                case="" if stops else READ,
            )


_zip_rule(
    "ZIP001 error: not a zip, or its directory is damaged",
    ZipFault.DIRECTORY,
    why="Programs refuse the archive, or each of them reads something else from it.",
    fix=f"Export or download it again; otherwise {_MAKE_AGAIN}.",
    source=f"{_APPNOTE}, 4.3; CPython, Lib/zipfile",
)
_zip_rule(
    "ZIP002 error: path outside the folder",
    ZipFault.OUTSIDE,
    why="Unpacking writes over files elsewhere, or leaves the file where it is not expected.",
    fix=f"Do not unpack it if you do not trust its source; {_MAKE_AGAIN}, with relative names.",
    source="CWE-22; CWE-36; Snyk, Zip Slip (2018)",
)
_zip_rule(
    "ZIP004 error: symbolic link or other special file",
    ZipFault.SPECIAL,
    why="A link makes the program that unpacks the archive read or write files elsewhere.",
    fix="Pack the files that are meant, not links to them: zip without --symlinks.",
    source="CWE-61",
)
_zip_rule(
    "ZIP005 error: two entries for one file",
    ZipFault.DUPLICATE,
    why="Which of them is read depends on the program and on the system.",
    fix="Remove or rename one of them.",
    source=f"CWE-694; {_APPNOTE}, 4.4.17",
)
_zip_rule(
    "ZIP007 error: too large, or unpacks to suspiciously much",
    ZipFault.TOO_LARGE,
    why="A bomb fills the memory or the disk when it is unpacked.",
    fix="Split it, or check the shard by itself if it is really so large; TFOD_MAX_ARCHIVE_BYTES "
    "and TFOD_MAX_ARCHIVE_ENTRIES raise the limits of an archive.",
    source="CWE-409; D. Fifield, A better zip bomb (WOOT 2019); CVE-2019-9674; CVE-2024-0450",
)
_zip_rule(
    "ZIP010 error: encrypted, or compressed in an unusual way",
    ZipFault.UNSUPPORTED,
    why="Neither CVAT nor a training job knows the password, and many programs know no other "
    "compression than Deflate.",
    fix="Pack the folder again without a password, with ordinary compression (Deflate) or none.",
    source=f"ISO/IEC 21320-1:2015; {_APPNOTE}, 4.4.4 and 4.4.5",
)


@dataset_rule(
    "ZIP012 error: damaged entry",
    why="Unpacking fails at this entry, or leaves a file with wrong bytes.",
    fix=f"Export or download the archive again; otherwise {_MAKE_AGAIN}.",
    source=f"{_APPNOTE}, 4.4.7 to 4.4.9",
    cases=_CASES,
)
def damaged_entry(result: DatasetResult) -> Iterator[Finding]:
    """What unpacks has the size and the CRC-32 that the directory says, be it a shard or not."""
    yield from _faults(result, ZipFault.DAMAGED)
    for shard in result.shards:
        if shard.damage:
            case = READ if shard.is_whole else ""
            yield Finding(message=shard.damage, shard=shard.name, case=case)
    for archive in result.dataset.zips:
        for entry in archive.others:
            try:
                with entry.open() as stream:
                    while stream.read(_READ_STEP):
                        pass
            except ZipEntryError as error:
                name = archive.name_of(entry)
                yield Finding(message=error.reason, shard=name, case=READ)
            except OSError as error:
                message = f"cannot be read: {error.strerror or error}"
                yield Finding(message=message, shard=archive.name_of(entry))


@dataset_rule(
    "ZIP013 error: no shard in the archive",
    why="There is nothing to import.",
    fix="Put the shards into it, named *.tfrecord, *.record or *-00000-of-00010.",
    source="cvat/apps/dataset_manager/formats/tfrecord.py (until v2.11): **/*.tfrecord",
)
def no_shard(result: DatasetResult) -> Iterator[Finding]:
    """No entry is a shard, not even one that cannot be read."""
    for archive in result.dataset.zips:
        if archive.has_shards or archive.unreadable:
            continue
        fix, recognized = "", recognize_annotations(archive.path)
        other = recognized.titles if recognized.names else None
        files = plural(len(archive.content.entries), "file")
        message = f"none of its {files} is a TFRecord shard"
        menus = [FORMATS[one].cvat_title for one in recognized.names]
        is_here = archive.name == archive.path
        name = archive.name if is_here else name_of(archive.name)  # an upload, or a URL
        if other:
            message = f"this zip holds {other} annotations, not TFRecord"
            fix = "For shards, export TFRecord 1.0 instead, or convert the zip with tfod convert."
            if is_here:
                command = convert_command(name, recognized)
                fix = f"For shards, export TFRecord 1.0 instead, or type: {command}"
        elif tool := find_other_tool(listed := SourceFiles.at(archive.path))[0]:
            other, menus = tool.title, [tool.cvat_title]
            message = f"this zip holds {other}, not TFRecord"
            fix = f"For shards: {tool.next_step(name, listed)}"
        elif nested := _nested(archive):
            message = f"it holds no shard but {nested[0].shown}, which is an archive itself"
            fix = f"Unpack {nested[0].shown} and upload the zip of its files."
        elif not archive.content.entries:
            message = "it has no files in it"
        if menu := " or ".join(filter(None, menus)):
            fix = f"To import these into CVAT, choose {menu} in its menu. {fix}"
        yield Finding(message=message, shard=archive.name, value=other, fix=fix)


@dataset_rule(
    "ZIP016 warning: archive in the archive",
    why="Nothing looks into it: shards in there are neither checked nor imported.",
    fix="Unpack it and pack the files themselves.",
    source="CWE-409; OWASP File Upload Cheat Sheet",
)
def nested_archive(result: DatasetResult) -> Iterator[Finding]:
    """An entry has the name of an archive."""
    for archive in result.dataset.zips:
        for entry in _nested(archive):
            message = "it is an archive itself and was not looked into"
            yield Finding(message=message, shard=archive.name_of(entry))


def _nested(archive: Zip) -> list[ZipEntry]:
    return [
        one
        for one in archive.others
        if one.inside.lower().endswith(_ARCHIVES) and not is_hidden(one.inside)
    ]
