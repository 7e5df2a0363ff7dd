"""Measure the service under load, and a plain Flask app that echoes the same body.

    python benchmarks/service.py [--seconds 10] [--clients 50]

Both run on waitress on this machine, one after the other, with the same number of threads; ``wrk``
(a Debian package) sends the requests. The service stores, queues and checks each upload. Finally,
the time until the queue is empty is printed.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfod.example.example import bytes_feature, encode_example, float_feature, int64_feature
from tfod.tfrecord.writer import write_records

_BOUNDARY = "tfod-benchmark"
_THREADS = 64
_POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "multipart/form-data; boundary={boundary}"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
done = function(summary, latency)
  io.write(string.format("RESULT %d %d %d %.0f %.0f %d\\n", summary.requests, summary.duration,
    summary.errors.status, latency:percentile(50), latency:percentile(99),
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
"""


def main() -> int:
    options = _parse_arguments()
    if shutil.which("wrk") is None:
        print("wrk is not installed; apt-get install wrk", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="tfod-benchmark-") as name:
        folder = Path(name)
        body = folder / "body"
        body.write_bytes(_form(folder))
        print(f"{options.clients} clients, {body.stat().st_size:,} bytes per request", flush=True)
        script = _script(folder, body)
        with _echo() as url:
            echo = _load(url, script, options)
        _print_load("plain Flask echo, POST", echo)
        with _service(folder) as url:
            _measure_service(url, folder / "data", script, options, echo[0])
    return 0


def _measure_service(
    url: str, data: Path, script: Path, options: argparse.Namespace, echo: float
) -> None:
    uploads = _load(f"{url}/api/v1/validations", script, options)
    _print_load("service, POST", uploads, f"{uploads[0] / echo:.2f} of the echo")
    start = time.monotonic()
    while waiting := len(list(data.joinpath("waiting").iterdir())):
        time.sleep(0.2)
    checked = len(list(data.joinpath("reports").iterdir()))
    assert not waiting
    print(f"  queue empty after {time.monotonic() - start:.1f} s: {checked} uploads checked")
    plain = script.with_name("get.lua")
    plain.write_text("done = function" + script.read_text().partition("done = function")[2])
    _print_load("service, GET /healthz", _load(f"{url}/healthz", plain, options))
    _print_load("service, GET /", _load(f"{url}/", plain, options))


def _print_load(title: str, load: tuple[float, float, float, int], note: str = "") -> None:
    rate, median, slowest, errors = load
    line = f"{title:28} {rate:8.0f} /s   median {median:6.1f} ms   99 % {slowest:7.1f} ms"
    print(f"{line}   errors {errors}   {note}".rstrip(), flush=True)


def _load(url: str, script: Path, options: argparse.Namespace) -> tuple[float, float, float, int]:
    """Return requests per second, median and 99th percentile in ms, and the number of errors."""
    command = ["wrk", "-t2", f"-c{options.clients}", f"-d{options.seconds}s", "--timeout", "30s"]
    process = subprocess.run(
        [*command, "-s", str(script), url], capture_output=True, text=True, check=True
    )
    result = re.search(r"RESULT (.*)", process.stdout)
    assert result, process.stdout
    requests, micros, refused, median, slowest, broken = map(float, result[1].split())
    return requests / micros * 1e6, median / 1000, slowest / 1000, int(refused + broken)


def _script(folder: Path, body: Path) -> Path:
    path = folder / "post.lua"
    path.write_text(_POST.format(boundary=_BOUNDARY, body=body))
    return path


def _form(folder: Path) -> bytes:
    records = [
        encode_example(
            {
                "image/filename": bytes_feature([f"{number}.jpg".encode()]),
                "image/height": int64_feature([480]),
                "image/width": int64_feature([640]),
                "image/object/bbox/xmin": float_feature([0.1, 0.2]),
                "image/object/bbox/xmax": float_feature([0.5, 0.6]),
                "image/object/bbox/ymin": float_feature([0.1, 0.2]),
                "image/object/bbox/ymax": float_feature([0.5, 0.6]),
                "image/object/class/text": bytes_feature([b"cat", b"dog"]),
                "image/object/class/label": int64_feature([1, 2]),
            }
        )
        for number in range(20)
    ]
    shard = Path(write_records(folder, "default", records)[0]).read_bytes()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("default.tfrecord", shard)
        archive.writestr("label_map.pbtxt", "item {id: 1 name: 'cat'} item {id: 2 name: 'dog'}")
    head = (
        f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name=file; filename=anno.zip\r\n"
        "Content-Type: application/zip\r\n\r\n"
    )
    return head.encode() + stream.getvalue() + f"\r\n--{_BOUNDARY}--\r\n".encode()


def echo() -> Any:
    from flask import Flask, request

    app = Flask("echo")
    app.post("/")(lambda: request.get_data())
    return app


@contextmanager
def _echo() -> Iterator[str]:
    port = _free_port()
    options = [f"--listen=127.0.0.1:{port}", f"--threads={_THREADS}", "--call"]
    with _process([sys.executable, "-m", "waitress", *options, "service:echo"]):
        _wait_for(port)
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def _service(folder: Path) -> Iterator[str]:
    port = _free_port()
    command = [sys.executable, "-m", "tfod.cli.main", "serve", "--port", str(port)]
    limits = ("WAITING", "WAITING_PER_CLIENT")
    os.environ.update({f"TFOD_MAX_{limit}": "1000000" for limit in limits})
    with _process([*command, "--data", str(folder / "data")]):
        _wait_for(port)
        time.sleep(2)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _process(command: list[str]) -> Iterator[None]:
    folder = Path(__file__).parent
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=folder)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens at {port}")


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=50)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
