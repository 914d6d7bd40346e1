"""A security token service on loopback: hands out the keys of the test servers for a role, and counts."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_GRANTED = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><Arn>{role}/session</Arn><AssumedRoleId>ROLE:session</AssumedRoleId></AssumedRoleUser>
<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>
<SessionToken>{token}</SessionToken><Expiration>{until}</Expiration></Credentials>
</AssumeRoleResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleResponse>"""
_DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code><Message>not authorized to perform sts:AssumeRole</Message></Error>
<RequestId>1</RequestId></ErrorResponse>"""


class TokenService:
    """Use as a context manager. ``asked`` has the role of each request; a role that ends in ``denied`` is refused."""

    def __init__(self, *, good_for: timedelta = timedelta(hours=1)) -> None:
        self.asked: list[str] = []
        self.refuse = False
        self.good_for = good_for
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, role: str) -> tuple[int, str]:
        self.asked.append(role)
        if self.refuse or role.endswith("denied"):
            return 403, _DENIED
        until = (datetime.now(UTC) + self.good_for).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = {"key": "admin", "secret": "admin-secret", "token": f"token-{len(self.asked)}"}
        return 200, _GRANTED.format(role=role, until=until, **keys)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(service: TokenService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, text = service.answer(form["RoleArn"][0])
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
