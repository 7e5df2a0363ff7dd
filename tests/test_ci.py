"""The pre-commit hook and the action, as CI of other repositories runs them.

Both install tfod by pip in new environments. To need neither a network nor a compiler, pip builds
without isolation (the meaning of 0 in its setting), dependencies, bytecode and the kernel. The
dependencies and build tools are links to the packages of this environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Result, Run, require, run_command, schema_errors
from tests.records import encode, image, objects, write_shard

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
EXPRESSION = re.compile(r"\$\{\{ (\w+)\.([\w.-]+) \}\}")
VALID, INVERTED = (0.2, 0.2, 0.4, 0.4), (0.4, 0.2, 0.2, 0.4)


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables with which pip installs tfod from its source in seconds."""
    require("pre-commit", importlib.util.find_spec("pre_commit") is not None)
    folder = tmp_path_factory.mktemp("ci")
    # The repository may belong to another user.
    (folder / ".gitconfig").write_text("[safe]\ndirectory = *\n[user]\nname = a\nemail = a@b.c\n")
    packages = folder / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"_?tfod|pip|_distutils|distutils", path.name):
            (packages / path.name).symlink_to(path)
    zeros = ("PIP_NO_BUILD_ISOLATION", "TFOD_KERNEL")
    ones = ("PIP_NO_INDEX", "PIP_NO_DEPS", "PIP_NO_COMPILE")
    changes = {
        **dict.fromkeys(zeros, "0"),
        **dict.fromkeys(ones, "1"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(packages),
        "PIP_CONFIG_FILE": os.devnull,
        "HOME": str(folder),
        "PRE_COMMIT_HOME": str(folder / "pre-commit"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in (name for name in [*os.environ] if name.startswith("GIT_")):
            patch.delenv(name)
        yield changes


def write(folder: Path, name: str, box: Any, class_name: str = "cat") -> Path:
    """Write a shard ``folder/name`` of one image with one box, and a label map."""
    record = encode({**image(f"{name}.jpg"), **objects([box], [class_name], [1])})
    label_map = f"item {{ id: 1 name: '{class_name}' }}"
    path = write_shard(folder, "x", record, label_map=label_map)
    return Path(path).rename(folder / name)


def test_pre_commit_checks_the_changes_of_a_commit(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    require("git", shutil.which("git") is not None and (ROOT / ".git").exists())

    def run(*command: str) -> str:
        return run_command(*command, folder=tmp_path, **environment).succeeded()

    def commit() -> tuple[int, str]:
        run("git", "add", ".")
        done = run_command("git", "commit", "-m", "data", folder=tmp_path, **environment)
        return done.code, done.out + done.err

    revision = run_command("git", "rev-parse", "HEAD", folder=ROOT, **environment).out.strip()
    hook = {"id": "tfod-check", "args": ["--for", "cvat"]}
    config = {"repos": [{"repo": str(ROOT), "rev": revision, "hooks": [hook]}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    run("git", "init")
    run("pre-commit", "install")
    (tmp_path / "README").write_text("No data yet.")
    code, out = commit()
    assert code == 0 and "no files to check" in out, out
    write(tmp_path / "cats", "a.tfrecord-00000-of-00002", VALID)
    write(tmp_path / "cats", "a.tfrecord-00001-of-00002", VALID)
    write(tmp_path / "my dogs", "b.record", VALID, "dog")
    code, out = commit()
    assert code == 0 and "Passed" in out, out
    write(tmp_path / "cats", "a.tfrecord-00001-of-00002", INVERTED)
    (tmp_path / "my dogs" / "label_map.pbtxt").write_text("item { id: 1 name: 'hund' }")
    code, out = commit()
    assert code == 1 and "Failed" in out, out
    assert "cats/a.tfrecord-00001-of-00002, record 0" in out and "BOX006 error" in out
    # Its label map changed, not the shard.
    assert "my dogs/b.record, record 0" in out and "LAB006 warning" in out


def test_the_hook_selects_shards_and_label_maps_by_their_names() -> None:
    (hook,) = load(".pre-commit-hooks.yaml")
    pattern = re.compile(hook["files"])
    for name in (
        "a.tfrecord", "b/A.TFRecords", "c.record", "d.tfrec", "e.tfrecord.gz", "label_map.pbtxt",
        "train.record-00000-of-00010", "train-00000-of-00010", "train-00000-of-00010.tfrecord",
        "my_labels.pbtxt",
    ):  # fmt: skip
        assert pattern.search(name), name
    for name in ("a.py", "labels/graph.pbtxt", "pipeline.config", "a.tfrecord.md", "record.txt"):
        assert not pattern.search(name), name


def run_step(
    step: dict[str, Any], contexts: dict[str, str], folder: Path, environment: dict[str, str]
) -> Result:
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
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", str(script))
    done = run_command(*command, folder=folder, **environment | files | values)
    for line in output.read_text().splitlines():
        name, _, value = line.partition("=")
        contexts[f"steps.{step['id']}.outputs.{name}"] = value
    return done


def test_the_steps_of_the_action(tmp_path: Path, environment: dict[str, str]) -> None:
    action = load("action.yml")
    install, check = action["runs"]["steps"]
    write(tmp_path / "my data", "a.record", VALID)
    write(tmp_path / "bad", "b.record", INVERTED)
    contexts = {f"inputs.{name}": each.get("default") for name, each in action["inputs"].items()}
    contexts |= {"github.action_path": str(ROOT), "inputs.python": sys.executable}
    run_step(install, contexts, tmp_path, environment).succeeded()

    def run(sources: str, args: str) -> Result:
        contexts.update({"inputs.sources": sources, "inputs.args": args})
        return run_step(check, contexts, tmp_path, environment)

    done = run("my data\n\nbad/*.record\n", "--for cvat\n--max-findings 1")
    assert done.code == 1, done.err
    assert "::error file=bad/b.record,title=BOX006 box is inverted::record 0" in done.out
    assert contexts["steps.check.outputs.valid"] == "false"
    report = json.loads(Path(contexts["steps.check.outputs.report"]).read_text())
    assert not report["valid"] and "BOX006" in report["counts"]["by_code"]
    done = run("my data", "--for=cvat")
    assert done.code == 0 and "VALID for CVAT: " in done.out, done
    assert contexts["steps.check.outputs.valid"] == "true"
    for name, output in action["outputs"].items():
        assert output["value"] == f"${{{{ steps.check.outputs.{name} }}}}"
    hostile = "x'$(touch hacked)`touch hacked`; touch hacked"
    assert run(hostile, hostile).code == 2 and not (tmp_path / "hacked").exists()


def test_the_examples_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """They fit the schemas, the named files exist, and their commands run."""
    assert schema_errors("github-actions", ROOT / "action.yml") == ""
    assert schema_errors("validate-manifest", ROOT / ".pre-commit-hooks.yaml") == ""
    page = (ROOT / "docs" / "ci.md").read_text()
    workflow, gitlab, hooks = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    schemas = {"github-workflows": workflow, "gitlab-ci": gitlab, "validate-config": hooks}
    for schema, text in schemas.items():
        (tmp_path / f"{schema}.yaml").write_text(text)
        assert schema_errors(schema, tmp_path / f"{schema}.yaml") == ""
    (hook,) = load(".pre-commit-hooks.yaml")
    (repository,) = yaml.safe_load(hooks)["repos"]
    assert repository["hooks"][0]["id"] == hook["id"]
    assert re.fullmatch("[0-9a-f]{40}", repository["rev"])
    inputs = load("action.yml")["inputs"]
    (step,) = yaml.safe_load(workflow)["jobs"]["check"]["steps"][1:]
    assert step["with"].keys() <= inputs.keys()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(inputs)
    job = yaml.safe_load(gitlab)["shards"]
    commands = {
        f"tfod check {step['with']['sources']} --format github": [],
        job["script"][-1]: list(job["artifacts"]["reports"].values()),
    }
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "shards", "a.record", VALID)
    for command, files in commands.items():
        assert run(*command.split()[1:]).code == 1, "there are no images in the shard"
        for name in files:
            (tmp_path / name).unlink()
