"""The workflows have the form that GitHub expects; their scripts run here with stand-ins."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands import schema_errors

yaml = pytest.importorskip("yaml")

FOLDER = Path(__file__).parents[2] / ".github" / "workflows"
WORKFLOWS: dict[str, dict[str, Any]] = {
    path.name: yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.yml"))
}


def scripts_of(job: str, name: str = "wheels.yml") -> list[str]:
    steps = WORKFLOWS[name]["jobs"][job]["steps"]
    return [step["run"] for step in steps if "run" in step]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_schema(name: str) -> None:
    assert schema_errors("github-workflows", FOLDER / name) == ""


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_job_may_read_only_unless_it_publishes(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    jobs = WORKFLOWS[name]["jobs"]
    writers = {job for job in jobs if "permissions" in jobs[job]}
    assert writers == ({"publish", "release", "images"} if name == "wheels.yml" else set())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_script_contains_an_expression(name: str) -> None:
    """Scripts get values as variables, so that no text of a user is run."""
    for job in WORKFLOWS[name]["jobs"]:
        assert "${{" not in "".join(scripts_of(job, name))


def test_nothing_is_published_without_a_tag_and_a_rehearsal() -> None:
    assert WORKFLOWS["wheels.yml"][True]["push"] == {"tags": ["v*.*.*"]}  # YAML 1.1: `on` is true
    jobs = WORKFLOWS["wheels.yml"]["jobs"]
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/')"
    assert {"rehearsal", "linux", "others", "source", "binary"} == set(jobs["publish"]["needs"])
    assert jobs["release"]["needs"] == jobs["images"]["needs"] == "publish"
    assert "make release-check" in scripts_of("rehearsal")


def test_ci_runs_lint_and_the_tests_on_linux_and_one_job_on_each_other_system() -> None:
    workflow = WORKFLOWS["ci.yml"]
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML 1.1 reads `on` as true
    assert scripts_of("lint", "ci.yml") == ["make lint"]
    assert scripts_of("linux", "ci.yml") == ["make test"]
    systems = workflow["jobs"]["systems"]["strategy"]["matrix"]["runner"]
    assert [runner.partition("-")[0] for runner in systems] == ["macos", "windows"]


def run_step(script: str, folder: Path, **environment: str) -> list[str]:
    """Run a script as GitHub does, with programs that only log their arguments; return the log."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("docker", "gh"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >>"{folder}/calls"\n')
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={"PATH": path, "GITHUB_REF_NAME": "v1.12.3", **environment},
        check=True,
    )
    calls = folder / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


def test_images_are_pushed_with_three_tags(tmp_path: Path) -> None:
    calls = run_step(
        scripts_of("images")[-1], tmp_path, NAME="tfod-cvat", GITHUB_REPOSITORY_OWNER="Some-Team"
    )
    pushed = [call.split()[-1] for call in calls if call.startswith("docker push")]
    image = "ghcr.io/some-team/tfod-cvat"
    assert pushed == [f"{image}:1.12.3", f"{image}:1.12", f"{image}:latest"]
    assert [call.split()[2:] for call in calls[::2]] == [["tfod-cvat", name] for name in pushed]


def test_the_release_has_the_files_and_their_digests(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    for name in ("notes.md", "tfod-1.12.3.tar.gz", "tfod-linux-x86_64"):
        (tmp_path / "dist" / name).write_text(name)
    for script in scripts_of("release"):
        calls = run_step(script, tmp_path)
    (call,) = calls
    assert call.startswith("gh release create v1.12.3 --verify-tag --notes-file notes.md ")
    assert call.split()[-3:] == ["dist/tfod-1.12.3.tar.gz", "dist/tfod-linux-x86_64", "SHA256SUMS"]
    check = ["sha256sum", "--check", "--strict", str(tmp_path / "SHA256SUMS")]
    done = subprocess.run(check, cwd=tmp_path / "dist", capture_output=True, text=True, check=True)
    assert done.stdout.count(": OK") == 2
