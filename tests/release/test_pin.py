"""`make pin` writes what git and the registries answer, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands import require
from tests.release import pin

ROOT = Path(__file__).parents[2]
COMMIT, OTHER = "0a" * 20, "1b" * 20
DIGEST = "sha256:" + "2c" * 32


def test_actions_keep_their_tag_as_a_comment() -> None:
    text = "steps:\n  - uses: actions/checkout@v4\n  - uses: a/b/c@release/v1\n  - run: make\n"
    pinned = pin.pin_actions(text, lambda name, tag: COMMIT if tag == "v4" else OTHER)
    assert f"  - uses: actions/checkout@{COMMIT} # v4\n" in pinned
    assert f"  - uses: a/b/c@{OTHER} # release/v1\n" in pinned
    assert pinned.endswith("  - run: make\n")
    again = pin.pin_actions(pinned, lambda name, tag: OTHER)
    assert f"actions/checkout@{OTHER} # v4\n" in again and COMMIT not in again


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
def test_images_from_elsewhere_get_a_digest(line: str, is_pinned: bool) -> None:
    pinned = pin.pin_images(line + "\n", lambda name: DIGEST)
    plain = re.sub("@sha256:.*", "", line)
    assert pinned == (f"{plain}@{DIGEST}\n" if is_pinned else f"{line}\n")


def test_every_action_and_base_of_this_repository_is_recognized() -> None:
    """A tag, or what was looked up for it."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text("utf-8")
        assert len(pin.ACTION.findall(text)) == text.count("uses: ")
        for match in pin.ACTION.finditer(text):
            assert match["tag"] is None or re.fullmatch("[0-9a-f]{40}", match["ref"])
    for name, count in {"docker/validator/Dockerfile": 1, "docker/cvat/Dockerfile": 2}.items():
        assert len(pin.IMAGE.findall((ROOT / name).read_text("utf-8"))) == count


def test_a_commit_is_that_of_the_tag_or_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git asks a repository on this machine instead of GitHub; a tag may be an object."""
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
    with pytest.raises(SystemExit, match=r"actions/checkout has no tag or branch v5"):
        pin.commit_of("actions/checkout", "v5")
    with pytest.raises(SystemExit, match=r"git failed"):
        pin.commit_of("actions/absent", "v4")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (f'[ "$5" = docker://docker.io/redis:7 ] && echo {DIGEST}', None),
        ("echo 'unauthorized' >&2; exit 1", "unauthorized"),
        ("echo", "has no digest"),
        (None, "skopeo is not installed"),
    ],
)
def test_a_digest_is_what_skopeo_answers(
    script: str | None, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script:
        (tmp_path / "skopeo").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "skopeo").chmod(0o755)
    system = f"{os.pathsep}/bin" if script else ""
    monkeypatch.setenv("PATH", f"{tmp_path}{system}")
    if error is None:
        assert pin.digest_of("redis:7") == DIGEST
    else:
        with pytest.raises(SystemExit, match=error):
            pin.digest_of("redis:7")


def test_nothing_is_written_if_an_answer_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = tmp_path / ".github" / "workflows" / "ci.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("  - uses: actions/checkout@v4\n")
    dockerfile = tmp_path / "docker" / "validator" / "Dockerfile"
    dockerfile.parent.mkdir(parents=True)
    dockerfile.write_text("ARG BASE=python:3.11\n")
    monkeypatch.setattr(pin, "ROOT", tmp_path)
    monkeypatch.setattr(pin, "commit_of", lambda name, tag: COMMIT)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        pin.main()
    assert workflow.read_text() == "  - uses: actions/checkout@v4\n"
    monkeypatch.setattr(pin, "digest_of", lambda image: DIGEST)
    pin.main()
    assert workflow.read_text() == f"  - uses: actions/checkout@{COMMIT} # v4\n"
    assert dockerfile.read_text() == f"ARG BASE=python:3.11@{DIGEST}\n"
