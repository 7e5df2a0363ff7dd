"""What the app that answers the current request was made with."""

from __future__ import annotations

from flask import current_app

from tfod_validator.jobs import Store
from tfod_validator.queue import Queue
from tfod_validator.settings import Settings


def current_settings() -> Settings:
    """The settings of the service."""
    settings: Settings = current_app.extensions["tfod.settings"]
    return settings


def current_store() -> Store:
    """The database of the service."""
    store: Store = current_app.extensions["tfod.store"]
    return store


def current_mark() -> str | None:
    """The mark of the service's data folder."""
    mark: str | None = current_app.extensions["tfod.mark"]
    return mark


def current_queue() -> Queue:
    """The queue of the service."""
    queue: Queue = current_app.extensions["tfod.queue"]
    return queue
