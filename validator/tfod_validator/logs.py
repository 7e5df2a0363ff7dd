"""Logs: a JSON object a line on standard error. Nothing of what was uploaded is logged.

Fields are added with ``extra={"fields": {...}}``.
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import threading
from datetime import datetime, timezone
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from types import TracebackType
from typing import Any

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


class _Queue(QueueHandler):
    """Hands records to the thread that writes, as they are."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record


def configure() -> None:
    """Let this process log as the service does; also errors that are not caught, and warnings.

    One thread writes: threads that write one after the other, under a lock, wait for each other.
    """
    queue: SimpleQueue[Any] = SimpleQueue()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    listener = QueueListener(queue, handler)
    listener.start()
    atexit.register(listener.stop)
    logging.basicConfig(level=logging.INFO, handlers=[_Queue(queue)], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _log.critical("the process ends by an error", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(given: threading.ExceptHookArgs) -> None:
    if given.exc_value is not None:
        trace = (given.exc_type, given.exc_value, given.exc_traceback)
        _log.critical("a thread ends by an error", exc_info=trace)
