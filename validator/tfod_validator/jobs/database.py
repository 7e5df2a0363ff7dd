"""The database: validations with their states, and the documents of finished ones.

It is the queue, too. A worker claims a validation for as long as its lease; when the lease ends
before it is renewed, another worker may claim it. Times are seconds since the epoch.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, Literal

import pydantic
import sqlalchemy as sql
from sqlalchemy import orm
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.pool import ConnectionPoolEntry

from tfod_validator.jobs.request import Request, Result
from tfod_validator.settings import Settings

State = Literal["queued", "running", "finished", "failed"]
STATES: tuple[State, ...] = ("queued", "running", "finished", "failed")
_SEEN_SECONDS = 30.0
"""A worker that was seen so long ago is one that lives."""
_TABLES, _CLAIMS, _RATES = 827364910, 827364911, 827364912
"""PostgreSQL's numbers of what only one transaction at a time may change."""
_REQUESTS = pydantic.TypeAdapter(Request)


class _AsText(sql.TypeDecorator[Request]):
    """A request in a column."""

    impl = sql.Text
    cache_ok = True

    def process_bind_param(self, value: Request | None, _: object) -> str | None:
        return None if value is None else _REQUESTS.dump_json(value).decode()

    def process_result_value(self, value: str | None, _: object) -> Request | None:
        return None if value is None else _REQUESTS.validate_json(value)


class _Table(orm.DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: sql.String(128),
        float: sql.Double,
        int: sql.BigInteger,
        Request: _AsText,
        State: sql.String(16),
    }


class Validation(_Table):
    """An upload, and how far its check is.

    Attributes:
        id: unguessable; who has it may read the report.
        client: who uploaded it, as a hash: a token, or an address.
        owner: the browser that uploaded it, as a hash, where there are no tokens.
        holder: the worker that checks it.
        lease: so long no other worker may claim it.
        failure: a problem document, when the check could not be done.
        images: what the drawn images show, in their order.
    """

    __tablename__ = "validations"
    id: Mapped[str] = mapped_column(primary_key=True)
    client: Mapped[str]
    owner: Mapped[str | None]
    state: Mapped[State]
    request: Mapped[Request]
    created: Mapped[float]
    started: Mapped[float | None]
    ended: Mapped[float | None]
    expires: Mapped[float]
    attempts: Mapped[int] = mapped_column(default=0)
    holder: Mapped[str | None]
    lease: Mapped[float | None]
    bytes_total: Mapped[int]
    bytes_done: Mapped[int] = mapped_column(default=0)
    records_done: Mapped[int] = mapped_column(default=0)
    valid: Mapped[bool | None]
    failure: Mapped[dict[str, Any] | None] = mapped_column(sql.JSON(none_as_null=True))
    images: Mapped[list[dict[str, Any]]] = mapped_column(sql.JSON, default=[])
    __table_args__ = (
        sql.Index("validations_state", "state", "client"),
        sql.Index("validations_expires", "expires"),
        sql.Index("validations_client", "client", "started"),
    )

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in ("finished", "failed")


class _Document(_Table):
    __tablename__ = "documents"
    validation: Mapped[str] = mapped_column(
        sql.ForeignKey("validations.id", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(primary_key=True)
    content: Mapped[bytes]


class _Worker(_Table):
    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(primary_key=True)
    seen: Mapped[float]


class _Rate(_Table):
    __tablename__ = "rates"
    name: Mapped[str] = mapped_column(primary_key=True)
    full_at: Mapped[float]


class _Mark(_Table):
    __tablename__ = "marks"
    name: Mapped[str] = mapped_column(primary_key=True)
    mark: Mapped[str]


_WORK = sql.select(Validation.id).where(Validation.state.in_(("queued", "running"))).limit(1)


class Database:
    """The database. All methods may be called from any thread and process.

    Methods raise :class:`sqlalchemy.exc.SQLAlchemyError` where the database does not answer.
    """

    def __init__(self, settings: Settings) -> None:
        url = settings.database()
        self._is_sqlite = url.startswith("sqlite")
        self._engine = sql.create_engine(
            url,
            pool_pre_ping=not self._is_sqlite,
            hide_parameters=True,  # or logs would hold what reports are called
            connect_args={} if self._is_sqlite else {"connect_timeout": 10},
        )
        # Of one process's threads one writes at a time: SQLite lets others wait in their sleep.
        self._turn = threading.Lock() if self._is_sqlite else nullcontext()
        self._reading = self._engine.execution_options(reads=True)
        if self._is_sqlite:
            sql.event.listen(self._engine, "connect", _prepare_sqlite)
            sql.event.listen(self._engine, "begin", _begin_at_once)

    def _rows(self, query: Any) -> Sequence[Any]:
        with orm.Session(self._reading) as session:
            return session.execute(query).all()

    def _first(self, query: sql.Select[Any]) -> Any:
        """The first column of the first row; None if there is none."""
        with orm.Session(self._reading) as session:
            return session.scalar(query)

    @contextmanager
    def _write(self, lock: int | None = None) -> Iterator[orm.Session]:
        """A transaction; only one at a time that has the same lock, as in SQLite all."""
        with (
            self._turn,
            orm.Session(self._engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            if lock and not self._is_sqlite:
                session.execute(sql.select(sql.func.pg_advisory_xact_lock(lock)))
            yield session

    def create_tables(self) -> None:
        """Create what is missing; several services may do so at the same time."""
        with self._write(_TABLES) as session:
            _Table.metadata.create_all(session.connection())

    def close(self) -> None:
        """Close all connections; the next call opens one again."""
        self._engine.dispose()

    def ping(self) -> bool:
        """Ask the database for an answer."""
        return bool(self._first(sql.select(sql.literal(1))))

    def add(
        self, key: str, client: str, request: Request, expires: float, owner: str | None = None
    ) -> Validation:
        """Remember a new upload, as queued."""
        added = Validation(id=key, client=client, owner=owner, state="queued", request=request)
        added.created, added.expires = time.time(), expires
        added.bytes_total = sum(one.bytes for one in request.sources)
        with self._write() as session:
            session.add(added)
        return added

    def find(self, key: str) -> Validation | None:
        """A validation that has not expired."""
        chosen = (Validation.id == key) & (Validation.expires > time.time())
        found: Validation | None = self._first(sql.select(Validation).where(chosen))
        return found

    def document(self, key: str, name: str) -> bytes | None:
        """A document of a finished validation."""
        chosen = (_Document.validation == key) & (_Document.name == name)
        packed = self._first(sql.select(_Document.content).where(chosen))
        return None if packed is None else zlib.decompress(packed)

    def waiting(self, client: str) -> tuple[int, int]:
        """How many validations wait: of one client, and in all."""
        own = sql.func.count().filter(Validation.client == client)
        query = sql.select(own, sql.func.count()).where(Validation.state == "queued")
        ((of_client, in_all),) = self._rows(query)
        return of_client, in_all

    def counts(self) -> dict[str, int]:
        """How many validations there are in each state."""
        query = sql.select(Validation.state, sql.func.count()).group_by(Validation.state)
        found: dict[str, int] = dict(self._rows(query))
        return {state: found.get(state, 0) for state in STATES}

    def has_work(self) -> bool:
        """Whether anything waits or runs; workers that have nothing to do ask this all the time."""
        with self._reading.connect() as connection:
            return connection.scalar(_WORK) is not None

    def claim(
        self, holder: str, lease: float, most_running: int, busy: Sequence[str] = ()
    ) -> Validation | None:
        """Take the next validation that may run; None if there is none.

        Of the clients that wait, the one of which the fewest run is next; then the one that had
        no turn for the longest time. A validation whose lease has ended waits, too.

        Args:
            holder: who takes it.
            lease: until when it is taken, unless :meth:`renew` is called.
            most_running: how many of one client may run at the same time.
            busy: what the holder is checking, whatever became of the lease.
        """
        now = time.time()
        waits = _waits(holder, now) & Validation.id.not_in(busy)
        next_client = _next_client(waits, most_running, now)
        if self._first(next_client) is None:
            return None
        with self._write(_CLAIMS) as session:  # two would both count what runs of a client
            of_client = waits & (Validation.client == session.scalar(next_client))
            query = sql.select(Validation).where(of_client).order_by(Validation.created).limit(1)
            found = session.scalar(query.with_for_update(skip_locked=True))
            if found is not None:
                # After the last one of this client has ended, however long the lock was waited for.
                found.state, found.started = "running", time.time()
                found.holder, found.lease = holder, lease
                found.attempts += 1
                found.bytes_done = found.records_done = 0
            return found

    def renew(self, key: str, holder: str, lease: float, done: tuple[int, int]) -> bool:
        """Go on with a validation, so many bytes and records; False if another has it now."""
        values = {"lease": lease, "bytes_done": done[0], "records_done": done[1]}
        return self._change(key, holder, values)

    def release(self, key: str, holder: str, *, counts: bool, until: float | None = None) -> bool:
        """Let a validation wait again, until some time for other workers only.

        ``counts`` says whether it was an attempt. Returns False if another worker has it now.
        """
        attempts = Validation.attempts - (0 if counts else 1)
        values = {"state": "queued", "attempts": attempts, "lease": until}
        return self._change(key, holder, values | {"holder": holder if until else None})

    def finish(self, key: str, holder: str, result: Result) -> bool:
        """Keep the result of a check; False if another worker has the validation now."""
        documents = [
            _Document(validation=key, name=name, content=zlib.compress(content, 6))
            for name, content in result.documents.items()
        ]
        values = {
            "state": "finished" if result.failure is None else "failed",
            "ended": time.time(),
            "bytes_done": Validation.bytes_total,
            "records_done": result.records,
            "valid": result.valid,
            "failure": result.failure,
            "images": list(result.images),
        }
        return self._change(key, holder, values | {"holder": None, "lease": None}, documents)

    def _change(
        self, key: str, by: str, values: Mapping[str, Any], documents: Sequence[_Document] = ()
    ) -> bool:
        """Change a validation that runs, and whose holder asks; False if that is not so."""
        held = (Validation.id == key) & (Validation.state == "running") & (Validation.holder == by)
        with self._write() as session:
            change = sql.update(Validation).where(held).values(values).returning(Validation.id)
            is_held = session.scalar(change) is not None
            session.add_all(documents if is_held else ())
            return is_held

    def delete(self, key: str) -> None:
        """Forget a validation and its documents."""
        with self._write() as session:
            session.execute(sql.delete(Validation).where(Validation.id == key))

    def delete_expired(self) -> list[str]:
        """Forget what is too old; returns which."""
        with self._write(_RATES) as session:  # or one would go that is being counted
            session.execute(sql.delete(_Rate).where(_Rate.full_at <= time.time()))
        with self._write() as session:
            old = sql.delete(Validation).where(Validation.expires <= time.time())
            return list(session.scalars(old.returning(Validation.id)))

    def take(self, name: str, most: int, seconds: float) -> float:
        """Take one of ``most`` turns in some seconds; the seconds until there is one again, or 0.

        All may be taken at once; they become free again evenly.
        """
        now, each = time.time(), seconds / most
        with self._write(_RATES) as session:
            rate = session.get(_Rate, name) or _Rate(name=name, full_at=now)
            rate_full_at = max(rate.full_at, now)
            wait = rate_full_at - (now + seconds - each)
            if wait <= 0:
                rate.full_at = rate_full_at + each
                session.add(rate)
            return max(0.0, wait)

    def mark(self) -> str | None:
        """The mark of the data folder that belongs to this database, if there is one already."""
        found: str | None = self._first(sql.select(_Mark.mark))
        return found

    def settle_mark(self, new: str) -> str:
        """The mark of the data folder that belongs to this database: the first that was given."""
        with self._write(_TABLES) as session:
            found = session.get(_Mark, "data") or _Mark(name="data", mark=new)
            session.add(found)
            return found.mark

    def needs_files(self, keys: Sequence[str]) -> set[str]:
        """Those of some uploads whose files are still needed."""
        is_needed = Validation.id.in_(keys) & Validation.state.in_(("queued", "running"))
        return {key for (key,) in self._rows(sql.select(Validation.id).where(is_needed))}

    def see_worker(self, name: str, long_ago: float) -> None:
        """Note that a worker lives, and forget those that were last seen long ago."""
        with self._write() as session:
            session.merge(_Worker(name=name, seen=time.time()))
            session.execute(sql.delete(_Worker).where(_Worker.seen < long_ago))

    def forget_worker(self, name: str) -> None:
        """Note that a worker has ended."""
        with self._write() as session:
            session.execute(sql.delete(_Worker).where(_Worker.name == name))

    def count_workers(self) -> int:
        """How many workers live."""
        lately = _Worker.seen >= time.time() - _SEEN_SECONDS
        count: int = self._first(sql.select(sql.func.count()).where(lately))
        return count


def _next_client(
    waits: sql.ColumnElement[bool], most_running: int, now: float
) -> sql.Select[tuple[str]]:
    """The client whose turn it is."""
    others = orm.aliased(Validation)
    waiting = (
        sql.select(Validation.client, sql.func.min(Validation.created).label("first"))
        .where(waits)
        .group_by(Validation.client)
        .subquery()
    )
    same = others.client == waiting.c.client
    runs = same & (others.state == "running") & (others.lease >= now)
    running = sql.select(sql.func.count()).where(runs).scalar_subquery()
    last_turn = sql.select(sql.func.coalesce(sql.func.max(others.started), 0.0)).where(same)
    return (
        sql.select(waiting.c.client)
        .where(running < most_running)
        .order_by(running, last_turn.scalar_subquery(), waiting.c.first)
        .limit(1)
    )


def _waits(holder: str, now: float) -> sql.ColumnElement[bool]:
    """What a worker may take: what is queued, or held by a worker that is gone."""
    ended = Validation.lease.is_(None) | (Validation.lease < now)
    is_free = (Validation.state == "queued") & (ended | (Validation.holder != holder))
    is_lost = (Validation.state == "running") & ended
    return (Validation.expires > now) & (is_free | is_lost)


def _prepare_sqlite(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions are begun by _begin_at_once
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_at_once(connection: Connection) -> None:
    """Take SQLite's lock when a transaction begins that will write.

    One that reads first and asks for the lock later cannot wait for another writer: it fails.
    """
    reads = connection.get_execution_options().get("reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
