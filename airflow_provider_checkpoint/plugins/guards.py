"""What every answer carries, and what every request that changes something must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, status
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ValidationError

from airflow_provider_checkpoint.reports.markup import content_security_policy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from starlette.responses import Response

Wish = TypeVar("Wish", bound=BaseModel)
#: Bytes of a wish; the longest that makes sense is far shorter.
_LONGEST_WISH = 64 * 1024


def protect(response: Response) -> Response:
    """No scripts but ours, no frames but Airflow's, no copies of what may be read only now."""
    response.headers.update(
        {
            "Content-Security-Policy": f"{content_security_policy(scripted=True)}; frame-ancestors 'self'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
    )
    return response


def page(text: str, code: int = status.HTTP_200_OK) -> HTMLResponse:
    return HTMLResponse(text, status_code=code)


def only_json_from_here(request: Request) -> None:
    """Refuse what a page of somebody else could make a browser send with our user's cookie.

    Such a page can send forms but not JSON, and a browser says where a request comes from.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, "send JSON (Content-Type: application/json)")
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise HTTPException(status.HTTP_403_FORBIDDEN, "a request from another site")
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "a request from another site")


def sent(kind: type[Wish]) -> Callable[[Request], Awaitable[Wish]]:
    """A dependency that reads what a request carries.

    FastAPI would read it, however long, before the dependencies that look at who sends it.
    """

    async def read(request: Request) -> Wish:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _LONGEST_WISH:
                raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, "that is far too long")
        try:
            return kind.model_validate_json(bytes(body))
        except ValidationError as error:
            raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, nonsense(error.errors())) from None

    return read


def nonsense(errors: Sequence[Any]) -> str:
    """What makes no sense in what was asked, without repeating it."""
    named = ((".".join(str(part) for part in each["loc"] if part != "query"), each["msg"]) for each in errors[:5])
    return "; ".join(f"{name}: {message}" if name else message for name, message in named)
