"""The supervisor with real processes: stand-ins for those of the service, quick to start."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tfod.cli import main as cli
from tfod.errors import TfodError
from tfod_validator import logs
from tfod_validator.premises import listen, locked
from tfod_validator.serve_command import settings_from
from tfod_validator.settings import Limits, Settings

_PATIENCE = 600
_SUPERVISOR = """
import sys
from pathlib import Path
from tfod_validator import logs, supervisor
from tfod_validator.settings import Settings
logs.configure()
data, host, port, web, workers, web_module, worker_module, drain = sys.argv[1:]
sys.exit(supervisor.run(
    Settings(Path(data)), host, int(port), int(web), int(workers),
    web_module=web_module, worker_module=worker_module, drain_seconds=float(drain),
))
"""
_WEB = """
import os, sys, time
from tfod_validator import web

class App:
    def __init__(self, settings):
        self.extensions = {}
        self.entered = settings.data / "entered"

    def __call__(self, environ, start_response):
        if environ["PATH_INFO"] == "/wait":
            self.entered.touch()
            self.extensions["tfod.draining"].wait(60)
            time.sleep(0.5)
        length = 0
        while piece := environ["wsgi.input"].read(1 << 16):
            length += len(piece)
        start_response("200 OK", [])
        return [f"{os.getpid()} {length}".encode()]

if __name__ == "__main__":
    sys.exit(web.run(App, int(sys.argv[1])))
"""
_WORKER = """
import os, signal, sys, threading
from pathlib import Path
from tfod_validator.settings import Settings

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())

def watch():
    os.read(int(os.environ["TFOD_SUPERVISOR_FD"]), 1)
    stop.set()

threading.Thread(target=watch, daemon=True).start()
folder = Settings.from_environment().data / "workers"
folder.mkdir(exist_ok=True)
(folder / str(os.getpid())).touch()
while not stop.wait(0.1):
    pass
"""
_STUBBORN = """
import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Event().wait()
"""


class Supervised:
    """A supervisor that runs, and what it says."""

    def __init__(self, process: subprocess.Popen[str], data: Path) -> None:
        self.process, self.data = process, data
        self.lines: list[str] = []
        self._greeted = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.match(r"tfod: (?:serving on (http://\S+)|working)", line):
                self.url = found[1] or ""
                self._greeted.set()
        self._greeted.set()

    def wait_until_serving(self) -> Supervised:
        assert self._greeted.wait(_PATIENCE)
        assert self.process.poll() is None, self.lines
        return self

    def get(self, path: str = "/", body: bytes | None = None) -> list[int]:
        with urllib.request.urlopen(self.url + path, body, timeout=_PATIENCE) as answer:
            return [int(word) for word in answer.read().split()]

    def web_pid(self) -> int:
        return self.get()[0]

    def children(self) -> list[int]:
        """Processes that the supervisor has started, and that run."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for one in tasks for pid in one.read_text().split()]

    def worker_pids(self) -> list[int]:
        folder = self.data / "workers"
        return [int(one.name) for one in folder.iterdir()] if folder.is_dir() else []

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(_PATIENCE)
        self._reader.join(_PATIENCE)
        return status


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + _PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")  # an orphan that nobody has waited for is a zombie
    return status.exists() and status.read_text().rpartition(") ")[2].startswith("Z")


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Starts supervisors of stand-ins; they end with the test."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "stand_in_web.py").write_text(_WEB)
    (modules / "stand_in_worker.py").write_text(_WORKER)
    (modules / "stand_in_stubborn.py").write_text(_STUBBORN)
    (modules / "stand_in_broken.py").write_text("import sys\nsys.exit('cannot start')\n")
    started: list[Supervised] = []

    def begin(
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        web: int = 1,
        workers: int = 1,
        web_module: str = "stand_in_web",
        worker_module: str = "stand_in_worker",
        drain: float = 20,
        data: Path | None = None,
        **environment: str,
    ) -> Supervised:
        data = data or tmp_path / "data"
        arguments = [data, host, port, web, workers, web_module, worker_module, drain]
        process = subprocess.Popen(
            [sys.executable, "-c", _SUPERVISOR, *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(modules), **environment},
        )
        started.append(Supervised(process, data))
        return started[-1]

    yield begin
    for one in started:
        try:
            one.end()
        finally:
            one.process.kill()


class TestRunning:
    def test_says_where_it_serves(self, supervise) -> None:
        running = supervise().wait_until_serving()
        line = running.lines[-1]
        assert re.fullmatch(
            r"tfod: serving on http://127\.0\.0\.1:\d+ \(data in \./data; Ctrl-C ends it\)\n", line
        )
        assert running.get("/", b"abc")[1] == 3
        wait_for(running.worker_pids)
        assert running.end() == 0

    def test_folders_are_for_this_user_only(self, supervise) -> None:
        running = supervise().wait_until_serving()
        for name in (".", "uploads", "incoming", "metrics"):
            assert (running.data / name).stat().st_mode & 0o777 == 0o700
        assert len(list((running.data / "metrics").iterdir())) == 1
        assert running.end() == 0
        assert list((running.data / "metrics").iterdir()) == []

    def test_several_web_processes_share_the_port(self, supervise) -> None:
        running = supervise(web=3, workers=0).wait_until_serving()
        children = running.children()
        assert len(children) == 3
        # A process that is stopped answers nothing: so each of them has to.
        for pid in children:
            others = [one for one in children if one != pid]
            for one in others:
                os.kill(one, signal.SIGSTOP)
            try:
                answering = running.web_pid()
            finally:
                for one in others:
                    os.kill(one, signal.SIGCONT)
            assert answering == pid
        assert running.end() == 0

    def test_workers_alone(self, supervise) -> None:
        running = supervise(web=0, workers=2).wait_until_serving()
        assert running.lines[-1].startswith("tfod: working with 2 workers (data in ./data")
        wait_for(lambda: len(running.worker_pids()) == 2)
        assert running.end() == 0
        assert all(map(is_gone, running.worker_pids()))

    @pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
    def test_ipv6(self, supervise) -> None:
        running = supervise(host="::1", workers=0).wait_until_serving()
        assert running.url.startswith("http://[::1]:")
        assert running.web_pid()
        everywhere = supervise(host="::", workers=0, data=running.data.parent / "two")
        everywhere.wait_until_serving()
        everywhere.url = everywhere.url.replace("[::]", "127.0.0.1")
        assert everywhere.web_pid()

    def test_long_upload_leaves_memory_flat(self, supervise) -> None:
        running = supervise(workers=0).wait_until_serving()
        pid = running.web_pid()
        host, port = running.url.removeprefix("http://").split(":")
        length, piece = 300 << 20, bytes(1 << 20)
        with socket.create_connection((host, int(port)), timeout=_PATIENCE) as one:
            one.sendall(b"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % length)
            for _ in range(length // len(piece)):
                one.sendall(piece)
            answer = b"".join(iter(lambda: one.recv(1 << 16), b""))
        assert answer.endswith(b" %d" % length)
        status = Path(f"/proc/{pid}/status")
        if status.exists():
            peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
            assert peak is not None
            assert int(peak[1]) < 120 << 10
        assert list((running.data / "incoming").iterdir()) == []


class TestEnds:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signal_lets_requests_finish(self, supervise, number: int) -> None:
        running = supervise().wait_until_serving()
        answers: list[list[int]] = []
        client = threading.Thread(target=lambda: answers.append(running.get("/wait")))
        client.start()
        wait_for((running.data / "entered").exists)
        assert running.end(number) == 0
        client.join(_PATIENCE)
        assert len(answers) == 1
        assert all(map(is_gone, [answers[0][0], *running.worker_pids()]))
        assert not [line for line in running.lines if "Traceback" in line]

    def test_ctrl_c_reaches_all_processes_of_a_terminal(self, supervise) -> None:
        running = supervise().wait_until_serving()
        pids = [running.web_pid(), *wait_for(running.worker_pids)]
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        assert running.web_pid() == pids[0]
        assert running.end(signal.SIGINT) == 0
        assert not [line for line in running.lines if "KeyboardInterrupt" in line]

    def test_child_that_does_not_end_is_killed(self, supervise) -> None:
        running = supervise(worker_module="stand_in_stubborn", drain=2).wait_until_serving()
        assert running.end() == 0

    def test_second_ctrl_c_kills(self, supervise) -> None:
        running = supervise(worker_module="stand_in_stubborn", drain=600).wait_until_serving()
        web = running.web_pid()
        running.process.send_signal(signal.SIGINT)
        wait_for(lambda: is_gone(web))
        assert running.end(signal.SIGINT) == 130

    def test_children_end_when_the_supervisor_is_killed(self, supervise) -> None:
        running = supervise().wait_until_serving()
        pids = [running.web_pid(), *wait_for(running.worker_pids)]
        running.process.kill()
        running.process.wait()
        wait_for(lambda: all(map(is_gone, pids)))
        again = supervise().wait_until_serving()  # the lock is free again
        assert again.web_pid() not in pids

    def test_killed_children_are_started_again(self, supervise) -> None:
        running = supervise().wait_until_serving()
        web, (worker,) = running.web_pid(), wait_for(running.worker_pids)
        for pid in (web, worker):
            os.kill(pid, signal.SIGKILL)
        assert running.web_pid() != web  # the port was open all the time
        wait_for(lambda: len(running.worker_pids()) == 2)

        def ends() -> dict[str, str]:
            told = [json.loads(line) for line in running.lines if line.startswith("{")]
            return {one["role"]: one["how"] for one in told if "role" in one}

        wait_for(lambda: len(ends()) == 2)
        assert ends() == {"web process": "killed by signal 9", "worker": "killed by signal 9"}

    def test_gives_up_when_a_child_cannot_start(self, supervise) -> None:
        running = supervise(web_module="stand_in_broken")
        assert running.process.wait(_PATIENCE) == 1
        assert running.end() == 1
        assert running.lines[-1] == (
            "tfod: the web process ended 5 times right after its start (exit status 1); what it "
            "wrote above says why\n"
        )


class TestCannotBegin:
    def serve(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tfod.cli.main", "serve", *options],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            env={**os.environ, **environment},
        )

    def one_line(self, done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 2
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        return line

    def test_port_is_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            done = self.serve("--port", port, "--data", str(tmp_path / "data"))
        assert self.one_line(done) == (
            f"tfod: port {port} of 127.0.0.1 is taken; stop what listens there, or choose another "
            "with --port"
        )
        assert not (tmp_path / "data").exists()

    def test_host_is_not_here(self, tmp_path: Path) -> None:
        data = str(tmp_path / "data")
        for host in ("192.0.2.1", "no.such.host.invalid", "a" * 80 + ".b"):
            assert "host" in self.one_line(
                self.serve("--host", host, "--data", data, TFOD_TOKENS="a")
            )

    def test_folder_cannot_be_used(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        line = self.one_line(self.serve("--port", "0", TFOD_DATA=str(tmp_path / "file")))
        assert line == (
            f"tfod: {tmp_path}/file: File exists; choose a folder that can be written with --data"
        )

    def test_folder_is_used_by_another(self, tmp_path: Path) -> None:
        settings = Settings(tmp_path)
        with locked(settings) as is_ours:
            assert is_ours
            line = self.one_line(self.serve("--port", "0", "--data", str(tmp_path)))
        assert line.startswith(f"tfod: {tmp_path}: another tfod serve uses this folder; ")
        shared = Settings(tmp_path, database_url="postgresql://a", redis_url="redis://b")
        with locked(shared) as is_ours, locked(shared):
            assert not is_ours

    @pytest.mark.parametrize(
        ("variable", "value", "what"),
        [
            ("PORT", "x", "TFOD_PORT=x: must be a whole number, up to 65535"),
            ("PORT", "65536", "TFOD_PORT=65536: must be a whole number, up to 65535"),
            ("THREADS", "0", "TFOD_THREADS=0: must be a whole number, 1 or more"),
            ("WEB", "9" * 5000, "TFOD_WEB=9"),
            ("MAX_FILES", "0", "TFOD_MAX_FILES=0: must be a whole number, 1 or more"),
            ("TOKENS", ",", "TFOD_TOKENS: holds no token"),
            ("TOKENS", "tökén", "TFOD_TOKENS: a token may have"),
            ("TOKENS_FILE", "/nowhere", "TFOD_TOKENS_FILE=/nowhere: cannot be read"),
            ("SECRET_KEY_FILE", "/dev/null", "TFOD_SECRET_KEY_FILE=/dev/null: is empty"),
        ],
    )
    def test_setting_makes_no_sense(self, tmp_path, monkeypatch, capsys, variable, value, what):
        monkeypatch.setenv(f"TFOD_{variable}", value)
        monkeypatch.chdir(tmp_path)
        assert cli.main(["serve"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"tfod: {what}")
        assert list(tmp_path.iterdir()) == []

    def test_nothing_to_do(self, capsys) -> None:
        assert cli.main(["serve", "--web", "0", "--workers", "0"]) == 2
        assert "nothing is left to do" in capsys.readouterr().err


class TestSettings:
    def settings(self, *options: str, **environment: str) -> Settings:
        return settings_from(cli.build_parser().parse_args(["serve", *options]), environment)

    def test_without_any(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        found = self.settings()
        assert found.data == tmp_path / "tfod-data"
        assert found.limits == Limits()
        assert "localhost" in found.hosts  # and no name that others could give to 127.0.0.1
        assert found == replace(Settings(found.data), hosts=found.hosts)

    def test_options_win(self) -> None:
        environment = {"TFOD_CHECKS": "3", "TFOD_THREADS": "4", "TFOD_MAX_FILES": "5"}
        found = self.settings("--checks", "6", "--max-files", "7", **environment)
        assert (found.checks, found.threads, found.limits.max_files) == (6, 4, 7)

    def test_names_of_the_service(self) -> None:
        assert self.settings("--host", "0.0.0.0").hosts == ()
        assert self.settings("--trusted-proxies", "1").hosts == ()
        hosts = self.settings("--hosts", "a.example, b.example").hosts
        assert hosts[:2] == ("a.example", "b.example")
        assert "127.0.0.1" in hosts  # health checks ask by it
        assert "127.0.0.2" in self.settings("--host", "127.0.0.2").hosts

    def test_secrets(self, tmp_path: Path) -> None:
        (tmp_path / "tokens").write_text("one,two\nthree\n")
        (tmp_path / "key").write_text("a key\n")
        places = {
            "TFOD_TOKENS_FILE": str(tmp_path / "tokens"),
            "TFOD_SECRET_KEY_FILE": str(tmp_path / "key"),
        }
        found = self.settings(**places)
        assert found.tokens == ("one", "two", "three")
        assert found.secret_key == "a key"
        assert self.settings(TFOD_TOKENS="").tokens == ()
        with pytest.raises(TfodError, match="not both"):
            self.settings(TFOD_TOKENS="one", **places)

    def test_says_who_may_come_in(self, tmp_path: Path) -> None:
        with socket.create_server(("0.0.0.0", 0)) as other:
            port = str(other.getsockname()[1])
            options = ["serve", "--host", "0.0.0.0", "--port", port, "--data", str(tmp_path / "d")]
            command = [sys.executable, "-m", "tfod.cli.main", *options]
            for tokens, lines in (("", 2), ("one", 1)):
                environment = {**os.environ, "TFOD_TOKENS": tokens}
                done = subprocess.run(command, capture_output=True, text=True, env=environment)
                assert len(done.stderr.splitlines()) == lines
                assert ("tfod: warning: whoever reaches 0.0.0.0" in done.stderr) == (not tokens)

    def test_packages_that_are_missing(self, monkeypatch, capsys) -> None:
        monkeypatch.setitem(sys.modules, "huey", None)
        monkeypatch.setitem(sys.modules, "sqlalchemy", None)
        assert cli.main(["serve"]) == 2
        assert capsys.readouterr().err == (
            "tfod: the service needs huey, SQLAlchemy; pip install '.[validator]' "
            "in a clone of tfod\n"
        )


def test_port_of_the_greeting_is_the_real_one() -> None:
    with listen("localhost", 0) as listener:
        assert listener.getsockname()[1] > 0


class TestLogs:
    def test_each_record_is_one_line_of_json(self, log_lines) -> None:
        fields = {
            "path": "/a\nb\u2028\x1b[2J\udcff",
            "level": "forged",
            "bytes": 5,
            "at": Path("/x"),
        }
        logging.getLogger("tfod.access").info("request", extra={"fields": fields})
        (line,) = log_lines()
        assert line["path"] == fields["path"]
        assert (line["level"], line["message"], line["logger"]) == (
            "info",
            "request",
            "tfod.access",
        )
        assert (line["bytes"], line["at"]) == (5, "/x")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])

    def test_exceptions_are_in_the_line(self, log_lines) -> None:
        try:
            raise ValueError("a\nb")
        except ValueError:
            logging.getLogger("tfod").exception("it failed: %s", "x\ny")
        (line,) = log_lines()
        assert line["message"] == "it failed: x\ny"
        assert "ValueError: a\nb" in line["exception"]

    def test_what_nobody_catches_is_logged(self) -> None:
        code = (
            "import threading, warnings\n"
            "from tfod_validator import logs\n"
            "logs.configure()\n"
            "warnings.warn('old')\n"
            "one = threading.Thread(target=lambda: 1 / 0); one.start(); one.join()\n"
            "[][1]\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        first, second, third = map(json.loads, done.stderr.splitlines())
        assert "old" in first["message"]
        assert "ZeroDivisionError" in second["exception"]
        assert "IndexError" in third["exception"]
        assert done.returncode == 1


@pytest.fixture
def log_lines() -> Iterator[Callable[[], list[Any]]]:
    """What is logged by the service's formatter, read back."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("tfod")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_lines_are_whole_and_all_there() -> None:
    """Many threads log at once, and the process ends right behind them."""
    code = (
        "import logging, threading\n"
        "from tfod_validator import logs\n"
        "logs.configure()\n"
        "def tell(name):\n"
        "    for number in range(500):\n"
        "        more = {'fields': {'of': name, 'at': number}}\n"
        "        logging.getLogger('tfod').info('x', extra=more)\n"
        "threads = [threading.Thread(target=tell, args=(name,)) for name in range(8)]\n"
        "[one.start() for one in threads]\n"
        "[one.join() for one in threads]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    for name in range(8):
        assert [one["at"] for one in lines if one["of"] == name] == list(range(500))
