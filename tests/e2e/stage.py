"""What the end-to-end tests share: a pipeline in Airflow, its store, and how it comes to harm."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "dags" / "jobs"), str(ROOT / "demo")]

import clicks_stream  # noqa: E402 - it is a job
import orders  # noqa: E402 - it lives beside the job, where spark-submit finds it
from local_airflow import LocalAirflow  # noqa: E402 - it lives beside the demo, which uses it too

from airflow_provider_checkpoint.layouts import open_store  # noqa: E402 - after the path above

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts import Layout

__all__ = ["LocalAirflow", "Stage", "clicks_stream", "orders"]


@dataclass
class Stage:
    """One pipeline ``orders`` on a store of its own, with a connection of its own."""

    airflow: LocalAirflow
    folder: Path
    store: str
    options: dict[str, Any] = field(default_factory=dict)
    conn_id: str = "checkpoint_default"
    """Also the one that the DAG of the pipeline uses."""

    @classmethod
    def local(cls, airflow: LocalAirflow, folder: Path) -> Stage:
        stage = cls(airflow, folder, str(folder / "store"))
        stage.connect({})
        return stage

    def connect(self, extra: dict[str, Any]) -> None:
        """Point the connection at this store."""
        path = f"/api/v2/connections/{self.conn_id}"
        if self.airflow.ask("GET", path).status_code == 200:
            assert self.airflow.ask("DELETE", path).is_success
        self.airflow.add_connection(self.conn_id, "checkpoint_store", host=self.store, extra=extra)

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    @property
    def layout(self) -> Layout:
        return open_store(self.store, pipeline="orders", layout="partitioned", options=self.options)

    @property
    def job_conf(self) -> dict[str, Any]:
        return {"input": str(self.landing), "output": str(self.tables), "files_per_epoch": 1}

    def more_orders(self, files: int) -> None:
        first = len(list(self.landing.glob("*.jsonl"))) if self.landing.exists() else 0
        orders.generate(self.landing, files=files, orders=100, seed=3, customers=50, first=first)

    def run_pipeline(self) -> None:
        """Let the DAG of the pipeline take in all orders."""
        run = self.airflow.trigger("orders_pipeline", self.job_conf)
        state = self.airflow.wait_for_run("orders_pipeline", run)
        assert state == "success", self.airflow.task_log("orders_pipeline", run, "run")[-4000:]

    def start_recovery(self, **conf: Any) -> str:
        given = {"pipeline": "orders", "restart_conf": self.job_conf, "reason": uuid4().hex, **conf}
        return self.airflow.trigger("checkpoint_recovery", given)

    def damage_newest(self) -> str:
        """Flip a byte of the largest artifact that the newest checkpoint wrote itself; answers with its id."""
        layout = self.layout
        newest = layout.load(layout.candidates()[-1])
        own = [artifact for artifact in newest.artifacts if artifact.key.startswith(str(newest.id))]
        key = max(own, key=lambda artifact: artifact.size or 0).key
        data = bytearray(layout.blobs.read(key))
        data[len(data) // 2] ^= 1
        layout.blobs.replace(key, bytes(data))
        return str(newest.id)

    def drivers(self) -> list[int]:
        """Processes of Spark jobs that write to this store."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "--store" in words and any(self.store in word for word in words):
                    found.append(int(entry.name))
        return found

    def differences(self) -> list[str]:
        return orders.differences(self.landing, self.tables)
