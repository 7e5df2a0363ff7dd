"""A server on this machine that answers the REST requests of cvat-sdk 2.80 and the bridge.

They were recorded with CVAT 2.73.
"""

from __future__ import annotations

import base64
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
    """A failure of the next ``times`` requests that match."""

    method: str
    pattern: str
    status: int = 0
    body: bytes = b""
    cut: bool = False  # the server does what is requested, and ends the connection
    cut_before: bool = False  # the server only ends the connection
    cut_after: int | None = None  # bytes of the body that are sent
    times: int = 1
    call: Callable[[], object] | None = None  # is called before the request is answered


@dataclass
class Work:
    """A background request, which runs after ``polls`` questions about its status."""

    run: Callable[[], None]
    polls: int = 1
    status: str = "queued"
    message: str = ""
    result: bytes = b""


@dataclass
class Upload:
    """A file that is uploaded in pieces."""

    filename: str
    length: int
    data: bytearray = field(default_factory=bytearray)


class StubServer:
    """The server, which runs within ``with``."""

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
        self.lock = threading.RLock()
        self.errors: list[BaseException] = []
        self._http = _Http(("127.0.0.1", 0), _handler(self))
        self._http.stub_errors = self.errors
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
        # To the bridge, errors of the stub are failures of the network.
        assert not self.errors, self.errors

    def asked(self, pattern: str) -> int:
        """Count the requests that match, as ``METHOD /path?query``."""
        return sum(re.search(pattern, line) is not None for line in self.log)

    def fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.method == method and re.search(fault.pattern, path):
                fault.times -= 1
                return fault
        return None

    def span(self, kind: str, number: int) -> tuple[StubTask, int, int] | None:
        """Return the task, and the first and last frame of the task or job."""
        for task in self.tasks.values():
            if kind == "task" and number == task.number:
                return task, 0, task.size - 1
            if kind == "job" and number in task.segments:
                return task, *task.segments[number]
        return None

    def export(self, kind: str, number: int, with_images: bool) -> bytes:
        """Return a zip of CVAT for images 1.1."""
        root = ElementTree.Element("annotations")
        meta = ElementTree.SubElement(root, "meta")
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            images = archive if with_images else None
            span = self.span(kind, number)
            if span is not None:
                write_meta(ElementTree.SubElement(meta, "task"), span[0])
                span[0].write_images(root, images, *span[1:])
            else:
                project = ElementTree.SubElement(meta, "project")
                parts = ElementTree.SubElement(project, "tasks")
                tasks = [task for task in self.tasks.values() if task.project == number]
                for task in tasks:
                    write_meta(ElementTree.SubElement(parts, "task"), task)
                add_labels(project, self.projects[number])
                for task in tasks:
                    subset = task.subset or "default"
                    task.write_images(root, images, 0, task.size - 1, subset)
            archive.writestr("annotations.xml", ElementTree.tostring(root, "utf-8"))
        return stream.getvalue()

    def begin(self, request_id: str, run: Callable[[Work], None]) -> None:
        work = Work(lambda: run(work))
        self.work[request_id] = work

    def poll(self, request_id: str) -> Work | None:
        """Return a background request, which runs if there were enough questions."""
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
    stub_errors: list[BaseException]

    def handle_error(self, *_: object) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, (ConnectionError, ssl.SSLError)):
            self.stub_errors.append(error)


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
                return self.cut()
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            data = b"" if body is None else data
            self.send_response(status)
            for name, value in (headers or {}).items():
                for line in value.split("\n"):
                    self.send_header(name, line)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if fault is not None and fault.cut_after is not None:
                self.wfile.write(data[: fault.cut_after])
                self.cut()
            elif self.command != "HEAD":
                self.wfile.write(data)
            return None

        def cut(self) -> None:
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(2)

        def handle_any(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.fault_now: Fault | None = None
            self.parts = urlsplit(self.path)
            self.query = {k: v[0] for k, v in parse_qs(self.parts.query).items()}
            marks = ("Upload-Start", "Upload-Finish", "Upload-Length")
            line = " ".join([unquote(self.path), *(one for one in marks if one in self.headers)])
            with server.lock:
                server.log.append(f"{self.command} {line}")
                server.organizations.append(self.headers.get("X-Organization", ""))
                fault = server.fault(self.command, line)
            if fault is not None and fault.call is not None:
                fault.call()
            if fault is not None and fault.cut_before:
                return self.cut()
            if fault is not None and fault.status:
                return self.answer(fault.status, fault.body)
            self.fault_now = fault
            with server.lock:
                return self.route()

        do_GET = do_POST = do_PUT = do_PATCH = do_HEAD = handle_any

        def route(self) -> None:
            path = self.parts.path.rstrip("/")
            if path == "/api/server/about":
                return self.answer(200, {"name": "CVAT", "version": server.version})
            if path == "/api/auth/login":
                return self.login()
            if not self.is_logged_in():
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
                return self.status_of(unquote(path.removeprefix("/api/requests/")))
            match = _OBJECT.match(path)
            assert match is not None, path
            return self.of_object(match[1], int(match[2]), match[3] or "")

        def is_logged_in(self) -> bool:
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
            """Answer with two of these items."""
            end = 2 * int(self.query.get("page", 1))
            following = "x" if end < len(items) else None
            results = items[end - 2 : end]
            self.answer(200, {"count": len(items), "next": following, "results": results})

        def labels(self) -> None:
            if "project_id" in self.query:
                return self.page(server.projects[int(self.query["project_id"])])
            kind = "job" if "job_id" in self.query else "task"
            span = server.span(kind, int(self.query[f"{kind}_id"]))
            return self.page(span[0].labels if span else [])

        def status_of(self, request_id: str) -> None:
            work = server.poll(request_id)
            assert work is not None, request_id
            found = {"id": request_id, "status": work.status, "message": work.message}
            found |= {"progress": 0.5, "created_date": "2026-11-01T10:00:00Z"}
            found["operation"] = {"type": "export:dataset", "target": "task"}
            if work.result:
                # An address that only a proxy of the server can resolve.
                path = f"/api/projects/0/download?rq_id={quote(request_id)}"
                found["result_url"] = f"http://cvat.internal:8080{path}"
            self.answer(200, found)

        def of_object(self, kind: str, number: int, rest: str) -> None:
            if rest == "download":
                return self.answer(200, server.work[self.query["rq_id"]].result)
            span = server.span(kind, number)
            if span is None and not (kind == "project" and number in server.projects):
                return self.answer(404, {"detail": "No such thing matches the given query."})
            if rest == "" and span is None:
                return self.answer(200, {"id": number, "name": "p", "dimension": "2d"})
            if rest == "" and span is not None:
                about = span[0].about() if kind == "task" else span[0].job(number)
                return self.answer(200, about)
            if rest == "data/meta" and span is not None:
                return self.answer(200, span[0].meta(*span[1:], kind))
            if rest == "dataset/export" and self.command == "POST":
                return self.export(kind, number)
            assert _UPLOADED.match(rest), rest
            if self.command == "GET" and rest == "annotations" and span is not None:
                return self.answer(200, span[0].annotations(*span[1:]))
            return self.upload(kind, number, rest)

        def export(self, kind: str, number: int) -> None:
            assert self.query["format"] == "CVAT for images 1.1"
            assert self.query["location"] == "local"
            images = self.query["save_images"] == "true"
            request_id = f"action=export&target={kind}&id={number}&images={images}"

            def run(work: Work) -> None:
                work.result = server.export(kind, number, images)

            server.begin(request_id, run)
            self.answer(202, {"rq_id": request_id})

        def upload(self, kind: str, number: int, rest: str) -> None:
            """Answer the requests of the protocol tus."""
            if "Upload-Start" in self.headers:
                return self.answer(202)
            if "Upload-Length" in self.headers:
                _, _, name = self.headers["Upload-Metadata"].partition(" ")
                length = int(self.headers["Upload-Length"])
                key, upload = str(uuid.uuid4()), Upload(base64.b64decode(name).decode(), length)
                server.uploads[key] = upload
                location = f"{server.url}{self.parts.path}{key}"
                names = {"Location": location, "Upload-Filename": upload.filename}
                return self.answer(201, None, names)
            if "Upload-Finish" in self.headers:
                return self.finish_upload(kind, number)
            upload = server.uploads[rest.rpartition("/")[2]]
            if self.command == "PATCH":
                if int(self.headers["Upload-Offset"]) != len(upload.data):
                    return self.answer(409)
                upload.data += self.body
            offset = {"Upload-Offset": str(len(upload.data)), "Upload-Filename": upload.filename}
            return self.answer(204 if self.command == "PATCH" else 200, None, offset)

        def finish_upload(self, kind: str, number: int) -> None:
            names = {one.filename: one for one in server.uploads.values()}
            upload = names[self.query["filename"]]
            assert self.query["format"] in server.formats
            assert len(upload.data) == upload.length, "the upload is not complete"
            assert self.query["conv_mask_to_poly"] == "false"
            request_id = f"action=import&target={kind}&id={number}"
            append = self.query.get("import_mode") == "append"

            def run(_: Work) -> None:
                if server.import_error:
                    raise ValueError(server.import_error)
                span = server.span(kind, number)
                if span is None:
                    server.datasets.append((number, bytes(upload.data)))
                else:
                    span[0].import_xml(*span[1:], bytes(upload.data), append)

            server.begin(request_id, run)
            self.answer(202, {"rq_id": request_id})

    return Handler
