"""Reading from buckets and web servers: bytes, numbers of requests, and errors on the way."""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tfod.sources.reading import find_label_map
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.open import get_shard_size, open_shard
from tfod.tfrecord.storage.remote import RemoteError, RemoteStream, list_remote

from tests.commands import TIMEOUT, Run, wait_until
from tests.records import encode, frame, image
from tests.tfrecord.remote.conftest import Bucket
from tests.tfrecord.remote.servers import Web, silent_server

MIB = 1 << 20
Served = tuple[Web, str]


@functools.cache
def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def read_all(stream: Any) -> bytes:
    return b"".join(iter(lambda: stream.read(300_000), b""))


def digest_of(url: str) -> str:
    with RemoteStream(url) as stream:
        return hashlib.sha256(read_all(stream)).hexdigest()


@pytest.fixture
def large(bucket: Bucket) -> str:
    """The URL of an object of 20 MiB."""
    return bucket.put("a.tfrecord", noise(20 * MIB))


@pytest.mark.parametrize("size", [0, 1, MIB // 4, 20 * MIB + 7])
def test_an_object_is_read_once(bucket: Bucket, size: int) -> None:
    data = noise(size)
    url = bucket.put("ein Bild é%20[1]+.tfrecord", data)
    with RemoteStream(url) as stream:
        assert stream.size == size
        assert read_all(stream) == data
    looks = [one for one in bucket.requests if one.startswith("HEAD")]
    assert len(looks) == 2 and len(bucket.requests) <= 2 + 7 + size // (8 * MIB)
    assert bucket.line.sent <= 1.01 * size + 5000


def test_parts_of_a_stream(bucket: Bucket, large: str) -> None:
    with RemoteStream(large, read_ahead=False) as stream:
        stream.read(12)
    assert len(bucket.requests) == 3
    assert bucket.line.sent < MIB
    with open_shard(large) as (stream, _):
        for place in (15 * MIB, 3, 19 * MIB):
            stream.seek(place)
            assert stream.tell() == place
            assert stream.read(12) == noise(20 * MIB)[place : place + 12]


def test_the_size_costs_few_bytes(bucket: Bucket, large: str) -> None:
    assert get_shard_size(large) == 20 * MIB
    assert bucket.line.sent < 2000


def test_cut_connections_are_opened_again(bucket: Bucket, large: str) -> None:
    with RemoteStream(large) as stream:
        bucket.line.cut_after += [3 * MIB, 200, 5 * MIB]
        assert read_all(stream) == noise(20 * MIB)
    assert bucket.line.cut_after == []


@pytest.mark.usefixtures("one_second")
def test_a_server_that_stops_answering_is_an_error(bucket: Bucket, large: str) -> None:
    error = r"the server sent no data for 1 s .*; try again later"
    with RemoteStream(large) as stream:
        stream.read(1)
        bucket.line.hold_after = bucket.line.sent
        with pytest.raises(RemoteError, match=error):
            read_all(stream)
        with pytest.raises(RemoteError, match=error):
            RemoteStream(large)


@pytest.mark.usefixtures("one_second")
def test_a_server_that_dies_is_an_error(bucket: Bucket) -> None:
    url = bucket.put("a.tfrecord", frame(*[bytes(100_000)] * 150))
    records = read_records(url)
    assert next(records).number == 0
    bucket.line.is_closed = True
    with pytest.raises(RemoteError, match=f"^{url}: .*; try again later"):
        list(records)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda bucket: bucket.put("a.tfrecord", noise(12 * MIB, 2)), "FileExpired: .* no longer"),
        (lambda bucket: bucket.remove("a.tfrecord"), "does not exist"),
    ],
)
def test_an_object_that_changes_meanwhile_is_an_error(
    bucket: Bucket, large: str, change: Callable[[Bucket], object], words: str
) -> None:
    with RemoteStream(large) as stream:
        stream.read(1)
        change(bucket)
        with pytest.raises(RemoteError, match=words):
            read_all(stream)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_too(bucket: Bucket, large: str, method: str) -> None:
    # The process that forks has used its event loop and its threads.
    expected = digest_of(large)
    context = multiprocessing.get_context(method)
    answers: Any = context.Queue()
    child = context.Process(target=_digest, args=(large, bucket.proxy.url, answers))
    child.start()
    try:
        assert answers.get(timeout=TIMEOUT) == expected
    finally:
        child.join(TIMEOUT)
        child.kill()


def _digest(url: str, endpoint: str, answers: Any) -> None:
    import fsspec

    fsspec.config.conf["s3"] = {"endpoint_url": endpoint}
    answers.put(digest_of(url))


_READER = """
import sys
from tfod.tfrecord.storage.remote import RemoteStream
with RemoteStream(sys.argv[1]) as stream:
    while stream.read(1 << 20):
        pass
"""
_CHECK = ("-m", "tfod.cli.main", "check", "--profile", "cvat", "--jobs", "2")


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        (("-c", _READER), signal.SIGINT, -signal.SIGINT),
        (_CHECK, signal.SIGTERM, 128 + signal.SIGTERM),
    ],
)
def test_signals_end_a_wait_for_a_silent_server(
    bucket: Bucket, command: Sequence[str], number: int, code: int
) -> None:
    # The shards are so large that several processes share the work of a check.
    record = encode(image("a.jpg") | {"image/encoded": bytes(100_000)})
    urls = [bucket.put(f"{one}.tfrecord", frame(*[record] * 350)) for one in range(2)]
    held = bucket.line.hold_after = (2 if command[0] == "-c" else 12) * MIB
    process = subprocess.Popen(
        [sys.executable, *command, *urls],
        env={**bucket.environment(), "TFOD_REMOTE_TIMEOUT": "600"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        wait_until(lambda: bucket.line.sent >= held)
        time.sleep(1.5)  # until all bytes that were sent are examined
        process.send_signal(number)
        assert process.wait(TIMEOUT) == code
    finally:
        process.kill()
        bucket.proxy.renew()


def test_other_stores_of_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    shard = frame(b"1", b"2")
    (tmp_path / "a.tfrecord").write_bytes(shard)
    for url in (f"file://{tmp_path}", f"simplecache::file://{tmp_path}"):
        with RemoteStream(f"{url}/a.tfrecord") as stream:
            assert read_all(stream) == shard
        with pytest.raises(RemoteError, match="is a folder"):
            RemoteStream(url)


# Web servers


@pytest.mark.parametrize(
    "behaviour",
    ["has_ranges says_length", "says_length", "has_ranges", "",
     "has_ranges says_length is_packed", "has_ranges is_packed"],
)  # fmt: skip
@pytest.mark.parametrize("size", [0, 5 * MIB + 1])
def test_an_object_is_one_answer(web: Served, behaviour: str, size: int) -> None:
    server, url = web
    for name in ("has_ranges", "says_length", "is_packed"):
        setattr(server, name, name in behaviour.split())
    data = noise(size)
    server.files["/a.tfrecord"] = data
    with RemoteStream(f"{url}/a.tfrecord") as stream:
        assert stream.size in (size, None)
        assert read_all(stream) == data
    assert server.requests[-1] == ("GET", "/a.tfrecord", "")


@pytest.mark.parametrize(
    "path",
    [
        "a.tfrecord?X-Amz-Signature=a%2Fb%3D&Expires=9/",
        "two%20words.tfrecord",
        "two words.tfrecord",
        "Käse-ящик-🐈.tfrecord",
        "100%25.tfrecord",
        "what%3F.tfrecord?a=b",
    ],
)
def test_addresses_reach_the_server_unchanged(web: Served, path: str) -> None:
    server, url = web
    plain = path.partition("?")[0].replace("%20", " ").replace("%25", "%").replace("%3F", "?")
    server.files[f"/{plain}"] = frame(b"1", b"2")
    (found,) = find_shards(f"{url}/{path}")
    assert found.subset == plain.removesuffix(".tfrecord")
    assert [bytes(one.payload) for one in read_records(found.paths[0])] == [b"1", b"2"]
    assert server.requests[-1][1].partition("?")[2] == path.partition("?")[2]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "does not exist; check the URL"),
        (403, "access is denied (403, "),
        (410, "does not exist"),
        (500, "cannot be reached: ClientResponseError: 500"),
    ],
)
def test_errors_of_the_server(web: Served, status: int, words: str) -> None:
    server, url = web
    server.files["/a.tfrecord"] = server.files["/d/a.tfrecord"] = b"1"
    server.status = status
    listed = ((list_remote, path) for path in ("d/", "d/*", "a.tfrecord"))
    for read, path in ((RemoteStream, "a.tfrecord"), *listed):
        with pytest.raises(RemoteError) as caught:
            read(f"{url}/{path}")
        assert str(caught.value).startswith(f"{url}/{path}: {words}")
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("one_second")
def test_a_server_that_never_answers_is_an_error(run: Run) -> None:
    with silent_server() as url:
        for path in ("a.tfrecord", "a.zip", "d/", "d/*"):
            refused = run("check", f"{url}/{path}").refused()
            assert refused.startswith(f"tfod: {url}/{path}: the server sent no data for 1 s (")


def test_pages_of_links_are_folders(web: Served) -> None:
    server, url = web
    shards = ("train-00000-of-00002.tfrecord", "valid/a%20b.tfrecord", ".hidden/c.tfrecord")
    files = (*shards, "notes.txt", "label_map.pbtxt")
    server.files = {f"/data/{name}": b"" for name in files}
    found = {one.subset: one for one in find_shards(f"{url}/data/")}
    assert set(found) == {"train", "valid"}
    (train,) = found["train"].paths
    assert train == f"{url}/data/train-00000-of-00002.tfrecord"
    assert found["train"].missing == ("train-00001-of-00002.tfrecord",)
    assert find_label_map(train) == (f"{url}/data/label_map.pbtxt", [])
    server.requests.clear()
    assert [one.paths for one in find_shards(f"{url}/data/tr*")] == [(train,)]
    assert len(server.requests) <= 3


def test_answers_that_do_not_end(web: Served) -> None:
    server, url = web
    server.files["/a.tfrecord"] = noise(4 * MIB)
    server.cut_after.append(2 * MIB)
    with pytest.raises(RemoteError, match=r"cannot be reached: ClientPayloadError: .*; try again"):
        digest_of(f"{url}/a.tfrecord")
    server.redirect = "/a.tfrecord"
    output = r"^http://127\S+/a.tfrecord: cannot be reached: TooManyRedirects: "
    for read in (RemoteStream, list_remote):
        with pytest.raises(RemoteError, match=output):
            read(f"{url}/a.tfrecord")
