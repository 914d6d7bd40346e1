"""A table in a database that follows a pipeline's history exactly: epochs are put in once, and taken out again.

Three tables stand beside the user's. ``checkpoint_tables`` holds the history that counts; ``checkpoint_epochs`` says
which epochs are in; ``<table>__undo`` keeps, for every row an epoch changed, what was there before. A table belongs to
one sink of one pipeline; nobody else writes to it.

An undo table was chosen over keeping all versions of a row behind a view: the user's table stays an ordinary table with
its own indexes, reading it costs nothing extra, and going back is an update in reverse order. It is exact because the
epochs in a table always form one line: a run forks from an epoch that is in, after taking out those behind it.

Everything about one epoch happens in one transaction: the history is locked and read, the epoch marked, old rows
saved, new ones put in. So whoever dies in between has done nothing, whoever comes twice changes nothing, and a writer
whose timeline was given up is turned away by the database itself, however late it comes.

The statements are plain SQL with ``INSERT ... ON CONFLICT DO UPDATE``, as SQLite and PostgreSQL have it. Names are
quoted, values are bound.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict

from airflow_provider_checkpoint.exceptions import ConfigurationError, FencedWriterError, NoRecoveryPointError
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.lifecycle.timelines import Lineage
from airflow_provider_checkpoint.spark.upsert_statements import Statements, TableShape
from airflow_provider_checkpoint.writing.sinks import EpochRef

Row: TypeAlias = Sequence[Any]
_TABLES = "checkpoint_tables"


class Cursor(Protocol):
    """As in PEP 249."""

    def execute(self, statement: str, values: Row = ..., /) -> Any: ...
    def executemany(self, statement: str, rows: Sequence[Row], /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> Any: ...


class Connection(Protocol):
    """As in PEP 249."""

    def cursor(self) -> Cursor: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class UpsertTable:
    """One table of one sink.

    :param connect: makes a connection that does not commit by itself. Called for each operation, on the driver.
    :param placeholder: how the driver of the database marks a value: ``?`` or ``%s``.
    :param undo_epochs: how many epochs can be taken out again; None for all of them. Going back further is refused.
    """

    def __init__(
        self,
        shape: TableShape,
        connect: Callable[[], Connection],
        *,
        placeholder: str = "?",
        undo_epochs: int | None = None,
    ) -> None:
        if placeholder not in ("?", "%s"):
            raise ConfigurationError("a placeholder is '?' or '%s'", subject=placeholder)
        self._shape = shape
        self._connect = connect
        self._undo_epochs = undo_epochs
        self._sql = Statements(shape, placeholder)
        self._ready = False

    def put(self, ref: EpochRef, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Put in the rows of an epoch, each key once. False if they were in already.

        Raises FencedWriterError if the history has gone on without this epoch.
        """
        with self._transaction() as cursor:
            return self._put(cursor, ref, rows)

    def rehearse(self, ref: EpochRef, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put in the rows of an epoch and take all back: what the database would refuse, it refuses now."""
        with contextlib.suppress(_RehearsedError), self._transaction() as cursor:
            self._put(cursor, ref, rows)
            raise _RehearsedError

    def holds(self, ref: EpochRef) -> bool:
        """Whether the rows of an epoch are in."""
        with self._transaction() as cursor:
            return self._is_in(cursor, ref)

    def require(self, history: Lineage) -> None:
        """Raise if the table could not follow a history that is about to begin."""
        with self._transaction() as cursor:
            known = self._history(cursor)
            if known is not None and known.current >= history.current:
                raise ConfigurationError(
                    f"the table holds rows of timeline {known.current}, which this pipeline never opened",
                    subject=self._shape.table,
                    hint="It is another pipeline's, or its checkpoints were deleted. Give the sink a table of its own,"
                    " or empty this one and its undo table, and delete its rows in checkpoint_epochs and"
                    " checkpoint_tables.",
                )
            self._require_undo(self._outside(cursor, history))

    def retain(self, history: Lineage) -> list[EpochRef]:
        """Take out every epoch that is not part of the history, and let no other in from now on."""
        with self._transaction() as cursor:
            known = self._history(cursor)
            if known is not None and known.current > history.current:
                raise FencedWriterError(
                    f"timeline {known.current} has taken over this table",
                    subject=self._shape.table,
                    hint="Another run has started since. Stop this writer.",
                )
            gone = self._outside(cursor, history)
            self._require_undo(gone)
            for ref, _ in gone:
                self._undo(cursor, ref)
            record = _History(current=history.current, reach=history.reach).model_dump_json()
            cursor.execute(self._sql.set_history, (record, self._shape.table))
        return [ref for ref, _ in gone]

    # -- steps ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        """All of it or nothing, and one after another."""
        self._make_tables()
        with contextlib.closing(self._connect()) as connection:
            try:
                cursor = connection.cursor()
                # A write, so that every database holds the row until the end: two writers take turns.
                cursor.execute(self._sql.lock, (self._shape.table,))
                _require_transaction(connection)
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def _put(self, cursor: Cursor, ref: EpochRef, rows: Sequence[Mapping[str, Any]]) -> bool:
        history = self._history(cursor)
        if history is not None and not _may_publish(history, ref):
            raise FencedWriterError(
                f"epoch {ref.epoch} of timeline {ref.timeline} is no part of the history of this table",
                subject=self._shape.table,
                hint="Another run has taken over. Stop this writer; nothing was written.",
            )
        if self._is_in(cursor, ref):
            return False
        cursor.execute(self._sql.mark, (self._shape.table, ref.timeline, ref.epoch, 1))
        self._save_old(cursor, ref, rows)
        cursor.executemany(self._sql.upsert, [[row[name] for name in self._shape.columns] for row in rows])
        self._forget_undo(cursor, ref)
        return True

    def _make_tables(self) -> None:
        if self._ready:
            return
        with contextlib.closing(self._connect()) as connection:
            try:
                cursor = connection.cursor()
                for statement in self._sql.tables:
                    cursor.execute(statement)
                cursor.execute(self._sql.add_table, (self._shape.table, ""))
                connection.commit()
            except Exception as error:
                # Errors of databases have no class in common.
                raise ConfigurationError(
                    f"the table cannot be written to: {error}",
                    subject=self._shape.table,
                    hint=f"It must exist and have the columns {', '.join(self._shape.columns)}.",
                ) from error
        self._ready = True

    def _history(self, cursor: Cursor) -> Lineage | None:
        cursor.execute(self._sql.history, (self._shape.table,))
        (text,) = cursor.fetchone()
        if not text:
            return None
        known = parse_model(_History, parse_object(text.encode(), subject=_TABLES), subject=_TABLES)
        return Lineage(known.current, known.reach)

    def _is_in(self, cursor: Cursor, ref: EpochRef) -> bool:
        cursor.execute(self._sql.is_in, (self._shape.table, ref.timeline, ref.epoch))
        return cursor.fetchone() is not None

    def _save_old(self, cursor: Cursor, ref: EpochRef, rows: Sequence[Mapping[str, Any]]) -> None:
        saved = []
        nothing = [None] * len(self._shape.values)
        for row in rows:
            key = [row[name] for name in self._shape.key]
            cursor.execute(self._sql.find, key)
            old = cursor.fetchone()
            saved.append(
                [ref.timeline, ref.epoch, int(old is not None), *key, *(nothing if old is None else old[len(key) :])]
            )
        cursor.executemany(self._sql.save, saved)

    def _forget_undo(self, cursor: Cursor, ref: EpochRef) -> None:
        if self._undo_epochs is not None:
            last = ref.epoch - self._undo_epochs
            cursor.execute(self._sql.forget, (last,))
            cursor.execute(self._sql.forget_marks, (self._shape.table, last))

    def _outside(self, cursor: Cursor, history: Lineage) -> list[tuple[EpochRef, bool]]:
        """The epochs that are not part of a history, and whether each can be taken out.

        Newest first: each epoch's old rows are those the one before it had left.
        """
        cursor.execute(self._sql.epochs, (self._shape.table,))
        marks = [(EpochRef(timeline, epoch), bool(undo)) for timeline, epoch, undo in cursor.fetchall()]
        return [(ref, undo) for ref, undo in marks if not history.contains(ref.timeline, ref.epoch)]

    def _require_undo(self, gone: Sequence[tuple[EpochRef, bool]]) -> None:
        lost = [ref for ref, undo in gone if not undo]
        if lost:
            newest = max(ref.epoch for ref in lost)
            raise NoRecoveryPointError(
                f"no undo is kept for epoch {newest} and before",
                subject=self._shape.table,
                hint=f"Start from a checkpoint of epoch {newest} or later. To go back further, empty the table and its"
                " undo table, delete its rows in checkpoint_epochs, and start fresh.",
            )

    def _undo(self, cursor: Cursor, ref: EpochRef) -> None:
        cursor.execute(self._sql.saved, (ref.timeline, ref.epoch))
        saved = cursor.fetchall()
        keys = len(self._shape.key)
        cursor.executemany(self._sql.upsert, [row[1:] for row in saved if row[0]])
        # Safe to delete: the epoch that goes away had put these rows in, and later ones are out already.
        cursor.executemany(self._sql.remove, [row[1 : 1 + keys] for row in saved if not row[0]])
        cursor.execute(self._sql.forget_one, (ref.timeline, ref.epoch))
        cursor.execute(self._sql.unmark, (self._shape.table, ref.timeline, ref.epoch))


class _RehearsedError(Exception):
    """Ends a transaction that was only tried."""


class _History(BaseModel):
    model_config = ConfigDict(frozen=True)

    current: int
    reach: dict[int, int | None]


def _may_publish(history: Lineage, ref: EpochRef) -> bool:
    # A newer timeline than any we know of: its writer has not called retain yet.
    return ref.timeline > history.current or history.contains(ref.timeline, ref.epoch)


def _require_transaction(connection: Connection) -> None:
    """A connection that commits each statement by itself would leave half an epoch behind."""
    # The one is PEP 249's extension, as psycopg has it; the other is how sqlite3 tells.
    if getattr(connection, "autocommit", False) is True or getattr(connection, "in_transaction", True) is False:
        raise ConfigurationError("the connection commits by itself", hint="Turn autocommit off in 'connect'.")
