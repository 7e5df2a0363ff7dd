"""Reading from web servers: with ranges and without, sound and odd ones, and silent ones."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tfod.sources.reading import find_label_map
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.storage.remote import RemoteError, RemoteStream, list_remote

from tests.commands import Run
from tests.records import frame
from tests.tfrecord.remote.servers import Web, silent_server
from tests.tfrecord.remote.test_s3 import MIB, noise, read_all

Served = tuple[Web, str]


def digest_of(url: str) -> str:
    with RemoteStream(url) as stream:
        return hashlib.sha256(read_all(stream)).hexdigest()


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
def test_an_object_is_one_answer(web: Served, behaviour: Any, size: int) -> None:
    server, url = web
    vars(server).update(behaviour)
    data = noise(size)
    server.files["/a.tfrecord"] = data
    with RemoteStream(f"{url}/a.tfrecord") as stream:
        assert stream.size in (size, None)
        assert read_all(stream) == data
    assert server.requests[-1] == ("GET", "/a.tfrecord", "")


def test_an_answer_that_breaks_off_is_told(web: Served) -> None:
    server, url = web
    server.files["/a.tfrecord"] = noise(4 * MIB)
    server.cut_after.append(2 * MIB)
    with pytest.raises(RemoteError, match=r"cannot be reached: ClientPayloadError: .*; try again"):
        digest_of(f"{url}/a.tfrecord")


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
        (404, "does not exist; check the URL"),
        (403, "access is denied (403, "),
        (410, "does not exist"),
        (500, "cannot be reached: ClientResponseError: 500"),
    ],
)
def test_a_refusal_is_one_line(web: Served, status: int, words: str) -> None:
    server, url = web
    server.files["/a.tfrecord"] = server.files["/d/a.tfrecord"] = b"1"
    server.status = status
    with pytest.raises(RemoteError) as caught:
        RemoteStream(f"{url}/a.tfrecord")
    assert str(caught.value).startswith(f"{url}/a.tfrecord: {words}")
    assert "\n" not in str(caught.value)
    for listed in (f"{url}/d/", f"{url}/d/*", f"{url}/a.tfrecord"):
        with pytest.raises(RemoteError) as listing:
            list_remote(listed)
        assert str(listing.value).startswith(f"{listed}: {words}")


@pytest.mark.usefixtures("one_second")
def test_a_server_that_never_answers_is_given_up(run: Run) -> None:
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


def test_a_redirect_without_end_is_one_line(web: Served) -> None:
    server, url = web
    server.redirect = "/a.tfrecord"
    output = r"^http://127\S+/a.tfrecord: cannot be reached: TooManyRedirects: "
    with pytest.raises(RemoteError, match=output):
        RemoteStream(f"{url}/a.tfrecord")
    with pytest.raises(RemoteError, match=output):
        list_remote(f"{url}/a.tfrecord")
