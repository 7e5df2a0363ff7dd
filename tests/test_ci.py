"""What others' CI takes from this repository: pre-commit's hook and the action, run for real.

Both install tfod by pip, in environments of their own. So that this needs neither a network nor
the minute of a compiler, pip builds without isolation (which is what its setting 0 means), without
dependencies, bytecode and the kernel; the dependencies, and the tools that build, are found in a
folder of links to what the tests run with.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Run, require
from tests.records import encode, image, objects, write_shard

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
EXPRESSION = re.compile(r"\$\{\{ (\w+)\.([\w.-]+) \}\}")
SOUND, INVERTED = (0.2, 0.2, 0.4, 0.4), (0.4, 0.2, 0.2, 0.4)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which pip installs tfod from its source in seconds."""
    require("pre-commit", importlib.util.find_spec("pre_commit") is not None)
    folder = tmp_path_factory.mktemp("ci")
    # This repository may belong to somebody else than who runs the tests.
    (folder / ".gitconfig").write_text("[safe]\ndirectory = *\n[user]\nname = a\nemail = a@b.c\n")
    packages = folder / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"_?tfod|pip|_distutils|distutils", path.name):
            (packages / path.name).symlink_to(path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(packages),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_COMPILE": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "TFOD_KERNEL": "0",
        "HOME": str(folder),
        "PRE_COMMIT_HOME": str(folder / "pre-commit"),
    }


def write(folder: Path, name: str, box: Any, class_name: str = "cat") -> Path:
    """A shard ``folder/name`` of one image with one box, and a label map beside it."""
    record = encode({**image(f"{name}.jpg"), **objects([box], [class_name], [1])})
    label_map = f"item {{ id: 1 name: '{class_name}' }}"
    path = write_shard(folder, "x", record, label_map=label_map)
    return Path(path).rename(folder / name)


def test_pre_commit_checks_what_a_commit_changes(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    require("git", shutil.which("git") is not None and (ROOT / ".git").exists())

    def run(*command: str) -> tuple[int, str]:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def commit() -> tuple[int, str]:
        run("git", "add", ".")
        return run("git", "commit", "-m", "more data")

    code, revision = run("git", "-C", str(ROOT), "rev-parse", "HEAD")
    assert code == 0, revision
    config = {
        "repos": [{"repo": str(ROOT), "rev": revision.strip(), "hooks": [{"id": "tfod-check"}]}]
    }
    config["repos"][0]["hooks"][0]["args"] = ["--for", "cvat"]
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    run("git", "init")
    assert run("pre-commit", "install")[0] == 0
    (tmp_path / "README").write_text("No data yet.")
    code, out = commit()
    assert code == 0 and "no files to check" in out, out
    write(tmp_path / "cats", "a.tfrecord-00000-of-00002", SOUND)
    write(tmp_path / "cats", "a.tfrecord-00001-of-00002", SOUND)
    write(tmp_path / "my dogs", "b.record", SOUND, "dog")
    code, out = commit()
    assert code == 0 and "Passed" in out, out
    write(tmp_path / "cats", "a.tfrecord-00001-of-00002", INVERTED)
    (tmp_path / "my dogs" / "label_map.pbtxt").write_text("item { id: 1 name: 'hund' }")
    code, out = commit()
    assert code == 1 and "Failed" in out, out
    assert "cats/a.tfrecord-00001-of-00002, record 0" in out and "BOX006 error" in out
    # Its label map changed, not the shard.
    assert "my dogs/b.record, record 0" in out and "LAB006 warning" in out


def test_the_hook_takes_shards_and_label_maps_by_their_names() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    taken = re.compile(hook["files"])
    for name in (
        "a.tfrecord", "b/A.TFRecords", "c.record", "d.tfrec", "e.tfrecord.gz", "label_map.pbtxt",
        "train.record-00000-of-00010", "train-00000-of-00010", "train-00000-of-00010.tfrecord",
        "my_labels.pbtxt",
    ):  # fmt: skip
        assert taken.search(name), name
    for name in ("a.py", "labels/graph.pbtxt", "pipeline.config", "a.tfrecord.md", "record.txt"):
        assert not taken.search(name), name


def run_step(
    step: dict[str, Any], contexts: dict[str, str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as GitHub's runner does; its outputs become contexts."""
    assert step["shell"] == "bash" and "${{" not in step["run"], "no code from inputs"
    script, output = folder / "step.sh", folder / "output"
    script.write_text(step["run"])
    output.write_text("")
    values = {
        name: EXPRESSION.sub(lambda match: contexts[f"{match[1]}.{match[2]}"], text)
        for name, text in step["env"].items()
    }
    files = {"GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(folder), "GITHUB_ACTIONS": "true"}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder,
        env={**environment, **files, **values},
        capture_output=True,
        text=True,
        check=False,
    )
    for line in output.read_text().splitlines():
        name, _, value = line.partition("=")
        contexts[f"steps.{step['id']}.outputs.{name}"] = value
    return done


def test_the_action_s_steps(tmp_path: Path, environment: dict[str, str]) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    install, check = action["runs"]["steps"]
    write(tmp_path / "my data", "a.record", SOUND)
    write(tmp_path / "bad", "b.record", INVERTED)
    contexts = {f"inputs.{name}": one.get("default") for name, one in action["inputs"].items()}
    contexts |= {"github.action_path": str(ROOT), "inputs.python": sys.executable}
    done = run_step(install, contexts, tmp_path, environment)
    assert done.returncode == 0, done.stderr

    def run(sources: str, args: str) -> subprocess.CompletedProcess[str]:
        contexts.update({"inputs.sources": sources, "inputs.args": args})
        return run_step(check, contexts, tmp_path, environment)

    done = run("my data\n\nbad/*.record\n", "--for cvat\n--max-findings 1")
    assert done.returncode == 1, done.stderr
    assert "::error file=bad/b.record,title=BOX006 box is inverted::record 0" in done.stdout
    assert contexts["steps.check.outputs.valid"] == "false"
    report = json.loads(Path(contexts["steps.check.outputs.report"]).read_text())
    assert not report["valid"] and "BOX006" in report["counts"]["by_code"]
    done = run("my data", "--for=cvat")
    assert done.returncode == 0 and "VALID for CVAT: " in done.stdout, done
    assert contexts["steps.check.outputs.valid"] == "true"
    for name, output in action["outputs"].items():
        assert output["value"] == f"${{{{ steps.check.outputs.{name} }}}}"
    hostile = "x'$(touch hacked)`touch hacked`; touch hacked"
    assert run(hostile, hostile).returncode == 2 and not (tmp_path / "hacked").exists()


def test_files_have_the_form_that_their_readers_want() -> None:
    require("check-jsonschema", importlib.util.find_spec("check_jsonschema") is not None)
    assert refused("github-actions", ROOT / "action.yml") == ""
    assert refused("validate-manifest", ROOT / ".pre-commit-hooks.yaml") == ""


def refused(reader: str, path: Path) -> str:
    """Why pre-commit, or who has this schema, does not take a file."""
    command = ["check_jsonschema", "--builtin-schema", f"vendor.{reader}"]
    if reader.startswith("validate-"):
        command = ["pre_commit", reader]
    elif reader == "gitlab-ci":
        command += ["--data-transform", "gitlab-ci"]
    done = subprocess.run(
        [sys.executable, "-m", *command, str(path)], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr if done.returncode else ""


def test_the_page_s_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """They have the form that is wanted; what they name is there, and their commands are typed."""
    page = (ROOT / "docs" / "ci.md").read_text()
    workflow, gitlab, hooks = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    readers = {"github-workflows": workflow, "gitlab-ci": gitlab, "validate-config": hooks}
    for reader, text in readers.items():
        (tmp_path / f"{reader}.yaml").write_text(text)
        assert refused(reader, tmp_path / f"{reader}.yaml") == ""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (repository,) = yaml.safe_load(hooks)["repos"]
    assert repository["hooks"][0]["id"] == hook["id"]
    assert re.fullmatch("[0-9a-f]{40}", repository["rev"])
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = yaml.safe_load(workflow)["jobs"]["check"]["steps"][1:]
    assert step["with"].keys() <= action["inputs"].keys()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(action["inputs"])
    job = yaml.safe_load(gitlab)["shards"]
    commands = {
        f"tfod check {step['with']['sources']} --format github": [],
        job["script"][-1]: list(job["artifacts"]["reports"].values()),
    }
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "shards", "a.record", SOUND)
    for command, files in commands.items():
        assert run(*command.split()[1:]).code == 1, "there are no images in the shard"
        for name in files:
            (tmp_path / name).unlink()
