"""ZIP rules: archives that are malicious or damaged, or that readers do not support."""

from __future__ import annotations

from collections.abc import Iterator

from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, Severity, plural
from tfod.checker.rules.registry import dataset_rule
from tfod.detection.problems import READ
from tfod.sources.format_recognition import (
    FORMATS,
    SourceFiles,
    format_convert_command,
    recognize_annotations,
)
from tfod.sources.other_tools import find_other_tool
from tfod.sources.resolved import Zip
from tfod.tfrecord.shard_sets.search import find_zip_shards, is_hidden
from tfod.tfrecord.storage.archive import ZipFault
from tfod.tfrecord.storage.urls import get_name
from tfod.tfrecord.storage.zip_entry import ZipEntry, ZipEntryError, to_printable

_APPNOTE = "PKWARE APPNOTE.TXT 6.3.10"
_REPACK = "pack the folder again with an ordinary zip program"
_ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar", ".gz", ".bz2", ".xz", ".zst")
_CHUNK_BYTES = 1 << 18
# The case of faults in data that an import ignores: other files, and checksums after shards.
_CASES = {READ: Severity.ERROR}


def _zip_rule(heading: str, fault: ZipFault, **options: str) -> None:
    """Declare a rule for a fault of the directory; the fault itself has the message."""

    @dataset_rule(heading, cases=_CASES, **options)
    def check_fault(result: DatasetResult) -> Iterator[Finding]:
        return _report_faults(result, fault)


def _report_faults(result: DatasetResult, fault: ZipFault) -> Iterator[Finding]:
    for archive in result.dataset.zips:
        content = archive.content
        problems = [problem for problem in content.problems if problem.fault is fault]
        shards = find_zip_shards(content) if problems and content.rejected else ()
        lost = {path: id(content.rejected[path]) for path in shards if path in content.rejected}
        for problem in problems:
            entry = problem.entry
            is_name = fault is ZipFault.OUTSIDE and entry is not None
            is_shard = entry is not None and entry.path in lost
            stops = content.damage is not None or is_shard or id(problem) in lost.values()
            yield Finding(
                message=problem.cause,
                shard=archive.display_name(entry),
                value=to_printable(entry.name) if entry and is_name else None,
                case="" if stops else READ,
            )


_zip_rule(
    "ZIP001 error: not a zip, or its directory is damaged",
    ZipFault.DIRECTORY,
    why="Programs cannot open the archive, or different programs extract different files from it.",
    fix=f"Export or download it again; otherwise {_REPACK}.",
    source=f"{_APPNOTE}, 4.3; CPython, Lib/zipfile",
)
_zip_rule(
    "ZIP002 error: path outside the folder",
    ZipFault.OUTSIDE,
    why="Unpacking overwrites files elsewhere, or puts the file in an unexpected folder.",
    fix=f"Do not unpack it if you do not trust its source; {_REPACK}, with relative names.",
    source="CWE-22; CWE-36; Snyk, Zip Slip (2018)",
)
_zip_rule(
    "ZIP004 error: symbolic link or other special file",
    ZipFault.SPECIAL,
    why="A link makes the program that unpacks the archive read or write files elsewhere.",
    fix="Pack the files themselves, not links to them: zip without --symlinks.",
    source="CWE-61",
)
_zip_rule(
    "ZIP005 error: two entries for one file",
    ZipFault.DUPLICATE,
    why="The program and the operating system decide which of them is read.",
    fix="Remove or rename one of them.",
    source=f"CWE-694; {_APPNOTE}, 4.4.17",
)
_zip_rule(
    "ZIP007 error: too large, or unpacks to a suspicious size",
    ZipFault.TOO_LARGE,
    why="A decompression bomb fills the memory or the disk when it is unpacked.",
    fix="Split it, or check the shard by itself if it is really this large; TFOD_MAX_ARCHIVE_BYTES "
    "and TFOD_MAX_ARCHIVE_ENTRIES raise the limits of an archive.",
    on_page="Split it into several archives, or check a very large shard without the zip.",
    source="CWE-409; D. Fifield, A better zip bomb (WOOT 2019); CVE-2019-9674; CVE-2024-0450",
)
_zip_rule(
    "ZIP010 error: encrypted, or compressed in an unusual way",
    ZipFault.UNSUPPORTED,
    why="Neither CVAT nor a training job knows the password, and many programs support only "
    "Deflate compression.",
    fix="Pack the folder again without a password, with ordinary compression (Deflate) or none.",
    source=f"ISO/IEC 21320-1:2015; {_APPNOTE}, 4.4.4 and 4.4.5",
)


@dataset_rule(
    "ZIP012 error: damaged entry",
    why="Unpacking fails at this entry, or writes a file with wrong bytes.",
    fix=f"Export or download the archive again; otherwise {_REPACK}.",
    source=f"{_APPNOTE}, 4.4.7 to 4.4.9",
    cases=_CASES,
)
def _check_entries(result: DatasetResult) -> Iterator[Finding]:
    """Report entries that do not unpack to the size and the CRC-32 in the directory."""
    yield from _report_faults(result, ZipFault.DAMAGED)
    for shard in result.shards:
        if shard.damage:
            case = READ if shard.is_whole else ""
            yield Finding(message=shard.damage, shard=shard.name, case=case)
    for archive in result.dataset.zips:
        for entry in archive.other_entries:
            try:
                with entry.open() as stream:
                    while stream.read(_CHUNK_BYTES):
                        pass
            except ZipEntryError as error:
                name = archive.display_name(entry)
                yield Finding(message=error.reason, shard=name, case=READ)
            except OSError as error:
                message = f"cannot be read: {error.strerror or error}"
                yield Finding(message=message, shard=archive.display_name(entry))


@dataset_rule(
    "ZIP013 error: no shard in the archive",
    why="There is nothing to import.",
    fix="Add the shards, named *.tfrecord, *.record or *-00000-of-00010.",
    source="cvat/apps/dataset_manager/formats/tfrecord.py (until v2.11): **/*.tfrecord",
    explains="LAB002 LAB003 LAB004 LAB005 LAB015 ZIP016",
)
def _check_shards(result: DatasetResult) -> Iterator[Finding]:
    """Report archives in which no entry is a shard, not even an unreadable one."""
    for archive in result.dataset.zips:
        if archive.has_shards or archive.unreadable:
            continue
        fix, recognized = "", recognize_annotations(archive.path)
        title = recognized.titles if recognized.names else None
        files = plural(len(archive.content.entries), "file")
        message = f"there is no TFRecord shard among its {files}"
        menus = [FORMATS[name].cvat_title for name in recognized.names]
        is_local = archive.name == archive.path  # otherwise it is an upload or a URL
        name = archive.name if is_local else get_name(archive.name)
        if title:
            message = f"the zip contains {title} annotations, not TFRecord"
            fix = "For shards, export TFRecord 1.0 instead, or convert the zip with tfod convert."
            if is_local:
                command = format_convert_command(name, recognized)
                fix = f"For shards, export TFRecord 1.0 instead, or convert the zip: {command}"
        elif tool := find_other_tool(listed := SourceFiles.at(archive.path))[0]:
            title, menus = tool.title, [tool.cvat_title]
            message = f"the zip contains {title}, not TFRecord"
            step = tool.suggest_next_step(name, listed)
            fix = f"For shards, export TFRecord 1.0 instead, or {step}"
        elif nested := _find_nested(archive):
            message = f"the zip contains no shard, only the archive {nested[0].shown}"
            fix = f"Unpack {nested[0].shown} and upload the zip of its files."
        elif not archive.content.entries:
            message = "the zip contains no files"
        if menu := " or ".join(filter(None, menus)):
            fix = f"To import these into CVAT, choose {menu} in its menu. {fix}"
        yield Finding(message=message, shard=archive.name, value=title, fix=fix)


@dataset_rule(
    "ZIP016 warning: archive in the archive",
    why="Archives in the archive are not opened: their shards are neither checked nor imported.",
    fix="Unpack it and pack the files themselves.",
    source="CWE-409; OWASP File Upload Cheat Sheet",
)
def _check_nested_archives(result: DatasetResult) -> Iterator[Finding]:
    for archive in result.dataset.zips:
        for entry in _find_nested(archive):
            message = "this file is an archive, which was not opened"
            yield Finding(message=message, shard=archive.display_name(entry))


def _find_nested(archive: Zip) -> list[ZipEntry]:
    return [
        entry
        for entry in archive.other_entries
        if entry.inside.lower().endswith(_ARCHIVES) and not is_hidden(entry.inside)
    ]
