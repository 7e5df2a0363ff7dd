"""A server on this machine that speaks the REST calls which cvat-sdk 2.80 and the bridge make.

Recorded from them against CVAT 2.73.
"""

from __future__ import annotations

import io
import json
import re
import ssl
import sys
import threading
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree

from tests.cvat.client.stub_state import StubTask, write_meta
from tests.cvat.images_xml import add_labels

USER, PASSWORD, TOKEN, KEY = "ann", "secret", "pat-token", "old-key"
LOGIN = {"CVAT_USER": USER, "PASS": PASSWORD}
_OBJECT = re.compile(r"/api/(task|job|project)s/(\d+)(?:/(.*))?\Z")

_UPLOADED = re.compile(r"(annotations|dataset)(/[0-9a-f-]{36})?\Z")


@dataclass
class Fault:
    """What goes wrong with requests that match, so many times."""

    method: str
    pattern: str
    status: int = 0
    body: bytes = b""
    cut: bool = False  # the connection ends without an answer; the request was carried out
    cut_before: bool = False  # likewise, but was not
    cut_after: int | None = None  # so many bytes of the body are sent
    times: int = 1
    call: Callable[[], object] | None = None  # called, and then all goes on


@dataclass
class Work:
    """A request in the background; runs when it has been asked about ``polls`` times."""

    run: Callable[[], None]
    polls: int = 1
    status: str = "queued"
    message: str = ""
    result: bytes = b""


@dataclass
class Upload:
    """A file that arrives in pieces."""

    filename: str
    length: int
    data: bytearray = field(default_factory=bytearray)


class StubServer:
    """The server; ``with`` starts and ends it."""

    def __init__(self, version: str = "2.73.0", certificate: str | None = None) -> None:
        self.scheme = "https" if certificate else "http"
        self.version = version
        self.tasks: dict[int, StubTask] = {}
        self.projects: dict[int, list[dict[str, Any]]] = {}  # labels
        self.datasets: list[tuple[int, bytes]] = []
        self.faults: list[Fault] = []
        self.log: list[str] = []
        self.organizations: list[str] = []
        self.uploads: dict[str, Upload] = {}
        self.work: dict[str, Work] = {}
        self.import_error = ""
        self.formats = ["CVAT 1.1", "Datumaro 1.0"]
        self.largest_piece = 1 << 30
        self.lock = threading.RLock()
        self.errors: list[BaseException] = []
        self._http = _Http(self)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> StubServer:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        # What fails in the stub looks like a fault of the network, which the bridge survives.
        assert not self.errors, self.errors

    def asked(self, pattern: str) -> int:
        """How many requests matched: ``METHOD /path?query``."""
        return sum(re.search(pattern, line) is not None for line in self.log)

    def fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.method == method and re.search(fault.pattern, path):
                fault.times -= 1
                return fault
        return None

    def span(self, kind: str, number: int) -> tuple[StubTask, int, int] | None:
        """The task, and the first and last of the frames that are meant."""
        if kind == "task" and number in self.tasks:
            task = self.tasks[number]
            return task, 0, task.size - 1
        for task in self.tasks.values():
            if kind == "job" and number in task.segments:
                return task, *task.segments[number]
        return None

    def export(self, kind: str, number: int, with_images: bool) -> bytes:
        span = self.span(kind, number)
        if span is not None:
            task, first, last = span
            return task.export(first, last, with_images)
        return self._export_project(number, with_images)

    def _export_project(self, number: int, with_images: bool) -> bytes:
        root = ElementTree.Element("annotations")
        project = ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "project")
        parts = ElementTree.SubElement(project, "tasks")
        tasks = [task for task in self.tasks.values() if task.project == number]
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for task in tasks:
                write_meta(ElementTree.SubElement(parts, "task"), task)
            add_labels(project, self.projects[number])
            for task in tasks:
                images = archive if with_images else None
                task.write_images(root, images, 0, task.size - 1, task.subset or "default")
            archive.writestr("annotations.xml", ElementTree.tostring(root, "utf-8"))
        return stream.getvalue()

    def begin(self, request_id: str, run: Callable[[Work], None]) -> Work:
        work = Work(lambda: run(work))
        self.work[request_id] = work
        return work

    def poll(self, request_id: str) -> Work | None:
        """Ask about work, which is done when it was asked about often enough."""
        work = self.work.get(request_id)
        if work is None or work.status in ("finished", "failed"):
            return work
        if work.polls:
            work.polls -= 1
            work.status = "started"
            return work
        try:
            work.run()
            work.status = "finished"
        except ValueError as error:
            work.status, work.message = "failed", str(error)
        return work


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, stub: StubServer) -> None:
        super().__init__(("127.0.0.1", 0), _handler(stub))
        self._stub = stub

    def handle_error(self, *_: object) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, (ConnectionError, ssl.SSLError)):
            self._stub.errors.append(error)


def _handler(server: StubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(
            self, status: int, body: Any = None, headers: dict[str, str] | None = None
        ) -> None:
            fault = self.fault_now
            if fault is not None and fault.cut:
                self.cut()
                return
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            data = b"" if body is None else data
            self.send_response(status)
            for name, value in (headers or {}).items():
                for one in value.split("\n"):
                    self.send_header(name, one)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if fault is not None and fault.cut_after is not None:
                self.wfile.write(data[: fault.cut_after])
                self.cut()
            elif self.command != "HEAD":
                self.wfile.write(data)

        def cut(self) -> None:
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(2)

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.body = self.rfile.read(length)
            self.fault_now: Fault | None = None
            self.parts = urlsplit(self.path)
            self.query = {k: v[0] for k, v in parse_qs(self.parts.query).items()}
            marks = [
                name
                for name in ("Upload-Start", "Upload-Finish", "Upload-Length")
                if name in self.headers
            ]
            with server.lock:
                line = " ".join([self.command, unquote(self.path), *marks])
                server.log.append(line)
                server.organizations.append(self.headers.get("X-Organization", ""))
                fault = server.fault(self.command, " ".join([unquote(self.path), *marks]))
            if fault is not None and fault.call is not None:
                fault.call()
            if fault is not None and fault.cut_before:
                self.cut()
                return
            if fault is not None and fault.status:
                self.answer(fault.status, fault.body)
                return
            self.fault_now = fault
            with server.lock:
                self.route()

        do_GET = do_POST = do_PUT = do_PATCH = do_HEAD = handle_any

        def route(self) -> None:
            path = self.parts.path.rstrip("/")
            if path == "/api/server/about":
                return self.answer(200, {"name": "CVAT", "version": server.version})
            if path == "/api/auth/login":
                return self.login()
            if not self.known():
                return self.answer(401, {"detail": "Authentication credentials were not provided."})
            if path == "/api/server/annotation/formats":
                names = [{"name": name, "enabled": True} for name in server.formats]
                return self.answer(200, {"importers": names, "exporters": names})
            if path == "/api/labels":
                return self.labels()
            if path == "/api/tasks":
                number = int(self.query["project_id"])
                return self.page([t.about() for t in server.tasks.values() if t.project == number])
            if path.startswith("/api/requests/"):
                return self.tell_of(unquote(path.removeprefix("/api/requests/")))
            if path == "/api/requests":
                return self.page([])
            match = _OBJECT.match(path)
            if match is None:
                return self.answer(404, b"<html>Not found</html>")
            kind, number, rest = match[1], int(match[2]), match[3] or ""
            return self.of_object(kind, number, rest)

        def known(self) -> bool:
            authorization = self.headers.get("Authorization", "")
            if authorization in (f"Bearer {TOKEN}", f"Token {KEY}"):
                return True
            if "sessionid=s1" not in self.headers.get("Cookie", ""):
                return False
            return self.command in ("GET", "HEAD") or self.headers.get("X-CSRFToken") == "c1"

        def login(self) -> None:
            found = json.loads(self.body)
            if (found["username"], found["password"]) != (USER, PASSWORD):
                text = "Unable to log in with provided credentials."
                return self.answer(400, {"non_field_errors": [text]})
            cookies = "sessionid=s1; Path=/\ncsrftoken=c1; Path=/"
            return self.answer(200, {"key": KEY}, {"Set-Cookie": cookies})

        def page(self, items: list[Any]) -> None:
            page, size = int(self.query.get("page", 1)), 2
            part = items[(page - 1) * size : page * size]
            following = "x" if page * size < len(items) else None
            self.answer(200, {"count": len(items), "next": following, "results": part})

        def labels(self) -> None:
            if "project_id" in self.query:
                return self.page(server.projects[int(self.query["project_id"])])
            kind = "job" if "job_id" in self.query else "task"
            span = server.span(kind, int(self.query[f"{kind}_id"]))
            return self.page(span[0].labels if span else [])

        def tell_of(self, request_id: str) -> None:
            work = server.poll(request_id)
            if work is None:
                return self.answer(404, {"detail": "Not found."})
            found = {"id": request_id, "status": work.status, "message": work.message}
            found |= {"progress": 0.5, "created_date": "2026-11-01T10:00:00Z"}
            found["operation"] = {"type": "export:dataset", "target": "task"}
            if work.result:
                # As a server behind a proxy may say: an address that is none from here.
                path = f"/api/projects/0/download?rq_id={quote(request_id)}"
                found["result_url"] = f"http://cvat.internal:8080{path}"
            return self.answer(200, found)

        def of_object(self, kind: str, number: int, rest: str) -> None:
            if rest == "download":
                return self.answer(200, server.work[self.query["rq_id"]].result)
            span = server.span(kind, number)
            if span is None and not (kind == "project" and number in server.projects):
                return self.answer(404, {"detail": "No such thing matches the given query."})
            if rest == "":
                return self.about(kind, number)
            if rest == "data/meta" and span is not None:
                return self.answer(200, span[0].meta(*span[1:], kind))
            if rest == "dataset/export" and self.command == "POST":
                return self.export(kind, number)
            if _UPLOADED.match(rest):
                if self.command == "GET" and rest == "annotations" and span is not None:
                    return self.answer(200, span[0].annotations(*span[1:]))
                return self.upload(kind, number, rest)
            return self.answer(404, b"<html>Not found</html>")

        def about(self, kind: str, number: int) -> None:
            if kind == "project":
                return self.answer(200, {"id": number, "name": "p", "dimension": "2d"})
            task, _, _ = server.span(kind, number) or (None, 0, 0)
            assert task is not None
            return self.answer(200, task.about() if kind == "task" else task.job(number))

        def export(self, kind: str, number: int) -> None:
            if self.query["format"] != "CVAT for images 1.1":
                return self.answer(400, ["Unknown format specified for the request"])
            assert self.query["location"] == "local"
            images = self.query["save_images"] == "true"
            request_id = f"action=export&target={kind}&id={number}&images={images}"
            running = server.work.get(request_id)
            if running is not None and running.status != "finished":
                return self.answer(409, {"rq_id": request_id})

            def run(work: Work) -> None:
                work.result = server.export(kind, number, images)

            server.begin(request_id, run)
            return self.answer(202, {"rq_id": request_id})

        def upload(self, kind: str, number: int, rest: str) -> None:
            if "Upload-Start" in self.headers:
                return self.answer(202)
            if "Upload-Length" in self.headers:
                return self.tus_create()
            if "Upload-Finish" in self.headers:
                return self.upload_done(kind, number)
            if self.command in ("PATCH", "HEAD"):
                return self.tus_piece(rest.rpartition("/")[2])
            return self.answer(405, {"detail": "Method not allowed."})

        def tus_create(self) -> None:
            import base64

            _, _, name = self.headers["Upload-Metadata"].partition(" ")
            key = str(uuid.uuid4())
            upload = Upload(base64.b64decode(name).decode(), int(self.headers["Upload-Length"]))
            server.uploads[key] = upload
            location = f"{server.url}{self.parts.path}{key}"
            self.answer(201, None, {"Location": location, "Upload-Filename": upload.filename})

        def tus_piece(self, key: str) -> None:
            upload = server.uploads[key]
            if self.command == "PATCH":
                if int(self.headers["Upload-Offset"]) != len(upload.data):
                    return self.answer(409)
                upload.data += self.body
            offset = {"Upload-Offset": str(len(upload.data)), "Upload-Filename": upload.filename}
            return self.answer(204 if self.command == "PATCH" else 200, None, offset)

        def upload_done(self, kind: str, number: int) -> None:
            names = {one.filename: one for one in server.uploads.values()}
            upload = names[self.query["filename"]]
            if self.query["format"] not in server.formats:
                return self.answer(400, [f"Unknown input format {self.query['format']!r}"])
            assert len(upload.data) == upload.length, "the upload is not complete"
            assert self.query["conv_mask_to_poly"] == "false"
            request_id = f"action=import&target={kind}&id={number}"
            append = self.query.get("import_mode") == "append"

            def run(_: Work) -> None:
                if server.import_error:
                    raise ValueError(server.import_error)
                if kind == "project":
                    server.datasets.append((number, bytes(upload.data)))
                    return
                span = server.span(kind, number)
                assert span is not None
                span[0].import_xml(*span[1:], bytes(upload.data), append)

            server.begin(request_id, run)
            return self.answer(202, {"rq_id": request_id})

    return Handler
