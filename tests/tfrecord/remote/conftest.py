"""A bucket on a real S3 server, and a proxy to it that tests watch and cut."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.commands import require
from tests.tfrecord.remote.servers import Line, Proxy, Web, web_server

_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
PAGE_LENGTH = 20
"""Names per answer of the S3 server; usually 1000."""


@dataclass
class Bucket:
    """The bucket of a test.

    Attributes:
        proxy: the proxy between this process and the server.
        name: name of the bucket.
        store: the server, without the proxy.
    """

    proxy: Proxy
    name: str
    store: Any

    @property
    def line(self) -> Line:
        return self.proxy.line

    @property
    def requests(self) -> list[str]:
        """First lines of requests for this bucket, since threads of earlier tests may still run."""
        return [one for one in self.line.requests if f"/{self.name}" in one]

    def url(self, key: str = "") -> str:
        return f"s3://{self.name}/{key}" if key else f"s3://{self.name}"

    def put(self, key: str, data: bytes) -> str:
        """Store an object, and return its URL."""
        self.store.pipe_file(f"{self.name}/{key}", data)
        return self.url(key)

    def put_folder(self, folder: Path) -> str:
        """Store the files of a folder, reset the counts, and return the URL."""
        for path in sorted(folder.iterdir()):
            self.put(f"data/{path.name}", path.read_bytes())
        self.forget()
        return self.url("data")

    def remove(self, key: str) -> None:
        self.store.rm_file(f"{self.name}/{key}")

    def forget(self) -> None:
        """Reset the counts."""
        self.line.requests.clear()
        self.line.sent = 0

    def environment(self) -> dict[str, str]:
        """The environment of a process that reads this bucket through the proxy."""
        return {**os.environ, **_SETTINGS, "AWS_ENDPOINT_URL": self.proxy.url}


@pytest.fixture(scope="session")
def s3() -> Iterator[tuple[str, Proxy]]:
    """The address of moto's S3 server, and a proxy to it.

    All tests share them, since s3fs takes a quarter of a second for a new address.
    """
    for package in ("moto", "flask", "s3fs", "flask_cors"):
        require(package, find_spec(package) is not None)
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(PAGE_LENGTH))
        server.start()
        port = server.get_host_and_port()[1]
        proxy = Proxy(port)
        yield f"http://127.0.0.1:{port}", proxy
        proxy.end()
        server.stop()


@pytest.fixture
def bucket(s3: tuple[str, Proxy], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket, which this process reads through the proxy."""
    import fsspec

    address, proxy = s3
    proxy.renew()
    for name, value in (_SETTINGS).items():
        monkeypatch.setenv(name, value)
    store = fsspec.filesystem("s3", endpoint_url=address)
    name = f"bucket-{time.monotonic_ns()}"
    store.mkdir(name)
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": proxy.url})
    return Bucket(proxy, name, store)


@pytest.fixture
def web() -> Iterator[tuple[Web, str]]:
    """A web server, which a test may change, and its address."""
    require("aiohttp", find_spec("aiohttp") is not None)
    behaviour = Web()
    with web_server(behaviour) as url:
        yield behaviour, url


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the time without an answer."""
    monkeypatch.setenv("TFOD_REMOTE_TIMEOUT", "1")
