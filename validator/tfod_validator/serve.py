"""``tfod serve``: its options, and what it needs."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
import types
from pathlib import Path

from tfod.cli.arguments import not_empty, whole_number
from tfod.errors import TfodError, how_to_install

_PACKAGES = ("flask", "waitress", "prometheus_client", "jinja2", "lxml", "PIL", "yaml")
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``serve`` takes."""
    parser.description = (
        "Serve a page and an HTTP API that check uploads, until Ctrl-C or SIGTERM. "
        "Other settings are environment variables: TFOD_TOKEN (who has it may use the service), "
        "TFOD_QUEUE (redis://…, for workers on several machines), TFOD_TRUSTED_PROXY; "
        "the service's page /docs lists the limits."
    )
    parser.add_argument("--host", help="address to listen at (default: 127.0.0.1)")
    port_help = "port to listen at (default: 8080; 0 for any that is free)"
    parser.add_argument("--port", type=whole_number(0, 65535), metavar="N", help=port_help)
    data_help = "folder for uploads and reports (default: tfod-data)"
    parser.add_argument("--data", type=_folder, metavar="DIR", help=data_help)
    worker_help = "do not serve, but check what others have taken in, by TFOD_QUEUE"
    parser.add_argument("--worker", action="store_true", help=worker_help)
    parser.set_defaults(run=_run)


def _folder(text: str) -> Path:
    return Path(not_empty(text))


def _run(options: argparse.Namespace) -> int:
    if not hasattr(os, "fork"):
        raise TfodError(
            "tfod serve needs Linux or macOS, whose limits of processes it puts around each check; "
            "run its container image, or check here with: tfod check"
        )
    missing = [one for one in _PACKAGES if not importlib.util.find_spec(one)]
    if missing:
        raise TfodError(f"the service needs {', '.join(missing)}; {how_to_install('validator')}")
    from tfod_validator.folder import DataFolder
    from tfod_validator.settings import Settings

    settings = Settings.of(host=options.host, port=options.port, data=options.data)
    if settings.queue and not importlib.util.find_spec("rq"):
        raise TfodError(f"TFOD_QUEUE needs rq; {how_to_install('scale')}")
    if options.worker and not settings.queue:
        raise TfodError("--worker: set TFOD_QUEUE to the URL of the Redis that the service uses")
    DataFolder(settings).make()
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("waitress").setLevel(logging.ERROR)
    # The processes of checks would import the module that the user has started.
    sys.modules["__main__"] = types.ModuleType("__main__")
    if options.worker:
        from tfod_validator.workers import work

        os.environ["TFOD_DATA"] = str(settings.data)
        work(settings)
        return 0
    from tfod_validator.server import serve

    return serve(settings)
