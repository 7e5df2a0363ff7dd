"""Logs: a JSON object a line on standard error.

Whoever logs adds fields with ``extra={"fields": {...}}``. Nothing of what was uploaded is logged.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import datetime, timezone
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TextIO

_LEVELS = {"waitress": logging.WARNING, "waitress.queue": logging.ERROR, "huey": logging.ERROR}
"""Of libraries that tell every step."""
_FLUSH_SECONDS = 2.0
_log = logging.getLogger("tfod")


class JsonFormatter(logging.Formatter):
    """A record as a JSON object; whatever is in it, it is one line of ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", {})
        line |= {key: value for key, value in fields.items() if key not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class LineHandler(logging.Handler):
    """Writes lines in a thread of its own, many at once where there are many.

    Threads that write one after the other, under a lock, wait for each other and for the
    interpreter: with fifty clients a service that logs each request so is eight times slower.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: SimpleQueue[str | threading.Event] = SimpleQueue()
        threading.Thread(target=self._write_all, daemon=True, name="log").start()

    def handle(self, record: logging.LogRecord) -> bool:
        found = self.filter(record)
        if found:
            self._lines.put(self.format(record) + "\n")
        return bool(found)

    def flush(self) -> None:
        """Wait until all lines are written, a moment at most."""
        written = threading.Event()
        self._lines.put(written)
        written.wait(_FLUSH_SECONDS)

    def _write_all(self) -> None:
        while True:
            found = [self._lines.get()]
            while not self._lines.empty():
                found.append(self._lines.get())
            try:
                self._stream.write("".join(one for one in found if isinstance(one, str)))
                self._stream.flush()
            except (OSError, ValueError):
                pass  # nobody listens
            for one in found:
                if isinstance(one, threading.Event):
                    one.set()


def configure() -> None:
    """Let this process log as the service does; also what nobody catches, and warnings."""
    handler = LineHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name, level in _LEVELS.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("waitress").addFilter(_without_address)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


def _without_address(record: logging.LogRecord) -> bool:
    """Take out the address that failed: those of reports are secrets."""
    if record.exc_info:
        record.msg, record.args = "a request failed", ()
    return True


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _log.critical("the process ends by an error", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(given: threading.ExceptHookArgs) -> None:
    if given.exc_value is not None:
        trace = (given.exc_type, given.exc_value, given.exc_traceback)
        _log.critical("a thread ends by an error", exc_info=trace)
