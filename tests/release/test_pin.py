"""`make pin` writes the answers of git and the registries, and changes nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands import require
from tests.files import files_in, write_files
from tests.release import pin

ROOT = Path(__file__).parents[2]
COMMIT, OTHER = "0a" * 20, "1b" * 20
DIGEST = "sha256:" + "2c" * 32


def test_actions_keep_their_tag_as_a_comment() -> None:
    text = "steps:\n  - uses: actions/checkout@v4\n  - uses: a/b/c@release/v1\n  - run: make\n"
    pinned = pin.pin_actions(text, lambda name, tag: COMMIT if tag == "v4" else OTHER)
    expected = text.replace("@v4", f"@{COMMIT} # v4").replace(
        "@release/v1", f"@{OTHER} # release/v1"
    )
    assert pinned == expected
    assert pin.pin_actions(pinned, lambda name, tag: OTHER) == expected.replace(COMMIT, OTHER)


@pytest.mark.parametrize(
    ("line", "is_pinned"),
    [
        ("ARG BASE=docker.io/library/python:3.11-slim-bookworm", True),
        ("ARG OLDER_BASE=docker.io/library/python:3.10-slim-bookworm", True),
        (f"ARG BASE=docker.io/library/python:3.11-slim-bookworm@sha256:{'3d' * 32}", True),
        ("    image: redis:7.4-bookworm", True),
        ("            image: quay.io/pypa/manylinux_2_28_x86_64:latest", True),
        ("ARG CVAT=docker.io/cvat/server:v2.73.0", False),  # the user's
        ("  image: tfod-validator:${TFOD_VERSION:-local}", False),  # built here
        ("    container: ${{ matrix.image }}", False),
    ],
)
def test_images_of_others_get_a_digest(line: str, is_pinned: bool) -> None:
    pinned = pin.pin_images(line + "\n", lambda name: DIGEST)
    plain = re.sub("@sha256:.*", "", line)
    assert pinned == (f"{plain}@{DIGEST}\n" if is_pinned else f"{line}\n")


def test_the_actions_and_bases_of_this_repository_are_recognized() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text("utf-8")
        assert len(pin.ACTION.findall(text)) == text.count("uses: ")
        for match in pin.ACTION.finditer(text):
            assert match["tag"] is None or re.fullmatch("[0-9a-f]{40}", match["ref"])
    for name, count in {"docker/validator/Dockerfile": 1, "docker/cvat/Dockerfile": 2}.items():
        assert len(pin.IMAGE.findall((ROOT / name).read_text("utf-8"))) == count


def test_the_commit_of_a_tag_or_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git gets a repository on this machine instead of GitHub; a tag may be an object."""
    require("git", shutil.which("git") is not None)
    repository = tmp_path / "actions" / "checkout"
    repository.mkdir(parents=True)

    def git(*arguments: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "safe.directory=*")
        command = ["git", "-C", str(repository), *names, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet", "--initial-branch", "release/v1")
    git("commit", "--quiet", "--allow-empty", "-m", "first")
    git("tag", "-a", "v4", "-m", "annotated")
    first = git("rev-parse", "HEAD")
    git("commit", "--quiet", "--allow-empty", "-m", "second")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{tmp_path}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    assert pin.commit_of("actions/checkout", "v4") == first
    assert pin.commit_of("actions/checkout/sub", "release/v1") == git("rev-parse", "HEAD") != first
    for action, error in (("checkout", r"has no tag or branch v5"), ("absent", r"git failed")):
        with pytest.raises(SystemExit, match=error):
            pin.commit_of(f"actions/{action}", "v5")


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        (f'[ "$5" = docker://docker.io/redis:7 ] && echo {DIGEST}', DIGEST),
        ("echo 'unauthorized' >&2; exit 1", "unauthorized"),
        ("echo", "has no digest"),
        (None, "skopeo is not installed"),
    ],
)
def test_a_digest_is_the_answer_of_skopeo(
    script: str | None, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script:
        (tmp_path / "skopeo").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "skopeo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin" if script else str(tmp_path))
    try:
        found = pin.digest_of("redis:7")
    except SystemExit as error:
        found = str(error)
    assert found == DIGEST if answer == DIGEST else answer in found


def test_no_file_is_written_if_an_answer_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow, dockerfile = ".github/workflows/ci.yml", "docker/validator/Dockerfile"
    files = {workflow: b"  - uses: actions/checkout@v4\n", dockerfile: b"ARG BASE=python:3.11\n"}
    write_files(tmp_path, files)
    monkeypatch.setattr(pin, "ROOT", tmp_path)
    monkeypatch.setattr(pin, "commit_of", lambda name, tag: COMMIT)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        pin.main()
    assert files_in(tmp_path) == files
    monkeypatch.setattr(pin, "digest_of", lambda image: DIGEST)
    pin.main()
    assert files_in(tmp_path) == {
        workflow: f"  - uses: actions/checkout@{COMMIT} # v4\n".encode(),
        dockerfile: f"ARG BASE=python:3.11@{DIGEST}\n".encode(),
    }
