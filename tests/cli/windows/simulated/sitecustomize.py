"""Simulate Windows for the code of tfod, if this folder is on PYTHONPATH.

The modules of Python and other packages stay complete, since they have their own code for Windows.
"""

from __future__ import annotations

import builtins
import errno
import importlib
import multiprocessing
import multiprocessing.context
import os
import shutil
import signal
import sys
import tempfile
import types
import warnings

LACKING_MODULES = frozenset(
    ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix", "crypt", "nis")
)
# Names with "Availability: Unix" in the library reference that tfod could use.
LACKING: dict[types.ModuleType, frozenset[str]] = {
    os: frozenset(
        """chown chroot confstr copy_file_range eventfd fchdir fchmod fchown fdatasync fork forkpty
        fpathconf getegid geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getsid
        getuid initgroups killpg lchown lockf memfd_create mkfifo mknod nice openpty pathconf
        pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn pread preadv pwrite pwritev
        readv register_at_fork sched_getaffinity sched_setaffinity sched_yield sendfile setegid
        seteuid setgid setpgid setpriority setsid setuid splice statvfs sync sysconf tcgetpgrp
        ttyname uname wait wait3 wait4 waitid writev WEXITSTATUS WIFEXITED WIFSIGNALED WNOHANG
        WTERMSIG O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY O_NOATIME O_NOCTTY
        O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE""".split()  # noqa: SIM905
    ),
    signal: frozenset(
        """SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGPWR SIGQUIT
        SIGSTOP SIGSYS SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH
        SIGXCPU SIGXFSZ SIG_BLOCK SIG_SETMASK SIG_UNBLOCK alarm getitimer pause pthread_kill
        pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait
        sigwaitinfo""".split()  # noqa: SIM905
    ),
}


def _is_ours(depth: int) -> bool:
    name = sys._getframe(depth + 1).f_globals.get("__name__", "")
    return name.partition(".")[0] in ("tfod", "tfod_validator") or name == "__main__"


class _WithoutPosix(types.ModuleType):
    def __getattribute__(self, name: str) -> object:
        if name in LACKING[self] and _is_ours(1):
            raise AttributeError(f"module {self!r} has no attribute {name!r} on Windows")
        return super().__getattribute__(name)


for _module in LACKING:
    _module.__class__ = _WithoutPosix

_import, _import_module = builtins.__import__, importlib.import_module


def _import_statement(name: str, *arguments: object, **options: object) -> object:
    if name in LACKING_MODULES and _is_ours(1):
        raise ImportError(f"no module named {name!r} on Windows", name=name)
    return _import(name, *arguments, **options)


def _import_function(name: str, package: str | None = None) -> object:
    if name in LACKING_MODULES and _is_ours(1):
        raise ImportError(f"no module named {name!r} on Windows", name=name)
    return _import_module(name, package)


builtins.__import__, importlib.import_module = _import_statement, _import_function

# Processes are spawned; none is forked.
multiprocessing.set_start_method("spawn")
for _kind in ("fork", "forkserver"):
    multiprocessing.context._concrete_contexts.pop(_kind)


def _open_paths() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return found


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    """No file is renamed, replaced or removed while it is open, and no folder is opened."""
    paths: list[str] = []
    if event in ("os.rename", "os.remove"):
        names = arguments[: 1 + (event == "os.rename")]
        paths = [os.path.realpath(os.fsdecode(str(one))) for one in names]
        paths = [path for path in paths if path in _open_paths()]
    elif event == "open" and arguments[1] is None and os.path.isdir(str(arguments[0])):
        paths = [str(arguments[0])]  # by os.open
    if paths:
        raise PermissionError(errno.EACCES, "Permission denied", paths[0])


sys.addaudithook(_hook)
# Windows opens no folder to remove it, and removes no open file.
os.supports_dir_fd.clear()
importlib.reload(shutil)
tempfile.TemporaryFile = tempfile.NamedTemporaryFile
# The locale's encoding is never UTF-8, so that opening a text needs an encoding.
warnings.filterwarnings("error", category=EncodingWarning, module=r"tfod")
