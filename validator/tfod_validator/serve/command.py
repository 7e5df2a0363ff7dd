"""``tfod serve``: the options of the service, and the environment variables beside them."""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from tfod.cli.arguments import file_name, whole_number
from tfod.errors import TfodError, how_to_install

from tfod_validator.settings import ENVIRONMENT_PREFIX, Limits, Settings

_PACKAGES = (
    *("flask", "flask-openapi3", "gunicorn", "SQLAlchemy", "prometheus-client", "jinja2", "lxml"),
    "Pillow",
)
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1", "[::1]")
_OPTIONS = [one for one in fields(Settings) if one.metadata]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``serve`` takes."""
    parser.description = (
        "Serve a page and an HTTP API that check uploads, until Ctrl-C or SIGTERM. "
        "Each option can be set by an environment variable too: TFOD_PORT for --port. "
        "Only there: TFOD_TOKENS (with commas; only requests that have one of them are answered), "
        "TFOD_SECRET_KEY (signs cookies), TFOD_DATABASE_URL (PostgreSQL); "
        "TFOD_TOKENS_FILE and TFOD_SECRET_KEY_FILE name files that hold them."
    )
    parser.epilog = "Limits are environment variables, too: the service's page /docs lists them."
    groups = {name: parser.add_argument_group(name) for name in ("where", "how many")}
    for one in _OPTIONS:
        default = f" (default: {one.default})" if one.default != () else ""
        groups[one.metadata["group"]].add_argument(
            "--" + one.name.replace("_", "-"),
            type=_reader_of(one),
            metavar="N" if isinstance(one.default, int) else one.name.upper(),
            help=one.metadata["help"] + default,
        )
    parser.set_defaults(run=_run)


def settings_from(options: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings by options, or else by environment variables, or else the defaults.

    Raises:
        TfodError: a variable makes no sense.
    """
    chosen: dict[str, Any] = {}
    for one in (*_OPTIONS, *fields(Limits)):
        value = getattr(options, one.name, None)
        variable = ENVIRONMENT_PREFIX + one.name.upper()
        if value is None and environment.get(variable):
            try:
                value = _reader_of(one)(environment[variable])
            except argparse.ArgumentTypeError as error:
                raise TfodError(f"{variable}: {error}") from None
        if value is not None:
            chosen[one.name] = value
    limits = {one.name: chosen.pop(one.name) for one in fields(Limits) if one.name in chosen}
    chosen["data"] = chosen.get("data", Settings.data).absolute()
    host = chosen.get("host", Settings.host)
    hosts = chosen.get("hosts", ())
    if hosts or (not chosen.get("trusted_proxies") and _is_loopback(host)):
        # No other name leads to loopback honestly; elsewhere health checks use these names.
        chosen["hosts"] = tuple(dict.fromkeys((*hosts, *_LOOPBACK_NAMES, host)))
    return Settings(
        **chosen,
        database_url=environment.get("TFOD_DATABASE_URL", ""),
        tokens=_tokens(environment),
        secret_key=_secret(environment, "TFOD_SECRET_KEY"),
        limits=Limits(**limits),
    )


def _reader_of(option: Field[Any]) -> Callable[[str], Any]:
    if isinstance(option.default, int):
        return whole_number(option.metadata["least"], option.metadata["most"])
    if isinstance(option.default, Path):
        return lambda text: Path(file_name(text))
    return _list if isinstance(option.default, tuple) else type(option.default)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _run(options: argparse.Namespace) -> int:
    if not hasattr(os, "fork"):
        raise TfodError(
            "tfod serve needs Linux or macOS, whose limits of processes it puts around each check; "
            "run its container image, or check here with: tfod check"
        )
    modules = {name: name.lower().replace("-", "_") for name in _PACKAGES} | {"Pillow": "PIL"}
    missing = [name for name, module in modules.items() if not importlib.util.find_spec(module)]
    if missing:
        raise TfodError(f"the service needs {', '.join(missing)}; {how_to_install('validator')}")
    from tfod_validator.serve import processes

    settings = settings_from(options, os.environ)
    if not settings.web and not settings.workers:
        raise TfodError("--web 0 --workers 0: nothing is left to do; let one be 1 or more")
    _require_database(settings)
    if settings.web and not settings.tokens and not _is_loopback(settings.host):
        print(
            f"tfod: warning: everybody who reaches {settings.host} may use the service; set "
            "TFOD_TOKENS to let only those in who have a token",
            file=sys.stderr,
        )
    return processes.run(settings)


def _require_database(settings: Settings) -> None:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        make_url(settings.database()).get_dialect()
    except SQLAlchemyError:  # its text may hold a password
        what = "is no URL of PostgreSQL; write postgresql://user:password@host/name"
        raise TfodError(f"TFOD_DATABASE_URL: {what}") from None


def _tokens(environment: Mapping[str, str]) -> tuple[str, ...]:
    given = _secret(environment, "TFOD_TOKENS")
    tokens = tuple(token for line in given.split() for token in _list(line))
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
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise TfodError(f"{name}_FILE={path}: cannot be read ({why})") from None
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
