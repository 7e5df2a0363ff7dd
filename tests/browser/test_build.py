"""``make browser`` builds a folder that needs nothing else, from pinned files."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tfod_validator.templating import BROWSER_POLICY

from tests.browser.conftest import build_page, static_host
from tests.commands import free_port
from validator.browser.distribution import (
    BrowserBuildError,
    copy_pyodide,
    download_wheels,
    read_pins,
    write_pins,
)

PINS = read_pins()
PACKAGES = PINS["lock"]["packages"]
LARGE = "pyodide.asm.wasm"


@pytest.fixture(scope="module")
def url(pyodide: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with ``folder/``, which is Pyodide, and ``release.tar.bz2`` of it."""
    root = tmp_path_factory.mktemp("www")
    (root / "folder").symlink_to(pyodide)
    with tarfile.open(root / "release.tar.bz2", "w:bz2", compresslevel=1) as archive:
        for name in (*PINS["core"], *(PACKAGES[name]["file_name"] for name in ("numpy", "pillow"))):
            archive.add(pyodide / name, f"pyodide/{name}")
        link = tarfile.TarInfo("pyodide/pyodide.js")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)  # ignored
    with static_host(root) as address:
        yield address


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_folder_has_all_files(browser_folder: Path) -> None:
    files = files_of(browser_folder)
    listed = json.loads(files["packages.json"])
    assert listed["pyodide"] == PINS["version"] == "0.27.7"
    lock = json.loads(files["pyodide/pyodide-lock.json"])
    assert lock["info"] == PINS["lock"]["info"]
    assert [*lock["packages"]] == listed["packages"] and "numpy" in listed["packages"]
    hashes = {each["file_name"]: each["sha256"] for each in lock["packages"].values()}
    for name, expected in {**PINS["core"], **hashes}.items():
        assert hashlib.sha256(files[f"pyodide/{name}"]).hexdigest() == expected
    names = {Path(wheel).name.partition("-")[0] for wheel in listed["wheels"]}
    assert names | {*listed["packages"], "lxml"} == {*PACKAGES, "tfod"}  # PyPI has no pure lxml
    assert {*listed["wheels"]} == {name for name in files if name.startswith("wheels/")}
    assert all(wheel.endswith("-py3-none-any.whl") for wheel in listed["wheels"])
    (wheel,) = (name for name in listed["wheels"] if "/tfod-" in name)
    contents = {
        name: zipfile.ZipFile(browser_folder / name).namelist() for name in listed["wheels"]
    }
    assert {"tfod/kernel/tfod_kernel.wasm", "tfod_validator/templating.py"} <= {*contents[wheel]}
    for name in (name for names in contents.values() for name in names):
        assert not name.endswith((".so", ".dll", ".rs"))


def test_the_page_loads_nothing_from_elsewhere(browser_folder: Path) -> None:
    page = (browser_folder / "index.html").read_text()
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    assert policy is not None and policy[1].replace("&#39;", "'") == BROWSER_POLICY
    for rule in ("default-src 'none'", "connect-src 'self'", "form-action 'none'"):
        assert rule in BROWSER_POLICY.split("; ")
    first = re.search(r"<(?:link|script|img|style)\b", page)
    assert first is not None and policy.start() < first.start()
    # The addresses are relative, so that the folder may have any address.
    absolute = re.compile(r"""(?:href|src|action)=["']?(?:/|\w+:)|["'(](?:\w+:)?//""")
    own = [path for path in browser_folder.iterdir() if path.suffix in (".html", ".css", ".js")]
    assert len(own) >= 5
    for path in own:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not absolute.search(text), path


def test_a_build_from_a_url_gives_the_same_files(
    url: str, browser_folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "browser"
    output.mkdir()
    for name in ("old.js", "packages.json"):
        (output / name).touch()
    build_page(output, f"{url}folder/").succeeded()
    assert files_of(output) == files_of(browser_folder)
    assert [*tmp_path.iterdir()] == [output]


def test_an_archive_of_a_release(url: str, pyodide: Path, tmp_path: Path) -> None:
    copy_pyodide(f"{url}release.tar.bz2", tmp_path / "new", PINS, tmp_path)
    assert (tmp_path / "new" / LARGE).read_bytes() == (pyodide / LARGE).read_bytes()


def test_files_of_an_earlier_build_are_used_again(pyodide: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    shutil.copytree(pyodide, earlier, ignore=lambda _, names: {*names} - {LARGE, "pyodide.js"})
    (earlier / "pyodide.js").write_text("damaged")
    source = tmp_path / "source"
    shutil.copytree(pyodide, source, ignore=lambda *_: {LARGE})
    copy_pyodide(str(source), tmp_path / "new", PINS, earlier)
    for name in (LARGE, "pyodide.js"):
        assert (tmp_path / "new" / name).read_bytes() == (pyodide / name).read_bytes()


def test_another_hash_stops_the_build(pyodide: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(pyodide, source, copy_function=lambda path, link: Path(link).symlink_to(path))
    (source / LARGE).unlink()
    (source / LARGE).write_bytes(b"another one")
    output = tmp_path / "browser"
    output.mkdir()
    (output / "packages.json").write_text("of an earlier build")
    done = build_page(output, source)
    assert done.code == 1 and done.err.count("\n") == 1
    found = hashlib.sha256(b"another one").hexdigest()
    for fact in (LARGE, found, PINS["core"][LARGE], "0.27.7", "make browser-pin"):
        assert fact in done.err
    assert files_of(output) == {"packages.json": b"of an earlier build"}
    assert {path.name for path in tmp_path.iterdir()} == {"source", "browser"}


@pytest.mark.parametrize(
    ("source", "fact"),
    [
        ("{folder}", "pyodide.asm.js of Pyodide 0.27.7"),
        ("{folder}/absent.tar.bz2", "No such file"),
        ("{url}absent", "pyodide.asm.js of Pyodide 0.27.7"),
        ("http://127.0.0.1:{port}/", "refused"),
    ],
)
def test_a_source_without_pyodide(source: str, fact: str, url: str, tmp_path: Path) -> None:
    address = source.format(folder=tmp_path, url=url, port=free_port())
    with pytest.raises(BrowserBuildError, match="PYODIDE=") as caught:
        copy_pyodide(address, tmp_path / "new", PINS, tmp_path)
    assert fact in str(caught.value) and address in str(caught.value)


def test_the_packages_of_a_distribution_are_preferred_to_those_of_pypi(
    pyodide: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(pyodide, source, copy_function=lambda path, link: Path(link).symlink_to(path))
    packages = {name: dict(package) for name, package in PACKAGES.items()}
    for name in packages.keys() - {"numpy", "pillow"}:
        (source / packages[name]["file_name"]).write_text(name)
        packages[name]["sha256"] = hashlib.sha256(name.encode()).hexdigest()
    pins = {**PINS, "lock": {**PINS["lock"], "packages": packages}}
    names = copy_pyodide(str(source), tmp_path / "new", pins, tmp_path)
    assert names == [*packages]
    (tmp_path / "wheels").mkdir()
    download_wheels(tmp_path / "wheels", without=names)
    assert not [*(tmp_path / "wheels").iterdir()]


def test_packages_that_cannot_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BrowserBuildError, match=r"pip download failed: .*jinja2"):
        download_wheels(tmp_path, without=["protobuf"])


def test_folders_that_are_not_of_a_build_stay(pyodide: Path, tmp_path: Path) -> None:
    target = tmp_path / "thesis.txt"
    target.write_text("all of it")
    for output in (tmp_path, target, target / "browser"):
        done = build_page(output, pyodide)
        assert done.code == 1 and done.err.count("\n") == 1
        assert str(output) in done.err or str(target) in done.err
    assert files_of(tmp_path) == {"thesis.txt": b"all of it"}


def test_without_rust_for_webassembly(tmp_path: Path) -> None:
    rustc = tmp_path / "rustc"
    rustc.write_text("#!/bin/sh\necho /nonexistent\n")
    rustc.chmod(0o755)
    done = build_page(tmp_path / "browser", tmp_path, RUSTC=str(rustc))
    assert done.code == 1 and done.err.count("\n") == 1
    for package in ("rustc", "libstd-rust-dev-wasm32"):
        assert re.search(rf"\b{package}\b", done.err.partition("packages")[2])
    assert not (tmp_path / "browser").exists()


def test_pins_are_those_of_the_lock_file(pyodide: Path, tmp_path: Path) -> None:
    write_pins("0.27.7", str(pyodide), tmp_path / "pins.json")
    pins = read_pins(tmp_path / "pins.json")
    found = pins["lock"].pop("packages")
    expected = {**PINS["lock"]}
    assert {"numpy", "pillow"} <= found.keys() <= expected.pop("packages").keys()
    assert all(found[name] == PACKAGES[name] for name in found)
    assert pins == {**PINS, "lock": expected}
