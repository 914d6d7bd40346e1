"""What the pages need of Airflow: who asks, what they may do, and what Airflow knows of its DAGs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class RecoveryDag:
    exists: bool
    paused: bool
    may_start: bool


@dataclass(frozen=True, slots=True)
class Used:
    """A pipeline that a task works on."""

    connection: str | None
    """None: only a run can tell."""
    pipeline: str | None


class Rights(ABC):
    """The first five are dependencies of FastAPI: each answers 401 to nobody, and 403 to whoever has not the right.

    The right to read a connection is the right to see what is in its store; the right to edit it, to change that.
    """

    user: ClassVar[Callable[..., Any]]
    reads_connection: ClassVar[Callable[..., Any]]
    """Of the path parameter ``connection_id``."""
    changes_connection: ClassVar[Callable[..., Any]]
    reads_dag: ClassVar[Callable[..., Any]]
    """Of the path parameter ``dag_id``."""
    reads_run: ClassVar[Callable[..., Any]]

    @abstractmethod
    def connections(self, user: Any) -> list[str]:
        """Checkpoint stores that somebody may read."""

    @abstractmethod
    def may_read(self, user: Any, connection: str) -> bool: ...

    @abstractmethod
    def may_change(self, user: Any, connection: str) -> bool: ...

    @abstractmethod
    def recovery_dag(self, user: Any, dag_id: str) -> RecoveryDag: ...

    @abstractmethod
    def writers(self, user: Any, asset_uri: str) -> list[str]:
        """DAGs that somebody may see and that have the checkpoints of a pipeline as an outlet."""

    @abstractmethod
    def used_by_dag(self, dag_id: str) -> list[Used] | None:
        """What the tasks of a DAG work on; None if there is no such DAG."""

    @abstractmethod
    def used_by_run(self, dag_id: str, run_id: str) -> list[Used] | None:
        """What the tasks of a run worked on; None if there is no such run."""
