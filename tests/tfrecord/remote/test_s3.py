"""Reading objects of a bucket: their bytes, what that costs, and what goes wrong on the way."""

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
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.storage.open import get_shard_size, open_shard
from tfod.tfrecord.storage.remote import RemoteError, RemoteStream

from tests.commands import TIMEOUT, wait_until
from tests.records import encode, frame, image
from tests.tfrecord.remote.conftest import Bucket

MIB = 1 << 20


@functools.cache
def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def read_all(stream: Any) -> bytes:
    return b"".join(iter(lambda: stream.read(300_000), b""))


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


def test_a_look_at_the_start_costs_one_small_piece(bucket: Bucket) -> None:
    url = bucket.put("a.tfrecord", noise(20 * MIB))
    with RemoteStream(url, read_ahead=False) as stream:
        stream.read(12)
    assert len(bucket.requests) == 3
    assert bucket.line.sent < MIB
    bucket.forget()
    assert get_shard_size(url) == 20 * MIB
    assert bucket.line.sent < 2000


def test_a_stream_goes_on_at_any_byte(bucket: Bucket) -> None:
    shard = noise(20 * MIB)
    url = bucket.put("a.tfrecord", shard)
    with open_shard(url) as (stream, _):
        for place in (15 * MIB, 3, 19 * MIB):
            stream.seek(place)
            assert stream.tell() == place
            assert stream.read(12) == shard[place : place + 12]


def test_a_connection_that_is_cut_again_and_again_is_taken_up_again(bucket: Bucket) -> None:
    data = noise(20 * MIB)
    url = bucket.put("a.tfrecord", data)
    with RemoteStream(url) as stream:
        bucket.line.cut_after += [3 * MIB, 200, 5 * MIB]
        assert read_all(stream) == data
    assert bucket.line.cut_after == []


@pytest.mark.usefixtures("one_second")
def test_a_server_that_stops_answering_is_given_up(bucket: Bucket) -> None:
    url = bucket.put("a.tfrecord", noise(12 * MIB))
    with RemoteStream(url) as stream:
        stream.read(1)
        bucket.line.hold_after = bucket.line.sent
        with pytest.raises(
            RemoteError, match=r"the server sent no data for 1 s .*; try again later"
        ):
            read_all(stream)
        with pytest.raises(
            RemoteError, match=r"the server sent no data for 1 s .*; try again later"
        ):
            RemoteStream(url)


@pytest.mark.usefixtures("one_second")
def test_a_server_that_dies_is_told(bucket: Bucket) -> None:
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
def test_an_object_that_is_another_one_meanwhile_is_told(
    bucket: Bucket, change: Callable[[Bucket], object], words: str
) -> None:
    with RemoteStream(bucket.put("a.tfrecord", noise(12 * MIB))) as stream:
        stream.read(1)
        change(bucket)
        with pytest.raises(RemoteError, match=words):
            read_all(stream)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_too(bucket: Bucket, method: str) -> None:
    data = noise(3 * MIB)
    url = bucket.put("a.tfrecord", data)
    with RemoteStream(url) as stream:  # the process that forks has used its loop and its threads
        assert len(read_all(stream)) == len(data)
    context = multiprocessing.get_context(method)
    answers: Any = context.Queue()
    child = context.Process(target=_digest, args=(url, bucket.proxy.url, answers))
    child.start()
    try:
        assert answers.get(timeout=TIMEOUT) == hashlib.sha256(data).hexdigest()
    finally:
        child.join(TIMEOUT)
        child.kill()


def _digest(url: str, endpoint: str, answers: Any) -> None:
    import fsspec

    fsspec.config.conf["s3"] = {"endpoint_url": endpoint}
    with RemoteStream(url) as stream:
        answers.put(hashlib.sha256(read_all(stream)).hexdigest())


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
def test_who_waits_for_a_silent_server_hears_signals(
    bucket: Bucket, command: Sequence[str], number: int, code: int
) -> None:
    # So large in all that several processes share the work of a check.
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
        time.sleep(1.5)  # until all that came is examined
        process.send_signal(number)
        assert process.wait(TIMEOUT) == code
    finally:
        process.kill()
        bucket.proxy.renew()


def test_any_kind_of_store_that_fsspec_knows(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    shard = frame(b"1", b"2")
    (tmp_path / "a.tfrecord").write_bytes(shard)
    for url in (f"file://{tmp_path}", f"simplecache::file://{tmp_path}"):
        with RemoteStream(f"{url}/a.tfrecord") as stream:
            assert read_all(stream) == shard
        with pytest.raises(RemoteError, match="is a folder"):
            RemoteStream(url)
