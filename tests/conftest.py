"""What all tests share: the corpus of real shards, and shards made to measure."""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tfod.example.example import bytes_feature, encode_example, float_feature, int64_feature
from tfod.tfrecord.writer import RecordWriter, write_records

_SHARES = {"few": 0.1, "default": 1.0, "thorough": 20.0}
_SHARE = _SHARES[os.environ.get("HYPOTHESIS_PROFILE", "default")]


def examples(count: int) -> settings:
    """The settings of a property that needs another number of examples than the usual 100.

    ``HYPOTHESIS_PROFILE=thorough`` tries twenty times as many, ``few`` a tenth: what is tried on
    every Python and every line of Datumaro has been tried once with all of them.
    """
    return settings(max_examples=max(1, round(count * _SHARE)))


# No deadlines: machines are noisy. The same examples in each CI run; others on every desk. The
# examples of a test may share its folder.
settings.register_profile(
    "tfod",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=bool(os.environ.get("CI")),
    max_examples=max(1, round(100 * _SHARE)),
)
settings.load_profile("tfod")
CORPUS = Path(__file__).with_name("corpus")
_used_shards: set[str] = set()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real shards."""
    return CORPUS


@pytest.fixture(scope="session")
def figures(corpus: Path) -> dict[str, Any]:
    """What TensorFlow counted in the corpus, by shard."""
    return json.loads((corpus / "figures.json").read_text())


@pytest.fixture
def note_shard() -> Callable[[str], None]:
    """Remember that a real shard was read, for the closing line of the run."""
    return _used_shards.add


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands over what it has read."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["used_shards"] = sorted(_used_shards)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker has read."""
    _used_shards.update(getattr(node, "workeroutput", {}).get("used_shards", ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many real shards were read."""
    if _used_shards:
        terminalreporter.write_line(f"real shards read from {CORPUS}: {len(_used_shards)}")


def encode(features: Mapping[str, Any]) -> bytes:
    """An Example from plain values: str and bytes, int, float, or lists of them."""
    return encode_example({key: _feature(value) for key, value in features.items()})


def _feature(value: Any) -> bytes:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if values and all(isinstance(one, (str, bytes)) for one in values):
        return bytes_feature(one.encode() if isinstance(one, str) else one for one in values)
    if any(isinstance(one, float) for one in values):
        return float_feature(values)
    return int64_feature(values)


def objects(
    boxes: Sequence[Sequence[float]],
    text: Sequence[str] | None = None,
    label: Sequence[int] | None = None,
) -> dict[str, Any]:
    """The features of objects; boxes are xmin, ymin, xmax, ymax, normalized."""
    found: dict[str, Any] = {
        f"image/object/bbox/{side}": [float(box[place]) for box in boxes]
        for place, side in enumerate(("xmin", "ymin", "xmax", "ymax"))
    }
    if text is not None:
        found["image/object/class/text"] = list(text)
    if label is not None:
        found["image/object/class/label"] = list(label)
    return found


def image(name: str = "a.jpg", height: int = 100, width: int = 200) -> dict[str, Any]:
    """The features of an image without its bytes."""
    return {"image/filename": name, "image/height": height, "image/width": width}


def frame(*payloads: bytes) -> bytes:
    """A shard of these payloads."""
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    for payload in payloads:
        writer.write(payload)
    return stream.getvalue()


@pytest.fixture
def make_shard(tmp_path: Path) -> Callable[..., str]:
    """Write a shard from dicts of plain values: ``make_shard("train", {...}, {...})``."""

    def make(subset: str, *records: Mapping[str, Any], folder: Path | None = None) -> str:
        return write_records(folder or tmp_path, subset, [encode(one) for one in records])[0]

    return make


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def require(what: str, is_there: bool) -> None:
    """Skip where something is not installed; fail where it has to be (in CI)."""
    if not is_there:
        assert not os.environ.get("TFOD_REQUIRE"), f"{what} is not installed"
        pytest.skip(f"{what} is not installed")
