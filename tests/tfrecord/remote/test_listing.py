"""URLs of files, folders and patterns, in a bucket and on a web server."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tfod.detection.labels.label_map import load_label_map
from tfod.errors import LabelMapError, ShardError, ShardsNotFoundError, TfodError
from tfod.sources.label_map_search import find_labels
from tfod.sources.reading import find_label_map
from tfod.tfrecord.record_index import RecordIndex
from tfod.tfrecord.shard_sets.search import find_remote_shards, find_shards
from tfod.tfrecord.storage.remote import list_remote, list_remote_folder
from tfod.tfrecord.storage.urls import get_folder, get_name, is_pattern, is_url, to_absolute

from tests.commands import require, run_python
from tests.tfrecord.remote.conftest import PAGE_LENGTH, Bucket
from tests.tfrecord.remote.servers import Web


@pytest.mark.parametrize(
    ("path", "name", "folder"),
    [
        ("s3://b/d/a?b.tfrecord", "a?b.tfrecord", "s3://b/d"), ("s3://b/a", "a", "s3://b"),
        ("https://h:1/d/a%20b.record?x=/y", "a b.record", "https://h:1/d"),
        ("https://h/d/a%2Fb", "a%2Fb", "https://h/d"), ("s3://b", "b", "s3://b"),
        ("memory://a/b", "b", "memory://a"), ("/d/a", "a", "/d"),
    ],
)  # fmt: skip
def test_parts_of_urls(path: str, name: str, folder: str) -> None:
    assert (get_name(path), get_folder(path)) == (name, folder)


def test_urls_and_patterns() -> None:
    assert [is_url(path) for path in ("s3://b/a", "/a:/b", r"C:\a")] == [True, False, False]
    patterns = ("s3://b/a?", "https://h/a*?b=c", "https://h/[ab].record", "http://[::1]/*.record")
    assert all(map(is_pattern, patterns))
    assert not any(map(is_pattern, ("https://h/a?b=*", "http://[::1]:8000/a.record")))
    assert to_absolute("s3://b/d/") == "s3://b/d"


def test_a_folder_is_listed_three_levels_deep_without_hidden_names(bucket: Bucket) -> None:
    keys = ["d/a", "d/1/a", "d/1/2/a", "d/1/2/3/a"]
    for key in (*keys, "d/1/2/3/4/a", "d/.a", "d/.h/a", "d/__MACOSX/a", "e/a", "da"):
        bucket.put(key, b"12")
    bucket.put("d/", b"")  # some tools make folders so
    found = list_remote(bucket.url("d"))
    assert list(found) == sorted(map(bucket.url, keys))
    assert set(found.values()) == {2}
    assert list_remote(bucket.url("d/")) == found
    assert list_remote_folder(bucket.url()) == [bucket.url("da")]


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("*/a*", ["1/a", "1/ab", "2/a"]), ("**/a", ["1/2/a", "1/a", "2/a", "a"]),
        ("1/**", ["1/2/a", "1/a", "1/ab", "1/é ü"]), ("?/a", ["1/a", "2/a"]), ("[!1]/a", ["2/a"]),
        ("1/é*", ["1/é ü"]), ("*", ["[x]y", "a"]), (".*", [".a"]), ("[[]x]*", ["[x]y"]),
    ],
)  # fmt: skip
def test_wildcards_mean_what_they_mean_on_a_disk(
    bucket: Bucket, pattern: str, keys: list[str]
) -> None:
    for key in ("a", ".a", "1/a", "1/ab", "1/2/a", "1/é ü", "2/a", "[x]y"):
        bucket.put(key, b"")
    assert list(list_remote(bucket.url(pattern))) == sorted(map(bucket.url, keys))


def test_changes_and_several_pages(bucket: Bucket) -> None:
    bucket.put("d/a", b"")
    for pattern in ("d", "d/*"):
        assert len(list_remote(bucket.url(pattern))) == 1
        bucket.put("d/b", b"")
        assert len(list_remote(bucket.url(pattern))) == 2
        bucket.remove("d/b")
    count = 2 * PAGE_LENGTH + 1
    bucket.store.pipe({f"{bucket.name}/e/{number:05d}": b"" for number in range(count)})
    bucket.forget()
    assert len(list_remote(bucket.url("e/*"))) == count
    assert len(bucket.requests) == 3


def test_shards_of_a_bucket_are_grouped_as_on_a_disk(bucket: Bucket) -> None:
    names = [f"train-0000{number}-of-00003.tfrecord" for number in (0, 2)]
    others = ("valid/x.record", "notes.tfrecord.txt", "events.out.tfevents.1.tfrecord")
    urls = [bucket.put(f"data/{name}", b"") for name in (*names, *others)]
    bucket.forget()
    train, valid = find_shards(bucket.url("data"))
    assert (train.subset, valid.subset) == ("train", "valid")
    assert list(train.paths) == urls[:2]
    assert train.missing == ("train-00001-of-00003.tfrecord",)
    assert [one.split()[0] for one in bucket.requests] == ["HEAD", "GET", "GET", "GET"]
    bucket.forget()
    assert find_shards(bucket.url("data/train-*")) == [train]
    assert len(bucket.requests) == 1
    files = find_remote_shards(bucket.url("data/t*")).files
    assert files == dict.fromkeys(train.paths, 0)
    # The splits of an export of Roboflow.
    for key in ("r/README.roboflow.txt", "r/one/a.tfrecord", "r/two/a.tfrecord"):
        bucket.put(key, b"")
    assert [one.subset for one in find_shards(bucket.url("r"))] == ["one", "two"]


def test_label_maps_next_to_shards_and_above(bucket: Bucket, web: tuple[Web, str]) -> None:
    shard = bucket.put("train/a.tfrecord", b"")
    assert find_label_map(shard) == (None, [])
    above = bucket.put("label_map.pbtxt", b"item { id: 1 name: 'cat' }")
    assert find_label_map(shard) == (above, [])
    near = bucket.put("train/x.pbtxt", b"")
    assert find_label_map(shard) == (near, [])
    other = bucket.put("train/y.pbtxt", b"")
    assert find_label_map(shard) == (None, [near, other])
    assert load_label_map(above)[0].find_id(1) is not None
    with pytest.raises(LabelMapError, match=r"absent.pbtxt cannot be read: does not exist"):
        load_label_map(bucket.url("absent.pbtxt"))
    # A folder that cannot be listed has no label map.
    server, url = web
    server.status = 500
    assert find_label_map(f"{url}/d/a.record") == (None, [])
    assert find_labels(get_folder(f"{url}/d/a.record")) is None


def test_zips_in_a_folder(bucket: Bucket) -> None:
    zipped = bucket.put("d/a.zip", b"")
    bucket.put("d/below/b.zip", b"")
    assert find_remote_shards(bucket.url("d")).zips == [zipped]
    with pytest.raises(ShardsNotFoundError, match="remote zip cannot be read individually"):
        find_shards(zipped)
    bucket.put("d/a.tfrecord", b"")
    assert find_remote_shards(bucket.url("d")).zips == []
    assert find_remote_shards(bucket.url("d/a*")).zips == [zipped]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{bucket}/absent", "does not exist; check the URL"),
        ("{bucket}/absent/a.tfrecord", "does not exist"),
        ("s3://no-such-bucket-here/a*", "bucket does not exist"),
        ("s3://no-such-bucket-here/a", "does not exist"),
        ("nothing://a/b", "nothing:// is not a URL scheme that fsspec supports"),
        ("s3://", "has no bucket or host; write for example s3://bucket/folder"),
        ("{bucket}/a.tfrecord/", "is a file; remove the slash at the end"),
    ],
)
def test_absent_files_and_wrong_urls(bucket: Bucket, path: str, words: str) -> None:
    bucket.put("a.tfrecord", b"")
    url = path.format(bucket=bucket.url())
    with pytest.raises(TfodError, match=f"^.*{words}") as caught:
        find_remote_shards(url)
    assert str(caught.value).startswith(f"{url}: ") and "\n" not in str(caught.value)


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "s3fs.py").write_text("raise ImportError('no such package')")
    code = "from tfod.tfrecord.shard_sets.search import find_shards\nfind_shards('s3://b/a*')"
    output = run_python("-c", code, PYTHONPATH=str(tmp_path)).err.splitlines()[-1]
    assert "s3://b/a*: needs a package (" in output and "pip install '.[remote]'" in output


def test_folders_and_patterns_without_shards(bucket: Bucket, web: tuple[Web, str]) -> None:
    bucket.put("d/notes.txt", b"")
    with pytest.raises(ShardsNotFoundError, match="no shard in this folder"):
        find_shards(bucket.url("d"))
    server, url = web
    server.files["/d/i[1].record"] = b""
    with pytest.raises(ShardsNotFoundError, match=r"write \[\[\] for a bracket"):
        find_shards(f"{url}/d/i[1].record")
    assert find_shards(f"{url}/d/i[[]1].record")[0].paths == (f"{url}/d/i[1].record",)
    with pytest.raises(ShardsNotFoundError, match="cannot be listed with a query string"):
        find_shards(f"{url}/d/*.record?signature=1")


def test_callers_that_read_no_urls() -> None:
    url = "s3://b/a.tfrecord"
    with pytest.raises(ShardError, match=f"^{url}: is remote.*download the shard first"):
        RecordIndex(url)
    require("datumaro", find_spec("datumaro") is not None)
    from tfod.datumaro.importer import TfDetectionApiImporter

    assert TfDetectionApiImporter.find_sources(url) == []
    with pytest.raises(Exception, match=f"^{url}: Datumaro can only read local files"):
        TfDetectionApiImporter()(url)
