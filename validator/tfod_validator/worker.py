"""A worker process: ``python -m tfod_validator.worker``.

The supervisor starts it with the settings in the environment. Little is imported here at first,
since the processes of checks import their parent's main module again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace

from tfod_validator import logs
from tfod_validator.settings import ENVIRONMENT_PREFIX, Settings
from tfod_validator.supervisor import READY_FD, SUPERVISOR_FD

DRAIN_SECONDS = 25.0
"""Checks that run may take so long when the process is told to end; then they run again later."""


def main() -> int:
    """Work until SIGTERM comes, or the supervisor is gone; return the exit status."""
    from tfod_validator.check_worker import Worker

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor hears it too, and tells us
    logs.configure()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = Settings.from_environment()
    worker = Worker(settings)
    _forget_secrets(settings)

    def follow() -> None:
        os.read(int(os.environ[SUPERVISOR_FD]), 1)  # ends when the supervisor does
        worker.give_up()
        stop.set()

    if SUPERVISOR_FD in os.environ:
        threading.Thread(target=follow, daemon=True, name="supervisor").start()
    worker.run(stop, DRAIN_SECONDS)
    return 0


def _forget_secrets(settings: Settings) -> None:
    """Leave nothing in the environment that checks, which read what strangers send, could tell."""
    for name in [one for one in os.environ if one.startswith(ENVIRONMENT_PREFIX)]:
        if name not in (SUPERVISOR_FD, READY_FD):
            del os.environ[name]
    known = replace(settings, tokens=(), secret_key="", database_url="", redis_url="")
    os.environ.update(known.to_environment())


if __name__ == "__main__":
    sys.exit(main())
