"""`make release-check`: the steps of a release that need no account, on this machine.

A server on loopback replaces the index and the repository in README.md of a release. Dependencies
come from the package index of this machine.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.commands import free_port
from tests.docs.page import Step, run_alone, steps_of
from tests.release.readme import for_index
from tests.release.versions import disagreements, notes, repository, version_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "release"
DIST, SITE, DESK, PROGRAMS = (FOLDER / name for name in ("dist", "site", "desk", "programs"))
VERSION = version_of(ROOT)
_START = time.monotonic()


def main() -> None:
    """Rehearse the release; end with the first failure."""
    if problems := list(disagreements(ROOT)):
        raise SystemExit("\n".join(f"release-check: {problem}" for problem in problems))
    say(f"version.py, CHANGELOG.md and the tags of HEAD agree on {VERSION}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    check_workflows()
    build()
    with serve_site() as address:
        install_from_index(address)
        type_readme(address)
    try_single_file()
    try_images()
    write_digests()
    print(summary())


def say(text: str) -> None:
    print(f"release-check: {time.monotonic() - _START:4.0f} s  {text}", flush=True)


def run(*command: str | Path, folder: Path = ROOT, **environment: str) -> str:
    """Return what a program printed, which must succeed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout)
        raise SystemExit(f"release-check: failed: {' '.join(map(str, command))}")
    return done.stdout


def require_text(text: str, output: str, name: str) -> None:
    if text not in output:
        raise SystemExit(f"release-check: {name}: {output}")


def check_workflows() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    schemas = {"github-workflows": workflows, "github-actions": [ROOT / "action.yml"]}
    for schema, files in schemas.items():
        run(program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *files)
    say(f"valid: action.yml, {', '.join(path.name for path in workflows)}")


def program(name: str) -> Path:
    """Return a program of the environment that runs this."""
    return Path(sys.executable).parent / name


def build() -> None:
    """Build the source distribution, and the wheel from it."""
    constraints = ROOT / "docker" / "build-constraints.txt"
    run(
        *(program("uv"), "build", "--quiet", "--out-dir", DIST),
        *("--build-constraints", constraints, "--require-hashes"),
    )
    files = sorted(path.name for path in DIST.iterdir() if path.suffix in (".whl", ".gz"))
    if len(files) != 2:
        raise SystemExit(f"release-check: expected a wheel and an sdist, got {files}")
    run(program("twine"), "check", "--strict", *(DIST / name for name in files))
    say(f"built, with valid metadata: {', '.join(files)}")


@contextmanager
def serve_site() -> Iterator[str]:
    """Serve the index at /simple/ and the repository's archive, as README.md of a release asks."""
    index = SITE / "simple" / "tfod"
    shutil.copytree(DIST, index, ignore=shutil.ignore_patterns(".*"))
    archive = SITE / "tfod" / "archive" / "refs" / "tags" / f"v{VERSION}.tar.gz"
    archive.parent.mkdir(parents=True)
    git = ("git", "-c", "safe.directory=*", "archive", f"--prefix=tfod-{VERSION}/")
    run(*git, "-o", archive, "HEAD", "examples")
    handler = functools.partial(_Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def install_from_index(address: str) -> None:
    """Install the core alone into an empty environment, as a user without extras does."""
    environment = reader(address)
    run("uv", "venv", "--quiet", FOLDER / "empty", **environment)
    python = ("--python", str(FOLDER / "empty"))
    run("uv", "pip", "install", "--quiet", *python, f"tfod=={VERSION}", **environment)
    installed = run("uv", "pip", "freeze", "--quiet", *python, **environment)
    version = run(FOLDER / "empty" / "bin" / "tfod", "--version").strip()
    say(f"installed from the index: {', '.join(installed.split())}; {version}")
    output = run("uvx", "tfod", "check", ROOT / "examples" / "shapes_good.zip", **environment)
    require_text("VALID: 0 errors", output, "uvx tfod check")
    command = [FOLDER / "empty" / "bin" / "tfod", "serve"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    require_text("pip install 'tfod[validator]'", refused, "tfod serve without Flask")


def reader(address: str) -> dict[str, str]:
    """Return the environment of a reader with uv and Python, but without a clone."""
    if not PROGRAMS.exists():
        PROGRAMS.mkdir()
        for name in ("uv", "uvx"):
            (PROGRAMS / name).symlink_to(program(name))
    venv = DESK / ".venv"
    path = (venv / "bin", PROGRAMS, os.environ["PATH"])
    return {
        "PATH": os.pathsep.join(map(str, path)),
        "PYTHONPATH": "",
        "UV_INDEX": f"{address}/simple/",
        "PIP_EXTRA_INDEX_URL": f"{address}/simple/",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def type_readme(address: str) -> None:
    """Type README.md of the release from top to bottom, in an empty folder."""
    text = for_index((ROOT / "README.md").read_text("utf-8"), VERSION, repository())
    (FOLDER / "README.md").write_text(text, encoding="utf-8")
    text = text.replace(repository(), f"{address}/tfod")
    DESK.mkdir()
    changes = reader(address)
    for block in _blocks_after("## Install", text):
        output = run("bash", "-e", "-o", "pipefail", "-c", block, folder=DESK, **changes)
    require_text("VALID: 0 errors", output, "the last block of Install")
    say("README.md: pip installed tfod[datumaro,validator] from the index, uvx ran it")
    environment = {**os.environ, **changes}
    for step in (*steps_of(text), step_of_service(text)):
        if step.script and "tensorflow" in step.command and not _install_tensorflow(environment):
            continue
        if problem := run_alone(step, DESK, environment):
            raise SystemExit(f"release-check: README.md:{step.line}: {step.command}{problem}")
    say("README.md: every command, script and request works without a clone, except for CVAT's")


def _blocks_after(heading: str, text: str) -> list[str]:
    """Return the blocks without a language in a section."""
    section = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    if not blocks:
        raise SystemExit(f"release-check: README.md has no block after {heading!r}")
    return blocks


def _install_tensorflow(environment: dict[str, str]) -> bool:
    command = ["uv", "pip", "install", "--quiet", "--python", ".venv", "tfod[tensorflow]"]
    done = subprocess.run(command, cwd=DESK, env=environment, capture_output=True, check=False)
    if done.returncode:
        say("left out: the script for TensorFlow, which cannot be installed here")
    return not done.returncode


def step_of_service(text: str) -> Step:
    """Return the session with `tfod serve`, on a free port."""
    (block,) = _blocks_after("## A service that checks uploads", text)
    lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
    port = str(free_port())
    serve, request = (line.replace("8080", port) for line in lines)
    serve = serve.replace("tfod serve", f"tfod serve --port {port}").partition("#")[0]
    command = f"{serve}\ntrap 'kill $!' EXIT\n{request} || [ $? = 22 ]"
    line = text.count("\n", 0, text.index(block))
    return Step(line, command, output="...INVALID: 6 errors...\n")


def try_single_file() -> None:
    run("make", "binary")
    shutil.copy(ROOT / "build" / "binary" / "tfod", DIST / "tfod-linux-x86_64")
    run(DIST / "tfod-linux-x86_64", "check", ROOT / "examples" / "shapes_good.zip", folder=DESK)
    say("the single file works")


def try_images() -> None:
    """Build and try both images with buildah."""
    if not shutil.which("buildah"):
        say("left out: the images, since buildah is not installed")
        return
    for script in ("docker/try", "docker/cvat/try"):
        say(run(script, "--or-say-why").splitlines()[-1])


def write_digests() -> None:
    files = sorted(path for path in DIST.iterdir() if path.name.startswith("tfod"))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(lines))
    (FOLDER / "notes.md").write_text(
        notes((ROOT / "CHANGELOG.md").read_text("utf-8"), VERSION), encoding="utf-8"
    )


def summary() -> str:
    files = sorted(path for path in DIST.iterdir() if path.name[0] != ".")
    sizes = "\n".join(f"  {path.name:<45} {path.stat().st_size:>12,} bytes" for path in files)
    minor = VERSION.rpartition(".")[0]
    return f"""
Made here, in build/release/dist:
{sizes}

After the tag v{VERSION}, .github/workflows/wheels.yml would make these again and publish
  to PyPI: the sdist, and wheels for Linux (x86_64, aarch64), macOS and Windows
  to the release on GitHub: these, tfod-linux-x86_64, SHA256SUMS and build/release/notes.md
  to ghcr.io: the images tfod-validator and tfod-cvat with the tags {VERSION}, {minor} and latest

Only a person with accounts can:
  1. create {repository()}, or put another address into pyproject.toml;
     allow private reports of vulnerabilities there, which SECURITY.md promises
  2. reserve the name tfod on PyPI, with wheels.yml as a trusted publisher in the environment pypi
  3. type `make pin` and commit: it asks github.com and the registries for commits and digests
  4. see ci.yml pass on GitHub: nothing was run on macOS and Windows here
  5. type `make release-files`, commit, and push the tag v{VERSION};
     move the tag v{VERSION.partition(".")[0]}, which jobs on GitHub name, to the same commit
  6. make the images public in the settings of the packages on ghcr.io"""


if __name__ == "__main__":
    main()
