"""What a user starts: it opens the port, starts the other processes and looks after them.

A child that dies is started again. Children end when the supervisor does, however it ends: they
watch a pipe of which only the supervisor holds the other side.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfod_validator.premises import (
    address_of,
    empty,
    listen,
    locked,
    make_folders,
    metrics_folder,
    shown,
)

if TYPE_CHECKING:
    from tfod_validator.settings import Settings

SUPERVISOR_FD = "TFOD_SUPERVISOR_FD"
"""Names the descriptor that ends when the supervisor does."""
READY_FD = "TFOD_READY_FD"
"""Names the descriptor to which a web process writes a byte when it is ready."""
WEB_MODULE = "tfod_validator.web"
WORKER_MODULE = "tfod_validator.worker"
EXIT_OK, EXIT_GAVE_UP, EXIT_HURRIED = 0, 1, 130
_QUICK_SECONDS = 10.0
_MOST_QUICK_ENDS = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
_DEFAULTS = {
    "OPENBLAS_NUM_THREADS": "1",  # a check is one thread; idle ones cost memory
    "MALLOC_ARENA_MAX": "2",  # or each of many threads keeps memory of its own
    "PYTHONUNBUFFERED": "1",
    "PYTHONSAFEPATH": "1",  # nothing is imported from the folder that the user is in
}
_log = logging.getLogger("tfod.supervisor")


def run(
    settings: Settings,
    host: str,
    port: int,
    web: int = 1,
    workers: int = 1,
    *,
    web_module: str = WEB_MODULE,
    worker_module: str = WORKER_MODULE,
    drain_seconds: float = 30.0,
) -> int:
    """Serve until SIGTERM or SIGINT comes.

    Args:
        settings: of the service; all processes get them.
        host: name or address to listen at.
        port: likewise; 0 for any that is free.
        web: number of web processes; without any nothing listens.
        workers: number of worker processes.
        web_module: what ``python -m`` runs as a web process.
        worker_module: what ``python -m`` runs as a worker process.
        drain_seconds: after the signal the processes may take so long to end.

    Returns:
        The exit status: 0 after a signal, 1 when a process dies again and again at its start, 130
        when a second Ctrl-C came and the processes were killed.

    Raises:
        TfodError: the port is taken, the data folder cannot be written, or belongs to another
            service that runs.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(listen(host, port)) if web else None
        make_folders(settings)
        is_ours = stack.enter_context(locked(settings))
        if is_ours:
            empty(settings.incoming)  # nobody sends what a service that was killed was receiving
        metrics = stack.enter_context(metrics_folder(settings, is_ours))
        children = [_Child("web process", web_module, listens=True) for _ in range(web)]
        children += [_Child("worker", worker_module) for _ in range(workers)]
        environment = settings.to_environment() | {"PROMETHEUS_MULTIPROC_DIR": str(metrics)}
        supervisor = _Supervisor(children, listener, environment, metrics, drain_seconds)
        place = f"data in {shown(settings.data)}; Ctrl-C ends it"
        if listener is None:
            supervisor.greeting = f"tfod: working with {workers} workers ({place})"
        else:
            supervisor.greeting = f"tfod: serving on {address_of(listener)} ({place})"
        stack.callback(supervisor.close)
        return supervisor.run()


@dataclass
class _Child:
    """A place for a process, which others take when it dies.

    Attributes:
        role: what users know it as.
        module: what it runs.
        listens: whether it gets the socket.
        process: that runs now.
        started: when it was started; of :func:`time.monotonic`.
        due: when the next is to be started.
        quick_ends: so many ended soon after their start, one after the other.
        is_settled: whether one has ever lived for long.
    """

    role: str
    module: str
    listens: bool = False
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float = 0.0
    quick_ends: int = 0
    is_settled: bool = False

    def note_end(self, now: float, status: int) -> bool:
        """Decide when to start the next; return False if that makes no sense any more."""
        self.process = None
        lived_long = now - self.started >= _QUICK_SECONDS
        self.is_settled = self.is_settled or lived_long
        was_killed = status == -signal.SIGKILL  # for memory, or by somebody: not its own fault
        if lived_long:
            self.quick_ends = 0
        elif not was_killed:
            self.quick_ends += 1
        self.due = now + min(_FIRST_PAUSE * 2**self.quick_ends, _LONGEST_PAUSE)
        return self.is_settled or self.quick_ends < _MOST_QUICK_ENDS


class _Supervisor:
    """Starts children, and waits: for signals, for ends of children, for the time to start one."""

    greeting = ""

    def __init__(
        self,
        children: list[_Child],
        listener: socket.socket | None,
        environment: dict[str, str],
        metrics: Path,
        drain_seconds: float,
    ) -> None:
        self._children = children
        self._listener = listener
        self._metrics = metrics
        self._drain_seconds = drain_seconds
        self._alive, self._alive_side = os.pipe()  # never written to
        self._ready, self._ready_side = os.pipe()
        self._wake, self._wake_side = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_side, False)
        self._environment = {
            **_DEFAULTS,
            **os.environ,
            **environment,
            SUPERVISOR_FD: str(self._alive),
            READY_FD: str(self._ready_side),
        }
        self._heard: list[int] = []
        self._greeted = False
        self._end_by: float | None = None  # when those that still run are killed
        self._status = EXIT_OK

    def run(self) -> int:
        """Do it all; return the exit status."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        before = {one: signal.signal(one, self._hear) for one in numbers}
        wakeup_before = signal.set_wakeup_fd(self._wake_side, warn_on_full_buffer=False)
        try:
            self._supervise()
        finally:
            self._kill_all()
            signal.set_wakeup_fd(wakeup_before)
            for one, handler in before.items():
                signal.signal(one, handler)
        return self._status

    def close(self) -> None:
        """Close the pipes."""
        for side in (self._alive, self._alive_side, self._ready, self._ready_side):
            os.close(side)
        os.close(self._wake)
        os.close(self._wake_side)

    def _supervise(self) -> None:
        if self._listener is None:
            self._greet()
        while self._end_by is None or any(one.process for one in self._children):
            self._start_due()
            self._wait()
            self._heed_signals()
            self._reap()
            if self._end_by is not None and time.monotonic() >= self._end_by:
                self._kill_all()

    def _hear(self, number: int, _: object) -> None:
        self._heard.append(number)

    def _heed_signals(self) -> None:
        heard, self._heard = self._heard, []
        for number in heard:
            if number == signal.SIGCHLD:
                continue
            if self._end_by is None:
                self._end(EXIT_OK)
            elif number == signal.SIGINT:  # Ctrl-C again: somebody is in a hurry
                self._status = EXIT_HURRIED
                self._end_by = 0.0

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.process is None and child.due <= now and self._end_by is None:
                self._start(child)

    def _start(self, child: _Child) -> None:
        command = [sys.executable, "-m", child.module]
        shared = [self._alive, self._ready_side]
        if child.listens and self._listener is not None:
            command.append(str(self._listener.fileno()))
            shared.append(self._listener.fileno())
        # Ctrl-C goes to all processes of a terminal; it is for us to tell the children. They
        # inherit that it is blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            child.started = time.monotonic()
            child.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=shared,
                env=self._environment,
                umask=0o077,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _wait(self) -> None:
        """Wait for a signal, for the first web process, or for the time to do something."""
        times = [one.due for one in self._children if one.process is None]
        if self._end_by is not None:
            times = [self._end_by]
        timeout = max(0.0, min(times) - time.monotonic()) if times else None
        sources = [self._wake] if self._greeted else [self._wake, self._ready]
        found, _, _ = select.select(sources, [], [], timeout)
        if self._wake in found:
            os.read(self._wake, 1 << 12)
        if self._ready in found:
            self._greet()

    def _greet(self) -> None:
        self._greeted = True
        print(self.greeting, file=sys.stderr, flush=True)

    def _reap(self) -> None:
        """Take note of all processes that have ended.

        In a container this process is the first, to which the system gives all orphans.
        """
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not ended:
                return
            for child in self._children:
                if child.process is not None and child.process.pid == ended:
                    child.process.returncode = os.waitstatus_to_exitcode(status)
                    self._note_end(child, child.process)

    def _note_end(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        for path in self._metrics.glob(f"gauge_live*_{process.pid}.db"):  # as mark_process_dead
            path.unlink(missing_ok=True)
        makes_sense = child.note_end(time.monotonic(), process.returncode)
        if self._end_by is not None:
            return
        how = _how_it_ended(process.returncode)
        if makes_sense:
            fields = {"role": child.role, "pid": process.pid, "how": how}
            _log.warning("a process has ended and is started again", extra={"fields": fields})
            return
        print(
            f"tfod: the {child.role} ended {child.quick_ends} times right after its start ({how}); "
            "what it wrote above says why",
            file=sys.stderr,
        )
        self._end(EXIT_GAVE_UP)

    def _end(self, status: int) -> None:
        """Tell the children to end."""
        self._status = status
        self._end_by = time.monotonic() + self._drain_seconds
        if self._listener is not None:
            self._listener.close()  # the children close theirs: new clients are refused
        for child in self._children:
            if child.process is not None:
                os.kill(child.process.pid, signal.SIGTERM)

    def _kill_all(self) -> None:
        """Kill the children that still run."""
        for child in self._children:
            if child.process is not None:
                child.process.kill()
                child.process.wait()
                child.process = None


def _how_it_ended(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"
