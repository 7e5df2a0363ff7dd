"""The processes of the service, its settings, and its logs."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from tfod.cli import main as cli
from tfod.cli.arguments import build_parser
from tfod.errors import TfodError
from tfod_validator.serve import monitoring
from tfod_validator.serve.command import settings_from
from tfod_validator.serve.processes import locked
from tfod_validator.settings import Limits, Settings

from tests.commands import run_python
from tests.validator.conftest import REMOTE_TIMEOUT, Service
from tests.validator.heavy import wait_for
from tests.validator.sockets import answer_on

Start = Callable[..., Service]


class TestRunning:
    def test_says_where_it_serves_and_leaves_nothing(
        self, start_service: Start, good_zip: bytes
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:  # sockets' names are short
            running = start_service(TMPDIR=folder)
            assert running.upload({"file": ("a.zip", good_zip)}).json()["valid"] is True
            self.says_where_it_serves(running)
            assert running.stop() == 0
            assert os.listdir(folder) == []
        assert list((running.data / "metrics").iterdir()) == []
        assert not [line for line in running.lines if "Traceback" in line]

    def says_where_it_serves(self, running: Service) -> None:
        (line,) = [one for one in running.lines if one.startswith("tfod: ")]
        data = re.escape(str(running.data))
        assert re.fullmatch(
            rf"tfod: serving on http://127\.0\.0\.1:\d+ \(data in {data}; Ctrl-C ends it\)\n", line
        )
        for name in (".", "uploads", "incoming", "metrics"):  # for this user only
            assert (running.data / name).stat().st_mode & 0o777 == 0o700
        assert len(list((running.data / "metrics").iterdir())) == 1

    def test_ipv6(self, start_service: Start) -> None:
        if not socket.has_dualstack_ipv6():
            pytest.skip("no IPv6 here")
        running = start_service("--host", "::", "--workers", "0", TFOD_TOKENS="a")
        assert running.url.startswith("http://[::]:")
        running.url = running.url.replace("[::]", "127.0.0.1")
        assert running.get("/healthz").status_code == 200


class TestEnds:
    def test_ctrl_c_lets_requests_finish(self, start_service: Start) -> None:
        """As does SIGTERM, in test_sigterm_drains."""
        running = start_service("--workers", "0")
        url = f"{running.url}/api/v1/validations?filename=a"
        port = int(running.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), REMOTE_TIMEOUT) as one:
            head = "POST /api/v1/validations?filename=a HTTP/1.1\r\nHost: localhost\r\n"
            one.sendall(f"{head}Content-Length: 6\r\n\r\nabc".encode())
            wait_for(lambda: list((running.data / "incoming").iterdir()), running)
            running.process.send_signal(signal.SIGINT)
            with pytest.raises(requests.RequestException):
                while True:
                    requests.get(url, timeout=1)
            one.sendall(b"def")
            assert answer_on(one).status == 202
        assert running.process.wait(REMOTE_TIMEOUT) == 0
        wait_for(lambda: not running.children(), running)

    def test_killed_processes_are_started_again_and_others_end(self, start_service: Start) -> None:
        running = start_service()
        for kind in (running.web, running.workers):
            (before,) = kind()
            os.kill(before, signal.SIGKILL)
            wait_for(lambda kind=kind, before=before: kind() not in ([], [before]), running)
            assert running.get("/healthz").status_code == 200  # the port was open all the time
        running.process.kill()
        running.process.wait()
        wait_for(lambda: not running.children(), running)
        again = start_service()  # the lock is free again
        assert again.get("/healthz").status_code == 200
        self.end_by_two_ctrl_cs(again)

    def end_by_two_ctrl_cs(self, running: Service) -> None:
        """The second one kills what the first one waits for."""
        # The database remembers a worker of the service that was killed: this one may yet begin.
        wait_for(lambda: len(running.workers()) == 1, running)
        (worker,) = running.workers()
        os.kill(worker, signal.SIGSTOP)
        running.process.send_signal(signal.SIGINT)
        wait_for(lambda: not running.web(), running)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(REMOTE_TIMEOUT) == 130
        wait_for(lambda: not running.children(), running)
        running.process.returncode = 0  # as the fixture expects


class TestCannotBegin:
    def line_of_serve(self, *options: object) -> str:
        """The one line of a service that does not begin."""
        done = run_python("-m", "tfod.cli.main", "serve", *options)
        assert done.out == ""
        return done.refused().rstrip("\n")

    def refused(self, capsys: pytest.CaptureFixture[str], *options: str) -> str:
        """The one line of a service that is refused before it has changed anything."""
        assert cli.main(["serve", *options]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        (line,) = output.err.splitlines()
        return line

    def test_port_is_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            line = self.line_of_serve("--port", port, "--data", tmp_path / "data")
        assert line == (
            f"tfod: port {port} of 127.0.0.1 is taken; stop what listens there, or choose another "
            "with --port"
        )
        assert not (tmp_path / "data").exists()

    def test_host_is_not_here(self, tmp_path: Path, monkeypatch, capsys) -> None:
        monkeypatch.setenv("TFOD_TOKENS", "a")
        data = str(tmp_path / "data")
        for host in ("192.0.2.1", "no.such.host.invalid", "a" * 80 + ".b"):
            assert "host" in self.refused(capsys, "--host", host, "--data", data)

    def test_folder_cannot_be_used(self, tmp_path: Path, monkeypatch, capsys) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("TFOD_DATA", str(tmp_path / "file"))
        line = self.refused(capsys, "--port", "0")
        assert line == (
            f"tfod: {tmp_path}/file: File exists; choose a folder that can be written with --data"
        )

    def test_database_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "reports.sqlite3").write_text("this is not a database" * 100)
        line = self.line_of_serve("--port", 0, "--data", tmp_path)
        assert line == "tfod: the database cannot be used: file is not a database"

    def test_folder_is_used_by_another(self, tmp_path: Path) -> None:
        settings = Settings(tmp_path)
        with locked(settings) as is_ours:
            assert is_ours
            line = self.line_of_serve("--port", 0, "--data", tmp_path)
        assert line.startswith(f"tfod: {tmp_path}: another tfod serve uses this folder; ")
        shared = Settings(tmp_path, database_url="postgresql://a")
        with locked(shared) as is_ours, locked(shared):
            assert not is_ours

    @pytest.mark.parametrize(
        ("variable", "value", "what"),
        [
            ("PORT", "x", "TFOD_PORT: 'x' is not a whole number from 0 to 65,535"),
            ("PORT", "65536", "TFOD_PORT: '65536' is not a whole number from 0 to 65,535"),
            ("THREADS", "0", "TFOD_THREADS: '0' is not a whole number of 1 or more"),
            ("WEB", "9" * 5000, "TFOD_WEB: "),
            (
                "MAX_WAIT_SECONDS",
                "61",
                "TFOD_MAX_WAIT_SECONDS: '61' is not a whole number from",
            ),
            ("MAX_FILES", "0", "TFOD_MAX_FILES: '0' is not a whole number of 1 or more"),
            ("DATABASE_URL", "nonsense", "TFOD_DATABASE_URL: is no URL of PostgreSQL"),
            ("DATABASE_URL", "nonsense://a", "TFOD_DATABASE_URL: is no URL of PostgreSQL"),
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

    def test_no_folder_is_not_the_working_folder(self, capsys) -> None:
        with pytest.raises(SystemExit, match="2"):
            cli.main(["serve", "--data", ""])
        assert "--data: is empty; name a file" in capsys.readouterr().err

    def test_nothing_to_do(self, capsys) -> None:
        assert cli.main(["serve", "--web", "0", "--workers", "0"]) == 2
        assert "nothing is left to do" in capsys.readouterr().err


class TestSettings:
    def settings(self, *options: str, **environment: str) -> Settings:
        return settings_from(build_parser("serve").parse_args(["serve", *options]), environment)

    def test_without_any(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        found = self.settings()
        assert found.data == tmp_path / "tfod-data"
        assert found.limits == Limits()
        assert "localhost" in found.hosts  # and no name that others could give to 127.0.0.1
        assert found == replace(Settings(found.data), hosts=found.hosts)

    def test_options_win(self) -> None:
        environment = {"TFOD_CHECKS": "3", "TFOD_THREADS": "4", "TFOD_MAX_FILES": "5"}
        found = self.settings("--checks", "6", **environment)
        assert (found.checks, found.threads, found.limits.max_files) == (6, 4, 5)

    def test_limits_are_variables_alone(self, capsys) -> None:
        with pytest.raises(SystemExit):
            cli.main(["serve", "--help"])
        shown = capsys.readouterr().out
        assert "limits are environment variables" in " ".join(shown.lower().split())
        assert "--max" not in shown and len(re.findall(r"^  -", shown, re.MULTILINE)) <= 12
        assert len(shown.splitlines()) <= 45
        with pytest.raises(
            TfodError, match="TFOD_MAX_FILES: 'x' is not a whole number of 1 or more"
        ):
            self.settings(TFOD_MAX_FILES="x")

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

    def test_says_who_may_come_in(self, tmp_path: Path, monkeypatch, capsys) -> None:
        with socket.create_server(("0.0.0.0", 0)) as other:
            port = str(other.getsockname()[1])
            options = ["serve", "--host", "0.0.0.0", "--port", port, "--data", str(tmp_path / "d")]
            for tokens, lines in (("", 2), ("one", 1)):
                monkeypatch.setenv("TFOD_TOKENS", tokens)
                assert cli.main(options) == 2
                said = capsys.readouterr().err
                assert len(said.splitlines()) == lines
                warning = "tfod: warning: everybody who reaches 0.0.0.0"
                assert (warning in said) == (not tokens)

    def test_packages_that_are_missing(self, monkeypatch, capsys) -> None:
        monkeypatch.setitem(sys.modules, "gunicorn", None)
        monkeypatch.setitem(sys.modules, "sqlalchemy", None)
        assert cli.main(["serve"]) == 2
        assert capsys.readouterr().err == (
            "tfod: the service needs gunicorn, SQLAlchemy; pip install '.[validator]' "
            "in a clone of tfod\n"
        )


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
            "from tfod_validator.serve import monitoring\n"
            "monitoring.configure_logging()\n"
            "warnings.warn('old')\n"
            "one = threading.Thread(target=lambda: 1 / 0); one.start(); one.join()\n"
            "[][1]\n"
        )
        done = run_python("-c", code)
        first, second, third = map(json.loads, done.err.splitlines())
        assert "old" in first["message"]
        assert "ZeroDivisionError" in second["exception"]
        assert "IndexError" in third["exception"]
        assert done.code == 1


@pytest.fixture
def log_lines() -> Iterator[Callable[[], list[Any]]]:
    """What is logged by the service's formatter, read back."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(monitoring.JsonFormatter())
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
        "from tfod_validator.serve import monitoring\n"
        "monitoring.configure_logging()\n"
        "def tell(name):\n"
        "    for number in range(500):\n"
        "        more = {'fields': {'of': name, 'at': number}}\n"
        "        logging.getLogger('tfod').info('x', extra=more)\n"
        "threads = [threading.Thread(target=tell, args=(name,)) for name in range(8)]\n"
        "[one.start() for one in threads]\n"
        "[one.join() for one in threads]\n"
    )
    lines = [json.loads(line) for line in run_python("-c", code).err.splitlines()]
    for name in range(8):
        assert [one["at"] for one in lines if one["of"] == name] == list(range(500))
