"""The pages and what can be done from them, as routes below ``/checkpoints``.

| route | right |
|---|---|
| ``GET /`` | signed in; shows the stores whose connection the user may read |
| ``GET /store/{connection}``, ``.../checkpoint`` | to read the connection |
| ``POST /store/{connection}/validate``, ``.../pin`` | to edit the connection |
| ``GET /dag/{dag}``, ``.../run/{run}`` | to read the DAG or its runs; shows stores as ``/`` does |

A recovery is started by Airflow's own API, with the rights that Airflow asks for.
"""
# Annotations are evaluated here and now: FastAPI reads those that name the dependencies handed in.

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import Depends, FastAPI, HTTPException, Query, Request, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.base import RequestResponseEndpoint
from starlette.responses import Response

from airflow_provider_checkpoint.exceptions import (
    AttentionError,
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    TransientError,
)
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.plugins import shell
from airflow_provider_checkpoint.plugins.desk import Desk
from airflow_provider_checkpoint.plugins.guards import nonsense, only_json_from_here, page, protect, sent
from airflow_provider_checkpoint.plugins.lookups import SlowStoreError
from airflow_provider_checkpoint.plugins.rights import Rights
from airflow_provider_checkpoint.plugins.settings import PageSettings
from airflow_provider_checkpoint.plugins.stores import unforeseen
from airflow_provider_checkpoint.reports.pipeline import Shown

#: From these tabs back to where the pages begin.
_DAG, _RUN = "../", "../../../"

Pipeline = Annotated[str | None, Query(max_length=1000)]


class _ConnectionId(Convertor[str]):
    """An id of Airflow, which may hold slashes, but neither at an end nor two in a row."""

    regex = "[^/]+(?:/[^/]+)*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("connection", _ConnectionId())


class _Wanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pipeline: str = Field("", max_length=1000)
    checkpoint: str = Field(max_length=300)


class Validation(_Wanted):
    depth: Depth = Depth.CONTENT


class NewPin(_Wanted):
    name: str = Field(min_length=1, max_length=100)
    reason: str = Field(min_length=1, max_length=500)
    expires: str = Field("", max_length=20)


def create_app(rights: Rights, settings: PageSettings) -> FastAPI:
    # No description of the interface: it would be open to anybody.
    app = FastAPI(title="Checkpoints", docs_url=None, redoc_url=None, openapi_url=None)
    desk = Desk(rights, settings)
    _add_pages(app, rights, desk)
    _add_tabs(app, rights, desk)
    _add_changes(app, rights, desk)
    app.middleware("http")(_protected)
    app.exception_handler(CheckpointError)(_tell_trouble)
    app.exception_handler(AirflowNotFoundException)(_tell_no_connection)
    app.exception_handler(RequestValidationError)(_tell_nonsense)
    app.exception_handler(StarletteHTTPException)(_tell_refusal)
    return app


def create_refusing_app(rights: Rights, error: ConfigurationError) -> FastAPI:
    """In place of all pages: what is wrong with the settings, for whoever is signed in."""
    app = FastAPI(title="Checkpoints", docs_url=None, redoc_url=None, openapi_url=None)
    hint = f"{error.hint} Then restart the api-server." if error.hint else "Then restart the api-server."

    @app.api_route("/{rest:path}", methods=["GET", "POST"], dependencies=[Depends(rights.user)])
    async def refuse(request: Request) -> Response:
        told = ConfigurationError(f"a setting of Airflow is wrong: {error.message}", subject=error.subject, hint=hint)
        return _trouble(request, told, status.HTTP_500_INTERNAL_SERVER_ERROR)

    app.middleware("http")(_protected)
    app.exception_handler(StarletteHTTPException)(_tell_refusal)
    return app


def _add_pages(app: FastAPI, rights: Rights, desk: Desk) -> None:
    User = Annotated[Any, Depends(rights.user)]  # noqa: N806 - a type
    may_read = [Depends(rights.reads_connection)]

    @app.get("/")
    async def pipelines(user: User) -> HTMLResponse:
        return await _made(shell.pipelines, await desk.all_stores(user), now=datetime.now(UTC))

    # Before the page of a store: an id may hold slashes, and the server does not tell whether they were quoted.
    @app.get("/store/{connection_id:connection}/checkpoint", dependencies=may_read)
    async def checkpoint(
        request: Request,
        connection_id: str,
        user: User,
        checkpoint: Annotated[str, Query(alias="id", max_length=300)],
        pipeline: Pipeline = None,
    ) -> HTMLResponse:
        detail = await desk.checkpoint(connection_id, pipeline, checkpoint)
        actions = await desk.actions(user, connection_id, pipeline, base=_base(request))
        return await _made(shell.checkpoint, detail, actions, base=_base(request))

    @app.get("/store/{connection_id:connection}", dependencies=may_read)
    async def pipeline(
        request: Request,
        connection_id: str,
        pipeline: Pipeline = None,
        number: Annotated[int, Query(alias="page", ge=1)] = 1,
        first: Annotated[AwareDatetime | None, Query(alias="from")] = None,
        last: Annotated[AwareDatetime | None, Query(alias="to")] = None,
    ) -> HTMLResponse:
        looked = await desk.pipeline(connection_id, pipeline)
        shown = Shown(page=number, window=None if first is None or last is None else (first, last))
        links = {"base": _base(request), "connection": connection_id, "name": pipeline}
        return await _made(shell.pipeline, looked, shown=shown, **links)


def _add_tabs(app: FastAPI, rights: Rights, desk: Desk) -> None:
    User = Annotated[Any, Depends(rights.user)]  # noqa: N806 - a type

    @app.get("/dag/{dag_id}", dependencies=[Depends(rights.reads_dag)])
    async def of_dag(dag_id: str, user: User) -> HTMLResponse:
        used = await desk.used_by_dag(dag_id)
        if used is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"There is no DAG {dag_id}.")
        rows = await desk.rows(user, used)
        return await _made(shell.of_tasks, rows, used, "DAG", now=datetime.now(UTC), base=_DAG)

    @app.get("/dag/{dag_id}/run/{run_id}", dependencies=[Depends(rights.reads_dag), Depends(rights.reads_run)])
    async def of_run(dag_id: str, run_id: str, user: User) -> HTMLResponse:
        used = await desk.used_by_run(dag_id, run_id)
        if used is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"There is no run {run_id} of {dag_id}.")
        rows = await desk.rows(user, used)
        return await _made(shell.of_tasks, rows, used, "run", now=datetime.now(UTC), base=_RUN)


def _add_changes(app: FastAPI, rights: Rights, desk: Desk) -> None:
    User = Annotated[Any, Depends(rights.user)]  # noqa: N806 - a type
    # Whether somebody may at all comes first: nobody learns anything from how a request is refused.
    may_change = [Depends(rights.changes_connection), Depends(only_json_from_here)]

    @app.post("/store/{connection_id:connection}/validate", dependencies=may_change)
    async def validate(connection_id: str, wanted: Annotated[Validation, Depends(sent(Validation))]) -> JSONResponse:
        try:
            found = await desk.prove(connection_id, wanted.pipeline or None, wanted.checkpoint, wanted.depth)
        except SlowStoreError:
            return _still_at_work()
        if not found.proven:
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, f"It could not be proven: {found.reason}")
        verdict = f"Valid at depth {found.depth}." if found.valid else f"Invalid: {found.reason}"
        return JSONResponse({"valid": found.valid, "message": verdict})

    @app.post("/store/{connection_id:connection}/pin", dependencies=may_change)
    async def pin(connection_id: str, wanted: Annotated[NewPin, Depends(sent(NewPin))], user: User) -> JSONResponse:
        try:
            await desk.pin(
                connection_id,
                wanted.pipeline or None,
                wanted.checkpoint,
                by=f"{user.get_name()} by airflow, page of checkpoints",
                name=wanted.name,
                reason=wanted.reason,
                expires=wanted.expires,
            )
        except SlowStoreError:
            return _still_at_work()
        return JSONResponse({"message": f"Pinned as {wanted.name}."})


async def _made(make: Callable[..., str], *arguments: Any, **more: Any) -> HTMLResponse:
    """A page, made beside the loop: that of many checkpoints takes a while."""
    return page(await run_in_threadpool(make, *arguments, **more))


def _still_at_work() -> JSONResponse:
    """It goes on without whoever asked; asking for the same again joins it."""
    return JSONResponse({"message": "Still at work ..."}, status.HTTP_202_ACCEPTED)


# -- what every answer goes through ------------------------------------------------------------------------------


async def _protected(request: Request, call_next: RequestResponseEndpoint) -> Response:
    try:
        return protect(await call_next(request))
    except Exception as error:  # noqa: BLE001 - whatever a library raises: the next page is not to suffer
        code = status.HTTP_500_INTERNAL_SERVER_ERROR
        return protect(await _tell_refusal(request, HTTPException(code, unforeseen(error))))


async def _tell_trouble(request: Request, error: Exception) -> Response:
    assert isinstance(error, CheckpointError)
    return _trouble(request, error, _code(error, asked=request.method == "GET"))


def _trouble(request: Request, error: CheckpointError, code: int) -> Response:
    if request.method != "GET":
        return JSONResponse({"detail": f"{error.message}{f'. {error.hint}' if error.hint else ''}"}, code)
    slow = isinstance(error, SlowStoreError)
    title = "The store does not answer" if slow else "This cannot be shown"
    text = shell.trouble(title, str(error).partition("\n")[0], hint=error.hint, again=slow, base=_base(request))
    return page(text, code)


def _code(error: CheckpointError, *, asked: bool) -> int:
    match error:
        case CheckpointNotFoundError():
            return status.HTTP_404_NOT_FOUND
        case ConfigurationError():
            # A page about something that is not there, or a wish that makes no sense.
            return status.HTTP_404_NOT_FOUND if asked else status.HTTP_400_BAD_REQUEST
        case CheckpointConflictError():
            return status.HTTP_409_CONFLICT
        case TransientError():
            return status.HTTP_503_SERVICE_UNAVAILABLE
        case AttentionError():
            return status.HTTP_502_BAD_GATEWAY
        case _:
            return status.HTTP_500_INTERNAL_SERVER_ERROR


async def _tell_no_connection(request: Request, error: Exception) -> Response:  # noqa: ARG001 - it repeats the id
    return await _tell_refusal(request, HTTPException(status.HTTP_404_NOT_FOUND, "There is no such connection."))


async def _tell_nonsense(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    code = status.HTTP_422_UNPROCESSABLE_CONTENT
    return await _tell_refusal(request, HTTPException(code, nonsense(error.errors())))


async def _tell_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if request.method != "GET":
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
    words = {401: "Sign in to Airflow first", 403: "Not allowed", 404: "Not found"}
    title = words.get(error.status_code, "This cannot be shown")
    return page(shell.trouble(title, str(error.detail), base=_base(request)), error.status_code)


def _base(request: Request) -> str:
    """From a page to where these pages begin, as its browser counts: a slash that was quoted is none."""
    asked: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    root: str = request.scope.get("root_path", "")
    return "../" * (asked.count(b"/") - root.rstrip("/").count("/") - 1)
