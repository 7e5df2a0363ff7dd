"""The database: validations with their states, and the documents of finished ones.

It is the queue, too. A worker claims a validation for as long as its lease; when the lease ends
before it is renewed, another worker may claim it. Times are seconds since the epoch.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Row
from sqlalchemy.pool import ConnectionPoolEntry

from tfod_validator.settings import Settings
from tfod_validator.validation import (
    FAILED,
    FINISHED,
    QUEUED,
    RUNNING,
    Request,
    Result,
    State,
    Validation,
)

_SEEN_SECONDS = 30.0
"""A worker that was seen so long ago is one that lives."""
_tables = sql.MetaData()
_validations = sql.Table(
    "validations",
    _tables,
    sql.Column("id", sql.String(64), primary_key=True),
    sql.Column("client", sql.String(64), nullable=False),
    sql.Column("owner", sql.String(64)),
    sql.Column("state", sql.String(16), nullable=False),
    sql.Column("request", sql.Text, nullable=False),
    sql.Column("created", sql.Double, nullable=False),
    sql.Column("started", sql.Double),
    sql.Column("ended", sql.Double),
    sql.Column("expires", sql.Double, nullable=False),
    sql.Column("attempts", sql.Integer, nullable=False, default=0),
    sql.Column("holder", sql.String(128)),
    sql.Column("lease", sql.Double),
    sql.Column("bytes_total", sql.BigInteger, nullable=False),
    sql.Column("bytes_done", sql.BigInteger, nullable=False, default=0),
    sql.Column("records_done", sql.BigInteger, nullable=False, default=0),
    sql.Column("valid", sql.Boolean),
    sql.Column("failure", sql.Text),
    sql.Column("images", sql.Text),
    sql.Index("validations_state", "state", "client"),
    sql.Index("validations_expires", "expires"),
    sql.Index("validations_client", "client", "started"),
)
_documents = sql.Table(
    "documents",
    _tables,
    sql.Column(
        "validation",
        sql.ForeignKey("validations.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("content", sql.LargeBinary, nullable=False),
)
_workers = sql.Table(
    "workers",
    _tables,
    sql.Column("name", sql.String(128), primary_key=True),
    sql.Column("seen", sql.Double, nullable=False),
)
_rates = sql.Table(
    "rates",
    _tables,
    sql.Column("name", sql.String(128), primary_key=True),
    sql.Column("full_at", sql.Double, nullable=False),
)
_marks = sql.Table(
    "marks",
    _tables,
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("mark", sql.String(64), nullable=False),
)


class Store:
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

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._turn, self._engine.begin() as connection:
            yield connection

    def create_tables(self) -> None:
        """Create what is missing; several processes may do so at the same time."""
        with self._writing() as connection:
            if not self._is_sqlite:
                # An advisory lock, since CREATE TABLE IF NOT EXISTS is not atomic in PostgreSQL.
                connection.execute(sql.text("SELECT pg_advisory_xact_lock(827364910)"))
            _tables.create_all(connection)

    def ping(self) -> bool:
        """Ask the database for an answer."""
        with self._reading.connect() as connection:
            return connection.scalar(sql.select(sql.literal(1))) == 1

    def add(
        self,
        key: str,
        client: str,
        request: Request,
        bytes_total: int,
        expires: float,
        owner: str | None = None,
    ) -> Validation:
        """Remember a new upload, as queued."""
        with self._writing() as connection:
            connection.execute(
                _validations.insert().values(
                    id=key,
                    client=client,
                    owner=owner,
                    state=QUEUED,
                    request=request.to_text(),
                    created=time.time(),
                    expires=expires,
                    bytes_total=bytes_total,
                )
            )
            return next(_select(connection, _validations.c.id == key))

    def find(self, key: str) -> Validation | None:
        """A validation that has not expired."""
        with self._reading.connect() as connection:
            wanted = (_validations.c.id == key) & (_validations.c.expires > time.time())
            return next(_select(connection, wanted), None)

    def document(self, key: str, name: str) -> bytes | None:
        """A document of a finished validation."""
        chosen = (_documents.c.validation == key) & (_documents.c.name == name)
        with self._reading.connect() as connection:
            packed = connection.scalar(sql.select(_documents.c.content).where(chosen))
        return None if packed is None else zlib.decompress(packed)

    def waiting(self, client: str) -> tuple[int, int]:
        """How many validations wait: of one client, and in all."""
        own = sql.func.sum(sql.case((_validations.c.client == client, 1), else_=0))
        query = sql.select(own, sql.func.count()).where(_validations.c.state == QUEUED)
        with self._reading.connect() as connection:
            of_client, in_all = connection.execute(query).one()
            return of_client or 0, in_all

    def counts(self) -> dict[str, int]:
        """How many validations there are in each state."""
        query = sql.select(_validations.c.state, sql.func.count()).group_by(_validations.c.state)
        with self._reading.connect() as connection:
            found: dict[str, int] = {}
            for state, count in connection.execute(query):
                found[state] = count
        return {state: found.get(state, 0) for state in (QUEUED, RUNNING, FINISHED, FAILED)}

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
        table, now = _validations, time.time()
        waits = _waits(holder, now) & table.c.id.not_in(busy)
        next_client = _next_client(waits, most_running, now)
        with self._reading.connect() as connection:
            if connection.scalar(next_client) is None:
                return None
        with self._writing() as connection:
            if not self._is_sqlite:
                # Two claims at the same moment would both count what runs of a client.
                connection.execute(sql.text("SELECT pg_advisory_xact_lock(827364911)"))
            client = connection.scalar(next_client)
            of_client = sql.select(table.c.id).where(waits & (table.c.client == client))
            first = of_client.order_by(table.c.created).limit(1).with_for_update(skip_locked=True)
            key = connection.scalar(first)
            changes = {"state": RUNNING, "started": now, "holder": holder, "lease": lease}
            attempts = table.c.attempts + 1
            connection.execute(
                table.update()
                .where(table.c.id == key)
                .values(**changes, attempts=attempts, bytes_done=0, records_done=0)
            )
            return next(_select(connection, table.c.id == key), None)

    def renew(self, key: str, holder: str, lease: float, done: tuple[int, int]) -> bool:
        """Go on with a validation, so many bytes and records; False if another has it now."""
        return self._change(key, holder, lease=lease, bytes_done=done[0], records_done=done[1])

    def release(self, key: str, holder: str, *, counts: bool, until: float | None = None) -> bool:
        """Let a validation wait again, until some time for other workers only.

        ``counts`` says whether it was an attempt. Returns False if another worker has it now.
        """
        attempts = _validations.c.attempts - (0 if counts else 1)
        kept = holder if until else None
        return self._change(key, holder, state=QUEUED, attempts=attempts, holder=kept, lease=until)

    def finish(self, key: str, holder: str, result: Result) -> bool:
        """Keep the result of a check; False if another worker has the validation now."""
        documents = [
            {"validation": key, "name": name, "content": zlib.compress(content, 6)}
            for name, content in result.documents.items()
        ]
        return self._change(
            key,
            holder,
            documents,
            state=FINISHED if result.failure is None else FAILED,
            ended=time.time(),
            holder=None,
            lease=None,
            bytes_done=_validations.c.bytes_total,
            records_done=result.records,
            valid=result.valid,
            failure=None if result.failure is None else json.dumps(result.failure),
            images=json.dumps(list(result.images)),
        )

    def _change(
        self,
        key: str,
        by: str,
        documents: Sequence[Mapping[str, Any]] = (),
        **values: Any,
    ) -> bool:
        """Change a validation that runs, and whose holder asks; False if that is not so."""
        held = (_validations.c.id == key) & (_validations.c.state == RUNNING)
        with self._writing() as connection:
            changed = connection.execute(
                _validations.update().where(held & (_validations.c.holder == by)).values(**values)
            )
            if changed.rowcount and documents:
                connection.execute(_documents.insert(), documents)
            return bool(changed.rowcount)

    def delete(self, key: str) -> bool:
        """Forget a validation and its documents; False if there is none."""
        with self._writing() as connection:
            return bool(
                connection.execute(_validations.delete().where(_validations.c.id == key)).rowcount
            )

    def delete_expired(self) -> list[str]:
        """Forget what is too old; returns which."""
        with self._writing() as connection:
            gone = connection.execute(
                _validations.delete()
                .where(_validations.c.expires <= time.time())
                .returning(_validations.c.id)
            )
            connection.execute(_rates.delete().where(_rates.c.full_at <= time.time()))
            return [row.id for row in gone]

    def take(self, name: str, most: int, seconds: float) -> float:
        """Take one of ``most`` turns in some seconds; the seconds until there is one again, or 0.

        All may be taken at once; they become free again evenly.
        """
        now, each = time.time(), seconds / most
        full_at, mine = _rates.c.full_at, _rates.c.name == name
        later = sql.case((full_at > now, full_at), else_=now) + each
        with self._writing() as connection:
            known = _rates.update().where(mine & (full_at <= now + seconds - each))
            if connection.execute(known.values(full_at=later)).rowcount:
                return 0.0
            new = self._insert(_rates).values(name=name, full_at=now + each)
            if connection.execute(new.on_conflict_do_nothing()).rowcount:
                return 0.0
            found = connection.scalar(sql.select(full_at).where(mine)) or now
            return max(0.0, found - (now + seconds - each))

    def mark(self, new: str) -> str:
        """The mark of the data folder that belongs to this database: the first that was given."""
        query = sql.select(_marks.c.mark)
        with self._writing() as connection:
            made = self._insert(_marks).values(name="data", mark=new)
            connection.execute(made.on_conflict_do_nothing())
            return str(connection.scalar(query))

    def known_mark(self) -> str | None:
        """The mark, if there is one already."""
        with self._reading.connect() as connection:
            return connection.scalar(sql.select(_marks.c.mark))

    def _insert(self, table: sql.Table) -> Any:
        """An INSERT that knows of conflicts, which is no standard SQL."""
        return (sqlite if self._is_sqlite else postgresql).insert(table)

    def needs_files(self, keys: Sequence[str]) -> set[str]:
        """Those of some uploads whose files are still needed."""
        query = sql.select(_validations.c.id).where(
            _validations.c.id.in_(keys) & _validations.c.state.in_((QUEUED, RUNNING))
        )
        with self._reading.connect() as connection:
            return set(connection.scalars(query))

    def see_worker(self, name: str, long_ago: float) -> None:
        """Note that a worker lives, and forget those that were last seen long ago."""
        now = time.time()
        with self._writing() as connection:
            known = connection.execute(
                _workers.update().where(_workers.c.name == name).values(seen=now)
            )
            if not known.rowcount:
                connection.execute(_workers.insert().values(name=name, seen=now))
            connection.execute(_workers.delete().where(_workers.c.seen < long_ago))

    def forget_worker(self, name: str) -> None:
        """Note that a worker has ended."""
        with self._writing() as connection:
            connection.execute(_workers.delete().where(_workers.c.name == name))

    def count_workers(self) -> int:
        """How many workers live."""
        lately = _workers.c.seen >= time.time() - _SEEN_SECONDS
        query = sql.select(sql.func.count()).select_from(_workers).where(lately)
        with self._reading.connect() as connection:
            return connection.scalar(query) or 0


def _next_client(
    waits: sql.ColumnElement[bool], most_running: int, now: float
) -> sql.Select[tuple[str]]:
    """The client whose turn it is."""
    table, others = _validations, _validations.alias()
    waiting = (
        sql.select(table.c.client, sql.func.min(table.c.created).label("first"))
        .where(waits)
        .group_by(table.c.client)
        .subquery()
    )
    same = others.c.client == waiting.c.client
    runs = same & (others.c.state == RUNNING) & (others.c.lease >= now)
    running = sql.select(sql.func.count()).where(runs).scalar_subquery()
    last_turn = sql.func.coalesce(sql.func.max(others.c.started), 0.0)
    return (
        sql.select(waiting.c.client)
        .where(running < most_running)
        .order_by(running, sql.select(last_turn).where(same).scalar_subquery(), waiting.c.first)
        .limit(1)
    )


def _waits(holder: str, now: float) -> sql.ColumnElement[bool]:
    """What a worker may take: what is queued, or held by a worker that is gone."""
    columns = _validations.c
    ended = columns.lease.is_(None) | (columns.lease < now)
    is_free = (columns.state == QUEUED) & (ended | (columns.holder != holder))
    is_lost = (columns.state == RUNNING) & ended
    return (columns.expires > now) & (is_free | is_lost)


def _select(connection: Connection, wanted: sql.ColumnElement[bool]) -> Iterator[Validation]:
    for row in connection.execute(sql.select(_validations).where(wanted)):
        yield _validation(row)


def _validation(row: Row[Any]) -> Validation:
    return Validation(
        id=row.id,
        client=row.client,
        owner=row.owner,
        state=cast(State, row.state),
        request=Request.from_text(row.request),
        created=row.created,
        started=row.started,
        ended=row.ended,
        expires=row.expires,
        attempts=row.attempts,
        bytes_total=row.bytes_total,
        bytes_done=min(row.bytes_done, row.bytes_total),
        records_done=row.records_done,
        valid=row.valid,
        failure=None if row.failure is None else json.loads(row.failure),
        images=json.loads(row.images or "[]"),
    )


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
