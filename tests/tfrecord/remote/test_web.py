"""Reading from web servers: with ranges and without, sound and odd ones, and silent ones."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest
from tfod.detection.labels.search import find_label_map
from tfod.errors import ShardsNotFoundError
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.remote_errors import RemoteError
from tfod.tfrecord.storage.remote_files import list_remote
from tfod.tfrecord.storage.remote_stream import RemoteReadError, RemoteStream
from tfod.tfrecord.storage.remote_timeout import set_remote_timeout

from tests.records import frame
from tests.tfrecord.remote.servers import Proxy, Web, silent_server
from tests.tfrecord.remote.test_s3 import MIB, Ended, noise, read_all

Served = tuple[Web, str]


def digest_of(url: str) -> str:
    with RemoteStream(url, hashed=True) as stream:
        return stream.digest()


@pytest.mark.parametrize(
    "behaviour",
    [
        {},
        {"has_ranges": False},
        {"says_length": False},
        {"says_length": False, "has_ranges": False},
        {"is_packed": True},
        {"is_packed": True, "says_length": False},
    ],
)
@pytest.mark.parametrize("size", [0, 5 * MIB + 1])
def test_an_object_is_read_in_one_request(web: Served, behaviour: Any, size: int) -> None:
    server, url = web
    vars(server).update(behaviour)
    data = noise(size)
    server.files["/a.tfrecord"] = data
    with RemoteStream(f"{url}/a.tfrecord", hashed=True) as stream:
        assert stream.size in (size, None)
        assert (stream.size is None) == bool(set(behaviour) & {"says_length", "is_packed"})
        assert read_all(stream) == data
        assert stream.digest() == hashlib.sha256(data).hexdigest()
    assert server.requests == [("GET", "/a.tfrecord", "")]


@pytest.mark.parametrize("has_ranges", [True, False])
def test_an_answer_that_is_cut_is_taken_up_again(web: Served, has_ranges: bool) -> None:
    server, url = web
    server.has_ranges = has_ranges
    data = noise(16 * MIB)
    server.files["/a.tfrecord"] = data
    server.cut_after += [6 * MIB, 3 * MIB if has_ranges else 13 * MIB]
    assert digest_of(f"{url}/a.tfrecord") == hashlib.sha256(data).hexdigest()
    assert len(server.requests) == 3
    # What lies in the library's buffer is lost.
    assert (server.sent < len(data) + 2 * 2 * MIB) == has_ranges


def test_a_packed_answer_that_is_cut_is_asked_for_again(web: Served) -> None:
    """As a whole: ranges would be of the packed bytes, and sizes are theirs, too."""
    server, url = web
    server.is_packed = True
    data = noise(4 * MIB)
    server.files["/a.tfrecord"] = data
    server.cut_after.append(2 * MIB)
    assert digest_of(f"{url}/a.tfrecord") == hashlib.sha256(data).hexdigest()
    assert server.requests == [("GET", "/a.tfrecord", "")] * 2


def test_ranges_that_are_shorter_than_asked_for_are_put_together(web: Served) -> None:
    server, url = web
    data = noise(4 * MIB)
    server.files["/a.tfrecord"] = data
    server.cut_after.append(MIB)
    server.longest_range = 1_000_000
    assert digest_of(f"{url}/a.tfrecord") == hashlib.sha256(data).hexdigest()
    assert server.sent < len(data) + MIB
    assert len(server.requests) >= 4


def test_bytes_from_another_place_are_not_taken(web: Served) -> None:
    server, url = web
    server.files["/a.tfrecord"] = noise(2 * MIB)
    server.cut_after.append(MIB)
    server.is_shifted = True
    with RemoteStream(f"{url}/a.tfrecord", hashed=True) as stream:
        set_remote_timeout(1)
        with pytest.raises(RemoteReadError, match="another range than it was asked for"):
            stream.digest()


@pytest.mark.parametrize("change", ["etag", "size"])
def test_an_object_that_is_changed_between_two_answers_is_told(web: Served, change: str) -> None:
    server, url = web
    server.files["/a.tfrecord"] = noise(4 * MIB)
    server.cut_after.append(2 * MIB)
    with RemoteStream(f"{url}/a.tfrecord", hashed=True) as stream:
        stream.read(1)
        if change == "etag":
            server.etag = '"2"'
        else:
            server.files["/a.tfrecord"] += b"1"
        with pytest.raises(RemoteReadError, match="was changed while it was read"):
            stream.digest()


def test_parts_are_asked_for_where_the_server_has_ranges(web: Served) -> None:
    server, url = web
    data = noise(4 * MIB)
    server.files["/a.tfrecord"] = data
    for has_ranges in (True, False):
        server.has_ranges = has_ranges
        with RemoteStream(f"{url}/a.tfrecord") as stream:
            assert stream.seekable() == has_ranges
            stream.seek(3 * MIB)
            assert read_all(stream) == data[3 * MIB :]
    assert [one[2] for one in server.requests] == ["", f"bytes={3 * MIB}-", ""]


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
def test_addresses_reach_the_server_as_they_are(web: Served, path: str) -> None:
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
        (404, "is not there; see whether the address is right"),
        (403, "may not be read (403, "),
        (410, "cannot be reached: 410"),
        (500, "cannot be reached: 500"),
    ],
)
def test_a_refusal_is_one_line(web: Served, status: int, words: str) -> None:
    server, url = web
    server.files["/a.tfrecord"] = server.files["/d/a.tfrecord"] = b"1"
    server.status = status
    with pytest.raises(RemoteReadError) as caught:
        RemoteStream(f"{url}/a.tfrecord")
    assert str(caught.value).startswith(f"{url}/a.tfrecord: {words}")
    assert "\n" not in str(caught.value)
    assert len(server.requests) == (3 if status == 500 else 1)
    for listed in (f"{url}/d/", f"{url}/d/*", f"{url}/a.tfrecord"):
        with pytest.raises(RemoteError) as listing:
            list_remote(listed)
        gone = status == 410 and listed.endswith("/a.tfrecord")
        said = "is not there" if gone else words
        assert str(listing.value).startswith(f"{listed}: {said}")


def test_what_becomes_forbidden_is_told_at_once(web: Served) -> None:
    server, url = web
    server.files["/a.tfrecord"] = noise(4 * MIB)
    server.cut_after.append(2 * MIB)
    with RemoteStream(f"{url}/a.tfrecord", hashed=True) as stream:
        stream.read(1)
        server.status = 403  # as when a signature runs out
        with pytest.raises(RemoteReadError, match=r"may not be read any longer: \d+ of .*403"):
            stream.digest()


def test_a_server_that_never_answers_is_given_up(threads_end: Ended) -> None:
    set_remote_timeout(1)
    with silent_server() as url:
        with pytest.raises(RemoteReadError, match=f"^{url}/a.tfrecord: .*no answer came"):
            RemoteStream(f"{url}/a.tfrecord")
        for listed in ("d/", "d/*"):
            with pytest.raises(RemoteError, match="no answer came for"):
                list_remote(f"{url}/{listed}")
    threads_end()


def test_a_server_that_is_dead_is_not_waited_for_at_every_object(web: Served) -> None:
    server, url = web
    server.files["/a.tfrecord"] = b"1"
    proxy = Proxy(int(url.rpartition(":")[2]))
    address = f"{proxy.url}/a.tfrecord"
    proxy.line.hold_after = 0
    set_remote_timeout(1)
    silent = r"no answer came for 1 s, it was tried .*; try again"
    given_up = r"at 3 objects in a row, and the server was given up; try again"
    for _ in range(3):
        with pytest.raises(RemoteReadError, match=silent):
            RemoteStream(address)
    asked = len(proxy.line.requests)
    for _ in range(5):
        with pytest.raises(RemoteReadError, match=given_up):
            RemoteStream(address)
        with pytest.raises(RemoteError, match=given_up):
            list_remote(f"{proxy.url}/")
    assert len(proxy.line.requests) == asked
    proxy.renew()
    time.sleep(1)  # it is asked again, and answers
    with RemoteStream(address) as stream:
        assert stream.read(2) == b"1"
    proxy.line.hold_after = 0
    for _ in range(2):
        with pytest.raises(RemoteReadError, match=silent):
            RemoteStream(address)
    proxy.end()


def test_pages_of_links_are_folders(web: Served) -> None:
    server, url = web
    server.files = {
        "/data/train-00000-of-00002.tfrecord": b"",
        "/data/notes.txt": b"",
        "/data/label_map.pbtxt": b"",
        "/data/valid/a%20b.tfrecord": b"",
        "/data/.hidden/c.tfrecord": b"",
    }
    found = {one.subset: one for one in find_shards(f"{url}/data/")}
    assert set(found) == {"train", "valid"}
    (train,) = found["train"].paths
    assert train == f"{url}/data/train-00000-of-00002.tfrecord"
    assert found["train"].missing == ("train-00001-of-00002.tfrecord",)
    assert find_label_map(train) == (f"{url}/data/label_map.pbtxt", [])
    server.requests.clear()
    assert [one.paths for one in find_shards(f"{url}/data/tr*")] == [(train,)]
    assert len(server.requests) == 1
    with pytest.raises(ShardsNotFoundError, match=r"no file matches this pattern"):
        find_shards(f"{url}/data/absent-*")


def test_what_is_read_ahead_is_bounded(web: Served) -> None:
    server, url = web
    data = noise(48 * MIB)
    server.files["/a.tfrecord"] = data
    with RemoteStream(f"{url}/a.tfrecord") as stream:
        found = b""
        while len(found) < 9 * MIB:
            found += stream.read(9 * MIB - len(found))
        before, now = -1, server.sent
        while before != now:
            time.sleep(0.3)
            before, now = now, server.sent
        assert now < 44 * MIB  # some of it is in the system's buffers
        assert found + read_all(stream) == data


def test_bytes_that_come_again_are_no_progress(web: Served, threads_end: Ended) -> None:
    """A server without ranges whose answers break off would be asked for ever."""
    server, url = web
    server.has_ranges = False
    server.files["/a.tfrecord"] = noise(16 * MIB)
    server.cut_after += [6 * MIB] * 10_000
    set_remote_timeout(2)
    output = (
        r"no new byte came for 2 s: \d+ of 16777216 bytes came, what follows was tried \d+ times"
    )
    with pytest.raises(RemoteReadError, match=output):
        digest_of(f"{url}/a.tfrecord")
    threads_end()
    assert 2 < len(server.requests) < 100
    server.cut_after.clear()
    assert digest_of(f"{url}/a.tfrecord")  # the server is not one that is silent


@pytest.mark.parametrize("cut", [300_000, 70_000, 5000])
def test_answers_that_are_cut_early_are_asked_for_in_ranges(web: Served, cut: int) -> None:
    """The library drops what lies in its buffer when the connection breaks off."""
    server, url = web
    data = noise(300_000 + 10 * cut)
    server.files["/a.tfrecord"] = data
    server.cut_after += [cut] * 10_000
    assert digest_of(f"{url}/a.tfrecord") == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 10, MIB // 4, MIB])
@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_look_at_the_start_fetches_one_small_range(
    web: Served, size: int, has_ranges: bool
) -> None:
    server, url = web
    server.has_ranges = has_ranges
    data = noise(size)
    server.files["/a.tfrecord"] = data
    with RemoteStream(f"{url}/a.tfrecord", read_ahead=False) as stream:
        assert stream.read(10) == data[:10]
        assert not has_ranges or server.sent == min(size, MIB // 4)
        assert data[:10] + read_all(stream) == data


@pytest.mark.parametrize("change", ["nothing", "etag", "data"])
@pytest.mark.parametrize("size", [1000, 3 * MIB])
def test_what_a_look_has_fetched_is_not_fetched_again(web: Served, size: int, change: str) -> None:
    server, url = web
    data = server.files["/a.tfrecord"] = noise(size)
    with RemoteStream(f"{url}/a.tfrecord", read_ahead=False) as stream:
        start = stream.read(1)
    if change == "data":
        data = server.files["/a.tfrecord"] = noise(size + 1)
    if change == "etag":
        server.etag = '"2"'
    server.requests.clear()
    if size < MIB:  # all of it was fetched, a moment ago
        data = noise(size)
    assert start == data[:1]
    assert digest_of(f"{url}/a.tfrecord") == hashlib.sha256(data).hexdigest()
    first = [] if size < MIB else [f"bytes={MIB // 4}-"]
    assert [one[2] for one in server.requests] == first + [""] * (
        bool(first) and change != "nothing"
    )
    server.requests.clear()
    assert digest_of(f"{url}/a.tfrecord")
    assert [one[2] for one in server.requests] == [""]


def test_a_redirect_without_end_is_one_line(web: Served) -> None:
    server, url = web
    server.redirect = "/a.tfrecord"
    output = r"^http://127\S+/a.tfrecord: is redirected again and again; see whether the address is"
    with pytest.raises(RemoteReadError, match=output):
        RemoteStream(f"{url}/a.tfrecord")
    asked = len(server.requests)
    assert asked < 20  # it is not tried again
    with pytest.raises(RemoteError, match=output):
        list_remote(f"{url}/a.tfrecord")
