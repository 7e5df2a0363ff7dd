"""``tfod serve``: the options of the service, and where else they may be written."""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfod.errors import TfodError, how_to_install

from tfod_validator.settings import (
    ENVIRONMENT_PREFIX,
    Settings,
    limit_names,
    limits_from,
    list_of,
)

_PACKAGES = {
    "flask": "flask",
    "waitress": "waitress",
    "huey": "huey",
    "sqlalchemy": "SQLAlchemy",
    "prometheus_client": "prometheus-client",
    "apispec": "apispec",
    "jinja2": "jinja2",
    "lxml": "lxml",
    "PIL": "Pillow",
}


@dataclass(frozen=True)
class _Whole:
    """Reads a whole number of a range."""

    least: int
    most: int | None = None

    def __call__(self, text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) < 20
        number = int(text) if is_number else -1
        if number < self.least or (self.most is not None and number > self.most):
            span = f"{self.least} or more" if self.most is None else f"up to {self.most}"
            raise argparse.ArgumentTypeError(f"must be a whole number, {span}")
        return number


_NUMBERS = {
    "port": _Whole(0, 65535),
    "trusted_proxies": _Whole(0),
    "web": _Whole(0),
    "workers": _Whole(0),
    "checks": _Whole(1),
    "threads": _Whole(1),
}
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1", "[::1]")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``serve`` to the commands."""
    parser = commands.add_parser(
        "serve",
        help="a page and an HTTP API that check what is uploaded",
        description="Serve a page and an HTTP API that check uploads, until Ctrl-C or SIGTERM "
        "ends it. Each option can be set by an environment variable too: TFOD_PORT for --port. "
        "Only there: TFOD_TOKENS (with commas: who sends one of them may use the service), "
        "TFOD_SECRET_KEY (signs cookies), TFOD_DATABASE_URL (PostgreSQL), TFOD_REDIS_URL; "
        "TFOD_TOKENS_FILE and TFOD_SECRET_KEY_FILE name files that hold them.",
    )
    where = parser.add_argument_group("where")
    where.add_argument("--host", metavar="NAME", help="address to listen at (default: 127.0.0.1)")
    where.add_argument(
        "--port", type=_NUMBERS["port"], metavar="N", help="0 for any that is free (default: 8080)"
    )
    where.add_argument(
        "--data", metavar="DIR", help="folder for uploads and reports (default: ./tfod-data)"
    )
    where.add_argument(
        "--hosts",
        metavar="A,B",
        help="names by which it may be called (default: all; on loopback only loopback's)",
    )
    where.add_argument(
        "--trusted-proxies",
        type=_NUMBERS["trusted_proxies"],
        metavar="N",
        help="so many proxies before it append to X-Forwarded-* (default: 0)",
    )
    size = parser.add_argument_group("how many")
    for name, meaning in (
        ("web", "web processes (default: 1)"),
        ("workers", "worker processes (default: 1)"),
        ("checks", f"checks that a worker runs at a time (default: {Settings.checks})"),
        ("threads", f"threads of a web process (default: {Settings.threads})"),
    ):
        size.add_argument(f"--{name}", type=_NUMBERS[name], metavar="N", help=meaning)
    limits = parser.add_argument_group("limits")
    for name, default, meaning in limit_names():
        option = "--" + name.replace("_", "-")
        text = f"{meaning} (default: {default})"
        limits.add_argument(option, type=_Whole(1), metavar="N", help=text)
    parser.set_defaults(run=_run)


def settings_from(options: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings by options, or else by environment variables, or else as they are.

    Raises:
        TfodError: a variable makes no sense.
    """
    chosen = vars(options)
    host = _text(chosen, environment, "host", "127.0.0.1")
    trusted_proxies = _number(chosen, environment, "trusted_proxies", 0)
    hosts = list_of(_text(chosen, environment, "hosts", ""))
    if hosts or (not trusted_proxies and _is_loopback(host)):
        # On loopback no other name leads here honestly; elsewhere health checks use these.
        hosts = tuple(dict.fromkeys((*hosts, *_LOOPBACK_NAMES, host)))
    return Settings(
        data=Path(_text(chosen, environment, "data", "tfod-data")).absolute(),
        database_url=environment.get("TFOD_DATABASE_URL", ""),
        redis_url=environment.get("TFOD_REDIS_URL", ""),
        tokens=_tokens(environment),
        secret_key=_secret(environment, "TFOD_SECRET_KEY"),
        hosts=hosts,
        trusted_proxies=trusted_proxies,
        checks=_number(chosen, environment, "checks", Settings.checks),
        threads=_number(chosen, environment, "threads", Settings.threads),
        limits=limits_from({name: chosen.get(name) for name, _, _ in limit_names()}, environment),
    )


def _run(options: argparse.Namespace) -> int:
    if not hasattr(os, "fork"):
        raise TfodError(
            "tfod serve needs Linux or macOS, whose limits of processes it puts around each check; "
            "run its container image, or check here with: tfod check"
        )
    _require_packages()
    from tfod_validator import logs, supervisor

    settings = settings_from(options, os.environ)
    chosen = vars(options)
    host = _text(chosen, os.environ, "host", "127.0.0.1")
    port = _number(chosen, os.environ, "port", 8080)
    web = _number(chosen, os.environ, "web", 1)
    workers = _number(chosen, os.environ, "workers", 1)
    if not web and not workers:
        raise TfodError("--web 0 --workers 0: nothing is left to do; let one be 1 or more")
    if web and not settings.tokens and not _is_loopback(host):
        print(
            f"tfod: warning: whoever reaches {host} may use the service; set TFOD_TOKENS, and only "
            "those who know a token may",
            file=sys.stderr,
        )
    logs.configure()
    return supervisor.run(settings, host, port, web, workers)


def _require_packages() -> None:
    missing = [name for name, known in _PACKAGES.items() if not importlib.util.find_spec(name)]
    if missing:
        names = ", ".join(_PACKAGES[name] for name in missing)
        raise TfodError(f"the service needs {names}; {how_to_install('validator')}")


def _text(
    chosen: Mapping[str, object], environment: Mapping[str, str], name: str, default: str
) -> str:
    given = chosen.get(name)
    return str(given) if given else environment.get(_variable(name)) or default


def _number(
    chosen: Mapping[str, object], environment: Mapping[str, str], name: str, default: int
) -> int:
    given = chosen.get(name)
    text = environment.get(_variable(name))
    if given is None and text:
        try:
            return _NUMBERS[name](text)
        except argparse.ArgumentTypeError as error:
            raise TfodError(f"{_variable(name)}={text}: {error}") from None
    return given if isinstance(given, int) else default


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def _tokens(environment: Mapping[str, str]) -> tuple[str, ...]:
    given = _secret(environment, "TFOD_TOKENS")
    tokens = tuple(token for line in given.split() for token in list_of(line))
    if not tokens and ("TFOD_TOKENS_FILE" in environment or given):
        raise TfodError("TFOD_TOKENS: holds no token; leave it out if everybody may come in")
    if not all(token.isascii() and token.isprintable() for token in tokens):
        raise TfodError("TFOD_TOKENS: a token may have letters, digits and signs of ASCII only")
    return tokens


def _secret(environment: Mapping[str, str], name: str) -> str:
    """A variable, or what is in the file that its sibling names."""
    text, path = environment.get(name, ""), environment.get(f"{name}_FILE", "")
    if not path:
        return text
    if text:
        raise TfodError(f"{name} and {name}_FILE: set one of them, not both")
    try:
        found = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TfodError(f"{name}_FILE={path}: cannot be read ({error})") from None
    if not found:
        raise TfodError(f"{name}_FILE={path}: is empty; write the secret into it, or leave it out")
    return found


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
