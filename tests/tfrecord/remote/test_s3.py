"""Reading objects of a bucket: their bytes, what that costs, and what goes wrong on the way."""

from __future__ import annotations

import functools
import gc
import hashlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.storage.open import open_shard, shard_size
from tfod.tfrecord.storage.remote_files import list_remote
from tfod.tfrecord.storage.remote_stream import RemoteReadError, RemoteStream
from tfod.tfrecord.storage.remote_timeout import set_remote_timeout

from tests.commands import TIMEOUT
from tests.records import encode, frame, image
from tests.tfrecord.remote.conftest import Bucket, bucket_on
from tests.tfrecord.remote.servers import NAMES_OF_A_PAGE, Proxy, Web, s3_server

MIB = 1 << 20
Ended = Callable[[], None]


@functools.cache
def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def read_all(stream: Any) -> bytes:
    return b"".join(iter(lambda: stream.read(300_000), b""))


@pytest.mark.parametrize("size", [0, 1, MIB // 4, 20 * MIB + 7])
def test_an_object_is_read_once_and_hashed(bucket: Bucket, size: int) -> None:
    data = noise(size)
    url = bucket.put("ein Bild é%20[1]+.tfrecord", data)
    with RemoteStream(url, hashed=True) as stream:
        assert stream.size == size
        assert read_all(stream) == data
        assert stream.digest() == hashlib.sha256(data).hexdigest()
    looks = [one for one in bucket.requests if one.startswith("HEAD")]
    assert len(looks) == 1 and len(bucket.requests) <= 1 + 7 + size // (8 * MIB)
    # Its first piece may be asked for twice: on a busy machine an answer comes when the reader has
    # given it up already, and the line counts what it sent, not what was taken.
    assert bucket.line.sent <= 1.01 * size + 2000 + MIB // 4


def test_the_digest_is_of_the_whole_object_however_much_was_read(bucket: Bucket) -> None:
    data = noise(3 * MIB)
    with RemoteStream(bucket.put("a.tfrecord", data), hashed=True) as stream:
        assert stream.read(100) == data[:100]
        assert stream.digest() == hashlib.sha256(data).hexdigest()
        assert stream.read(1) == b""
    with RemoteStream(bucket.url("a.tfrecord"), hashed=True) as stream:
        stream.seek(1)
        with pytest.raises(ValueError, match="from its start"):
            stream.digest()


def test_a_look_at_the_start_costs_one_small_piece(bucket: Bucket) -> None:
    url = bucket.put("a.tfrecord", noise(20 * MIB))
    with RemoteStream(url) as stream:
        stream.read(12)
        time.sleep(0.3)  # for what should not happen
    assert len(bucket.requests) == 2
    assert bucket.line.sent < MIB  # a small piece, which a busy machine may fetch twice
    bucket.forget()
    assert shard_size(url) == 20 * MIB
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
    bucket.line.cut_after += [100_000, 3 * MIB, 200, 5 * MIB, 10, MIB]
    with RemoteStream(url, hashed=True) as stream:
        assert read_all(stream) == data
        assert stream.digest() == hashlib.sha256(data).hexdigest()
    assert bucket.line.cut_after == []


def test_a_server_that_is_away_for_a_while_is_waited_for(bucket: Bucket) -> None:
    data = noise(12 * MIB)
    url = bucket.put("a.tfrecord", data)
    line = bucket.line
    with RemoteStream(url) as stream:
        found = stream.read(MIB // 4)
        line.is_closed = True
        threading.Timer(0.5, lambda: setattr(line, "is_closed", False)).start()
        assert found + read_all(stream) == data
    assert line.refused


def test_a_frozen_server_is_given_up_and_its_threads_end_when_it_wakes(
    bucket: Bucket, threads_end: Ended
) -> None:
    url = bucket.put("a.tfrecord", noise(12 * MIB))
    with RemoteStream(url) as stream:
        stream.read(1)
        bucket.server.freeze()
        set_remote_timeout(1)
        try:
            with pytest.raises(RemoteReadError, match="no byte came"):
                read_all(stream)
            with pytest.raises(RemoteReadError, match="no answer came"):
                RemoteStream(url)
        finally:
            bucket.server.thaw()
    threads_end()


@pytest.mark.usefixtures("s3_process")  # which looks whether there is one
def test_a_server_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as server:
        bucket = bucket_on(server, Proxy(server.port), monkeypatch)
        url = bucket.put("a.tfrecord", frame(*[bytes(100_000)] * 150))
        records = read_records(url)
        assert next(records).number == 0
        set_remote_timeout(1)
        server.end()
        with pytest.raises(RemoteReadError) as caught:
            list(records)
        assert f"{url}: no byte came for 1 s: " in str(caught.value)
        bucket.proxy.end()


def test_a_connection_that_says_no_more_is_replaced(bucket: Bucket) -> None:
    data = noise(6 * MIB)
    url = bucket.put("a.tfrecord", data)
    bucket.line.hold_once_after = 3 * MIB
    set_remote_timeout(3)
    with RemoteStream(url) as stream:
        assert read_all(stream) == data
    assert bucket.line.hold_once_after is None


def test_a_slow_line_is_not_a_silent_one(bucket: Bucket) -> None:
    data = noise(6 * MIB)
    url = bucket.put("a.tfrecord", data)
    with RemoteStream(url) as stream:
        start = b""
        while len(start) < 3 * MIB:
            start += stream.read(MIB)
        bucket.line.delay = 0.05  # a piece takes longer than the timeout
        set_remote_timeout(1)
        assert start + read_all(stream) == data


def test_an_object_that_is_changed_meanwhile_is_told(bucket: Bucket) -> None:
    data = noise(12 * MIB)
    url = bucket.put("a.tfrecord", data)
    with RemoteStream(url, hashed=True) as stream:
        stream.read(1)
        bucket.put("a.tfrecord", noise(12 * MIB, 2))
        with pytest.raises(RemoteReadError, match=r"was changed while it was read: .*; try again"):
            stream.digest()


def test_an_object_that_is_removed_meanwhile_is_told(bucket: Bucket) -> None:
    url = bucket.put("a.tfrecord", noise(12 * MIB))
    with RemoteStream(url, hashed=True) as stream:
        stream.read(1)
        bucket.remove("a.tfrecord")
        words = r"was removed while it was read, or .* came, what follows was tried once"
        with pytest.raises(RemoteReadError, match=words):
            stream.digest()


def test_what_nobody_reads_any_more_is_given_up(bucket: Bucket, threads_end: Ended) -> None:
    url = bucket.put("a.tfrecord", noise(12 * MIB))
    closed, dropped = RemoteStream(url), RemoteStream(url)
    closed.read(1), closed.read(MIB)
    closed.close()
    dropped.read(1)
    del dropped
    gc.collect()
    next(read_records(bucket.put("b.tfrecord", frame(b"1", b"2"))))
    threads_end()
    with pytest.raises(ValueError, match="closed"):
        closed.read(1)


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
    with RemoteStream(url, hashed=True) as stream:
        answers.put(stream.digest())


_READER = """
import sys
from tfod.tfrecord.storage.remote_files import list_remote
from tfod.tfrecord.storage.remote_timeout import set_remote_timeout
from tfod.tfrecord.storage.remote_stream import RemoteStream
set_remote_timeout(float(sys.argv[2]))
with RemoteStream(sys.argv[1]) as stream:
    print("open", flush=True)
    try:
        while stream.read(1 << 20):
            pass
    except OSError as error:
        print(error)
"""


@pytest.fixture
def stuck(bucket: Bucket) -> Iterator[Any]:
    """Starts processes that read from a server that says no more."""
    url = bucket.put("a.tfrecord", noise(12 * MIB))
    bucket.line.hold_after = 2 * MIB
    started = []

    def start(timeout: float) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _READER, url, str(timeout)],
            env=bucket.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n", process.communicate()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_process_ends_though_a_thread_is_stuck(stuck: Any) -> None:
    out, errors = stuck(15.0).communicate(timeout=TIMEOUT)  # the first answer has to come in time
    assert "no byte came for 15 s" in out and errors == ""


def test_ctrl_c_is_heard_while_a_server_is_silent(bucket: Bucket, stuck: Any) -> None:
    process = stuck(600)
    end = time.monotonic() + TIMEOUT
    while bucket.line.sent < 2 * MIB:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_check_by_several_ends_while_a_server_is_silent(bucket: Bucket) -> None:
    # So large in all that several processes share the work.
    record = encode(image("a.jpg") | {"image/encoded": bytes(100_000)})
    urls = [bucket.put(f"{one}.tfrecord", frame(*[record] * 350)) for one in range(2)]
    bucket.line.hold_after = 12 * MIB
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tfod.cli.main", "check", *urls),
            *("--profile", "cvat", "--jobs", "2"),
        ],
        env={**bucket.environment(), "TFOD_REMOTE_TIMEOUT": "600"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        end = time.monotonic() + TIMEOUT
        while bucket.line.sent < 12 * MIB:
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1.5)  # until all that came is examined
        process.terminate()
        process.communicate(timeout=TIMEOUT)
        assert process.returncode == 128 + signal.SIGTERM
    finally:
        process.kill()
        bucket.proxy.renew()


def test_a_store_that_ignores_ranges_is_not_believed(
    web: tuple[Web, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    server, url = web
    server.has_ranges = False
    server.files["/bucket/a.tfrecord"] = noise(MIB)
    monkeypatch.setitem(
        fsspec.config.conf, "s3", {"endpoint_url": url, "key": "key", "secret": "secret"}
    )
    with RemoteStream("s3://bucket/a.tfrecord") as stream:
        set_remote_timeout(1)
        with pytest.raises(RemoteReadError, match="sent more than the range it was asked for"):
            stream.read(1)


def test_a_store_without_conditions_is_looked_at_again_at_the_end() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    data = noise(3 * MIB)
    memory.pipe_file("/store/a", data)
    with RemoteStream("memory://store/a", hashed=True) as stream:
        assert stream.digest() == hashlib.sha256(data).hexdigest()
    with RemoteStream("memory://store/a", hashed=True) as stream:
        stream.read(1)
        memory.pipe_file("/store/a", noise(3 * MIB, 2))
        with pytest.raises(RemoteReadError, match="was changed while it was read"):
            stream.digest()
    memory.rm("/store", recursive=True)


def test_a_listing_lasts_as_long_as_answers_come(bucket: Bucket) -> None:
    for number in range(9 * NAMES_OF_A_PAGE):
        bucket.put(f"d/{number}.record", b"")
    bucket.line.delay = 0.5  # of each of nine answers, which together take longer than one may
    set_remote_timeout(3)
    assert len(list_remote(bucket.url("d"))) == 9 * NAMES_OF_A_PAGE
