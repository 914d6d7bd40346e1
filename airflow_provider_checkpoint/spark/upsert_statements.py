"""The SQL of ``upserts``, written once per table."""

# ruff: noqa: S608 - names are quoted and values bound; no text of a row ever becomes part of a statement

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Columns of an undo table, beside those of the table.
TIMELINE, EPOCH, EXISTED = "undo_timeline", "undo_epoch", "undo_existed"

_EPOCHS = (
    "CREATE TABLE IF NOT EXISTS checkpoint_epochs (table_name VARCHAR(200) NOT NULL, timeline BIGINT NOT NULL,"
    " epoch BIGINT NOT NULL, has_undo INTEGER NOT NULL, PRIMARY KEY (table_name, timeline, epoch))"
)


@dataclass(frozen=True, slots=True)
class TableShape:
    """The user's table.

    :param key: the columns of its primary key or of a unique index.
    :param values: the other columns that are written. Columns not named here are left alone, and a row that an undone
        epoch had put in goes away whole.
    """

    table: str
    key: tuple[str, ...]
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        names = (self.table, *self.columns)
        if not self.key or len(set(self.columns)) != len(self.columns) or any(not n or "\0" in n for n in names):
            raise ConfigurationError(
                "a table needs a name, a key, and columns that differ", subject=", ".join(map(repr, names))
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.values)


class Statements:
    """What is said to the database about one table."""

    def __init__(self, shape: TableShape, placeholder: str) -> None:
        self._placeholder = placeholder
        table, undo = self._name(shape.table), self._name(f"{shape.table}__undo")
        columns = self._names(shape.columns)
        one_epoch = self._where("table_name", "timeline", "epoch")
        this_table = self._where("table_name")

        # The types of the undo table are those of the table: columns of a query without rows.
        no_rows = f"CAST(0 AS BIGINT) AS {TIMELINE}, CAST(0 AS BIGINT) AS {EPOCH}, 0 AS {EXISTED}, {columns}"
        self.tables = (
            "CREATE TABLE IF NOT EXISTS checkpoint_tables (table_name VARCHAR(200) PRIMARY KEY, history TEXT NOT NULL)",
            _EPOCHS,
            f"CREATE TABLE IF NOT EXISTS {undo} AS SELECT {no_rows} FROM {table} WHERE 1 = 0",
        )
        self.add_table = self._insert("checkpoint_tables", ("table_name", "history")) + " ON CONFLICT DO NOTHING"
        self.lock = f"UPDATE checkpoint_tables SET history = history WHERE {this_table}"
        self.history = f"SELECT history FROM checkpoint_tables WHERE {this_table}"
        self.set_history = f"UPDATE checkpoint_tables SET history = {placeholder} WHERE {this_table}"

        self.mark = self._insert("checkpoint_epochs", ("table_name", "timeline", "epoch", "has_undo"))
        self.unmark = f"DELETE FROM checkpoint_epochs WHERE {one_epoch}"
        self.is_in = f"SELECT 1 FROM checkpoint_epochs WHERE {one_epoch}"
        newest_first = "ORDER BY epoch DESC, timeline DESC"
        self.epochs = f"SELECT timeline, epoch, has_undo FROM checkpoint_epochs WHERE {this_table} {newest_first}"
        older = f"{this_table} AND epoch <= {placeholder}"
        self.forget_marks = f"UPDATE checkpoint_epochs SET has_undo = 0 WHERE {older}"

        updates = ", ".join(f"{self._name(each)} = excluded.{self._name(each)}" for each in shape.values)
        action = f"UPDATE SET {updates}" if updates else "NOTHING"
        this_key = self._where(*shape.key)
        self.find = f"SELECT {columns} FROM {table} WHERE {this_key}"
        self.upsert = f"{self._insert(shape.table, shape.columns)} ON CONFLICT ({self._names(shape.key)}) DO {action}"
        self.remove = f"DELETE FROM {table} WHERE {this_key}"

        undone = self._where(TIMELINE, EPOCH)
        self.save = self._insert(f"{shape.table}__undo", (TIMELINE, EPOCH, EXISTED, *shape.columns))
        self.saved = f"SELECT {EXISTED}, {columns} FROM {undo} WHERE {undone}"
        self.forget_one = f"DELETE FROM {undo} WHERE {undone}"
        self.forget = f"DELETE FROM {undo} WHERE {EPOCH} <= {placeholder}"

    def _name(self, text: str) -> str:
        quoted = '"' + text.replace('"', '""') + '"'
        return quoted.replace("%", "%%") if self._placeholder == "%s" else quoted

    def _names(self, texts: Sequence[str]) -> str:
        return ", ".join(map(self._name, texts))

    def _where(self, *columns: str) -> str:
        return " AND ".join(f"{self._name(each)} = {self._placeholder}" for each in columns)

    def _insert(self, table: str, columns: Sequence[str]) -> str:
        marks = ", ".join([self._placeholder] * len(columns))
        return f"INSERT INTO {self._name(table)} ({self._names(columns)}) VALUES ({marks})"
