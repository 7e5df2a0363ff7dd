"""A bucket on a real S3 server, behind a line that tests watch and cut."""

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

_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
_REGION = {"AWS_DEFAULT_REGION": "us-east-1"}
NAMES_OF_A_PAGE = 20
"""So many names the S3 server says at once here; others say 1000."""


@dataclass
class Bucket:
    """A bucket of this test alone.

    Attributes:
        proxy: what stands between this process and the server.
        name: its name.
        store: the server, past the line.
    """

    proxy: Proxy
    name: str
    store: Any

    @property
    def line(self) -> Line:
        return self.proxy.line

    @property
    def requests(self) -> list[str]:
        """First lines of requests for it; a thread of an earlier test may still ask for another."""
        return [one for one in self.line.requests if f"/{self.name}" in one]

    def url(self, key: str = "") -> str:
        return f"s3://{self.name}/{key}" if key else f"s3://{self.name}"

    def put(self, key: str, data: bytes) -> str:
        """Store an object, past the line; gives its URL."""
        self.store.pipe_file(f"{self.name}/{key}", data)
        return self.url(key)

    def put_files(self, folder: str, *paths: str) -> list[str]:
        """Store files under their names; gives their URLs."""
        return [self.put(f"{folder}/{Path(one).name}", Path(one).read_bytes()) for one in paths]

    def remove(self, key: str) -> None:
        self.store.rm_file(f"{self.name}/{key}")

    def forget(self) -> None:
        """Count from now on."""
        self.line.requests.clear()
        self.line.sent = 0

    def environment(self) -> dict[str, str]:
        """For a process that is to see this bucket through the line."""
        return {**os.environ, **_KEYS, **_REGION, "AWS_ENDPOINT_URL": self.proxy.url}


def _is_installed(module: str) -> bool:
    package = module.partition(".")[0]
    return find_spec(package) is not None and find_spec(module) is not None


@pytest.fixture(scope="session")
def s3() -> Iterator[tuple[str, Proxy]]:
    """The address of moto's S3 server, and a line to it.

    One for all tests: s3fs takes a quarter of a second for an address that it sees first.
    """
    for package in ("moto.server", "s3fs", "flask_cors"):
        require(package, _is_installed(package))
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(NAMES_OF_A_PAGE))
        server.start()
        port = server.get_host_and_port()[1]
        proxy = Proxy(port)
        yield f"http://127.0.0.1:{port}", proxy
        proxy.end()
        server.stop()


@pytest.fixture
def bucket(s3: tuple[str, Proxy], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket; this process sees it through the line."""
    import fsspec

    address, proxy = s3
    proxy.renew()
    for name, value in (_KEYS | _REGION).items():
        monkeypatch.setenv(name, value)
    store = fsspec.filesystem("s3", endpoint_url=address)
    name = f"bucket-{time.monotonic_ns()}"
    store.mkdir(name)
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": proxy.url})
    return Bucket(proxy, name, store)


@pytest.fixture
def web() -> Iterator[tuple[Web, str]]:
    """A web server, which a test may change as it runs, and its address."""
    require("aiohttp", find_spec("aiohttp") is not None)
    behaviour = Web()
    with web_server(behaviour) as url:
        yield behaviour, url


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers may be silent for so long."""
    monkeypatch.setenv("TFOD_REMOTE_TIMEOUT", "1")
