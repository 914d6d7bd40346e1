"""A whole Airflow on this machine, in a folder of its own: both API servers, scheduler, dag-processor and triggerer.

Listens on the loopback address only, on ports that were free, and is stopped by process group.

Tasks have an API server of their own. In one server for all, the API for people writes its audit log inside the event
loop, and waits there for SQLite's only writer; if that is a request of a task, whose end needs the same loop, both wait
until the database gives up.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx

ROOT = Path(__file__).resolve().parent.parent
COMPONENTS = ("api-server", "execution-api", "scheduler", "dag-processor", "triggerer")
COMMANDS = {
    "api-server": ("api-server", "--apps", "core"),
    "execution-api": ("api-server", "--apps", "execution"),
}
"""How a component is started, where its name is not the command."""
PATIENCE = 400.0


class LocalAirflow:
    """Starts on entering, stops on leaving.

    :param folder: home of this Airflow: its database, logs and passwords.
    :param users: names and roles; each user's password is its name.
    :param environment: more variables for every component, and so for every task.
    :param below: a path below which everything is, as behind a proxy that serves more than Airflow: ``/airflow``.
    :param components: what to start; pages without DAGs need no more than the api-server.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dags: Path = ROOT / "dags",
        users: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        below: str = "",
        components: tuple[str, ...] = COMPONENTS,
    ) -> None:
        self.folder = folder
        self.users = users or {"admin": "admin"}
        self.port, self._tasks_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}{below}"
        self.components = components
        self.environment = self._environment(dags) | (environment or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tokens: dict[str, str] = {}
        # One for all requests: making one takes longer than most answers. This Airflow speaks plain HTTP.
        self._client = httpx.Client(base_url=self.url, timeout=150, verify=False, trust_env=False)  # noqa: S501

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        passwords = self.folder / "passwords.json"
        passwords.write_text(json.dumps({name: name for name in self.users}))
        passwords.chmod(0o600)
        try:
            self._run("db", "migrate")
            for component in self.components:
                self.start(component)
            self._wait_until_up()
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    # -- components ----------------------------------------------------------------------------------------------

    def start(self, component: str) -> None:
        with (self.folder / f"{component}.log").open("ab") as log:
            self._processes[component] = subprocess.Popen(  # noqa: S603 - our own environment
                [sys.executable, "-m", "airflow", *COMMANDS.get(component, (component,))],
                env=self.environment | (self._for_tasks() if component == "execution-api" else {}),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self, component: str, number: int = signal.SIGKILL) -> None:
        """End a component and everything it has started that still is in its group."""
        process = self._processes.pop(component)
        os.killpg(process.pid, number)
        process.wait(60)

    def stop_all(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            with suppress(ProcessLookupError):
                # Whatever is left of the group, also after its leader has gone.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        self._client.close()

    def log_of(self, component: str) -> str:
        return (self.folder / f"{component}.log").read_text(errors="replace")

    # -- the API, as the pages use it ----------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, *, user: str | None = "admin") -> httpx.Response:
        """One request. ``user=None`` asks as nobody."""
        headers = {} if user is None else {"Authorization": f"Bearer {self.token(user)}"}
        return self._client.request(method, path, json=body, headers=headers)

    def get(self, path: str, **keywords: Any) -> Any:
        return _checked(self.ask("GET", path, **keywords))

    def post(self, path: str, body: Any, **keywords: Any) -> Any:
        return _checked(self.ask("POST", path, body, **keywords))

    def add_connection(self, conn_id: str, conn_type: str, **fields: Any) -> None:
        extra = fields.pop("extra", None)
        text = None if extra is None else json.dumps(extra)
        self.post("/api/v2/connections", {"connection_id": conn_id, "conn_type": conn_type, "extra": text, **fields})

    def unpause(self, *dag_ids: str) -> None:
        for dag_id in dag_ids:
            _checked(self.ask("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False}))

    def trigger(self, dag_id: str, conf: dict[str, Any], *, user: str = "admin") -> str:
        """Start a run as the form does; answers with its id."""
        run = self.post(f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf}, user=user)
        return str(run["dag_run_id"])

    def tasks(self, dag_id: str, run_id: str) -> dict[str, str]:
        """The state of each task of a run; of a mapped one, the states of all its instances."""
        found = self.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=100")["task_instances"]
        states: dict[str, str] = {}
        for each in found:
            name = each["task_id"] if each["map_index"] < 0 else f"{each['task_id']}[{each['map_index']}]"
            states[name] = each["state"] or "none"
        return states

    def wait_for_task(self, dag_id: str, run_id: str, task_id: str, *states: str, patience: float = PATIENCE) -> str:
        """Wait until a task is in one of the states, or the run has ended."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            self._require_alive()
            state = self.tasks(dag_id, run_id).get(task_id, "none")
            if state in states:
                return state
            if self.run_state(dag_id, run_id) in ("success", "failed"):
                raise AssertionError(f"the run ended, {task_id} is {state}: {self.tasks(dag_id, run_id)}")
            time.sleep(1)
        raise TimeoutError(f"{dag_id}.{task_id} did not become {' or '.join(states)}: {self.tasks(dag_id, run_id)}")

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def wait_for_run(self, dag_id: str, run_id: str, *, patience: float = PATIENCE) -> str:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            self._require_alive()
            state = self.run_state(dag_id, run_id)
            if state in ("success", "failed"):
                return state
            time.sleep(1)
        raise TimeoutError(f"{dag_id} did not end: {self.tasks(dag_id, run_id)}")

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.get(f"{path}?deserialize=false")["value"]

    def wait_for_question(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """Wait until a task asks, and may be answered.

        A person is never so quick: an answer that comes before the scheduler has noted that the first half of the task
        has ended makes it believe that the second half has died.
        """
        self.wait_for_task(dag_id, run_id, task_id, "awaiting_input")
        noted = f"task_id='{task_id}', run_id='{run_id}'"
        deadline = time.monotonic() + PATIENCE
        while not any(
            noted in line and "Received executor event" in line for line in self.log_of("scheduler").splitlines()
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the scheduler has not noted that {task_id} waits")
            time.sleep(0.5)
        return self.question(dag_id, run_id, task_id)

    def question(self, dag_id: str, run_id: str, task_id: str, *, user: str = "admin") -> Any:
        """What a task asks of a person."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        return self.get(path, user=user)

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str, *, user: str = "admin") -> httpx.Response:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        return self.ask("PATCH", path, {"chosen_options": [option], "params_input": {}}, user=user)

    def task_log(self, dag_id: str, run_id: str, task_id: str, number: int = 1) -> str:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{number}"
        content = self.get(f"{path}?full_content=true")["content"]
        return "\n".join(_told(line) if isinstance(line, dict) else str(line) for line in content)

    # -- underneath ----------------------------------------------------------------------------------------------

    def _environment(self, dags: Path) -> dict[str, str]:
        settings = {
            "CORE__DAGS_FOLDER": str(dags),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self._tasks_port}/execution/",
            "CORE__FERNET_KEY": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "CORE__PARALLELISM": "4",
            "CORE__TEST_CONNECTION": "Enabled",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in self.users.items()),
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.folder / "passwords.json"),
            # Four processes share it, and a busy machine makes each wait for the others.
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder / 'airflow.db'}?timeout=120",
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            "API__BASE_URL": self.url,
            "API__SECRET_KEY": secrets.token_hex(16),
            "API__WORKERS": "1",
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
            # A request that its sender has given up leaves its transaction open for a while, and SQLite has one writer.
            "WORKERS__EXECUTION_API_TIMEOUT": "120",
            "LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "30",
            "LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            "SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "3",
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return (
            {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW__", "AIRFLOW_CONN_"))}
            | {f"AIRFLOW__{name}": value for name, value in settings.items()}
            | {
                "AIRFLOW_HOME": str(self.folder),
                "PATH": path,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "NO_PROXY": "127.0.0.1,localhost",
            }
        )

    def _for_tasks(self) -> dict[str, str]:
        """What the API server of the tasks has differently."""
        port = str(self._tasks_port)
        return {"AIRFLOW__API__PORT": port, "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}"}

    def _run(self, *words: str) -> None:
        done = subprocess.run(  # noqa: S603 - our own environment
            [sys.executable, "-m", "airflow", *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"airflow {' '.join(words)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")

    def _wait_until_up(self) -> None:
        """Until both APIs answer, and the DAGs have been read, if somebody reads them."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._require_alive()
            with suppress(httpx.HTTPError, AssertionError):
                if "execution-api" in self.components:
                    self.get(f"http://127.0.0.1:{self._tasks_port}/execution/health")
                if self.get("/api/v2/dags")["total_entries"] or "dag-processor" not in self.components:
                    return
            time.sleep(0.5)
        raise TimeoutError(f"Airflow did not come up:\n{self.log_of(self.components[-1])[-3000:]}")

    def _require_alive(self) -> None:
        dead = [name for name, process in self._processes.items() if process.poll() is not None]
        if dead:
            raise RuntimeError(f"{dead[0]} has ended:\n{self.log_of(dead[0])[-3000:]}")

    def token(self, user: str) -> str:
        """What a browser keeps in its cookie for a user who has signed in."""
        if user not in self._tokens:
            answer = self._client.post("/auth/token", json={"username": user, "password": user})
            self._tokens[user] = _checked(answer)["access_token"]
        return self._tokens[user]


def _checked(answer: httpx.Response) -> Any:
    assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:2000]}"
    return answer.json() if answer.content else None


def _told(line: dict[str, Any]) -> str:
    """A line of a log, and the error that it tells of."""
    errors = [f"{each.get('exc_type')}: {each.get('exc_value')}" for each in line.get("error_detail") or []]
    return "\n".join([str(line.get("event", "")), *errors])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
