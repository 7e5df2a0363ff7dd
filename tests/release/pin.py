"""`make pin`: commits of actions and digests of base images, from where they are published.

Workflows name actions by tag, and Dockerfiles and Compose files name images by tag, until a person
runs this on a machine that reaches github.com and the registries. It needs git and skopeo. Each
line keeps its tag, so that the next run looks up what the tag means then.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
ACTION = re.compile(
    r"(?P<before>\buses: )(?P<name>[\w.-]+/[\w./-]+)@(?P<ref>\S+)(?: # (?P<tag>\S+))?$",
    re.MULTILINE,
)
"""A step, such as ``uses: actions/checkout@v4``, or once pinned ``uses: …@COMMIT # v4``."""
IMAGE = re.compile(
    r"(?P<before>^ARG \w*BASE=|^\s+image: )(?P<name>[a-z][\w./-]*:\w[\w.-]*)"
    r"(?:@sha256:[0-9a-f]{64})?$",
    re.MULTILINE,
)
"""A base of a Dockerfile, or an image that a Compose file or a workflow runs, without variables."""


def main() -> None:
    """Pin every file, or none if an answer is missing."""
    texts: dict[Path, str] = {}
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        texts[path] = pin_images(pin_actions(path.read_text("utf-8"), commit_of), digest_of)
    for path in sorted((*ROOT.glob("docker/*/Dockerfile"), *ROOT.glob("docker/compose*.yml"))):
        texts[path] = pin_images(path.read_text("utf-8"), digest_of)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    print(f"pinned: {', '.join(str(path.relative_to(ROOT)) for path in texts)}")


def pin_actions(text: str, look_up: Callable[[str, str], str]) -> str:
    """Return a workflow whose actions have commits, and their tags as comments."""

    def pin(match: re.Match[str]) -> str:
        tag = match["tag"] or match["ref"]
        return f"{match['before']}{match['name']}@{look_up(match['name'], tag)} # {tag}"

    return ACTION.sub(pin, text)


def pin_images(text: str, look_up: Callable[[str], str]) -> str:
    """Return a Dockerfile or Compose file whose images have digests."""
    return IMAGE.sub(
        lambda match: f"{match['before']}{match['name']}@{look_up(match['name'])}", text
    )


def commit_of(action: str, tag: str) -> str:
    """Return the commit of an action's tag or branch."""
    repository = "/".join(action.split("/")[:2])
    names = (f"refs/tags/{tag}^{{}}", f"refs/tags/{tag}", f"refs/heads/{tag}")
    command = ["git", "ls-remote", f"https://github.com/{repository}", *names]
    found = dict(line.split("\t")[::-1] for line in ask(command).splitlines())
    for name in names:  # an annotated tag is an object that points to a commit: the first name
        if name in found:
            return found[name]
    raise SystemExit(f"make pin: {repository} has no tag or branch {tag}")


def digest_of(image: str) -> str:
    """Return the digest of an image, which covers all its platforms."""
    name = image if "." in image.partition("/")[0] else f"docker.io/{image}"
    command = ["skopeo", "inspect", "--no-tags", "--format", "{{.Digest}}", f"docker://{name}"]
    digest = ask(command).strip()
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise SystemExit(f"make pin: {image} has no digest: {digest!r}")
    return digest


def ask(command: list[str]) -> str:
    """Return what a program printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(f"make pin: {command[0]} is not installed") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise SystemExit(f"make pin: {command[0]} failed for {command[-1]}: {reason}")
    return done.stdout


if __name__ == "__main__":
    main()
