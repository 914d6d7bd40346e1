"""A loopback HTTP proxy that loses, delays, falsifies and cuts answers on command."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

#: Headers of one connection, not of the message.
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Trouble(Enum):
    """What happens to a request, and whether the server behind gets to see it."""

    DROP_ANSWER = "the server acts, then the connection closes without an answer"
    ERROR_AFTER = "the server acts, then the answer is 500"
    CONFLICT_INSTEAD = "the server sees nothing, the answer is 409"
    BUSY_INSTEAD = "the server sees nothing, the answer is 503"
    CUT_BODY = "the answer breaks off half way through its body"
    SILENCE = "the server sees nothing, and no answer ever comes"
    CUT_CONNECTION = "the server sees nothing, and the connection closes"


#: Asked for each request that no order is about: what goes wrong with it (None: nothing), and what is done once the
#: server has acted. It may take its time, and then the request reaches the server late.
Weather: TypeAlias = "Callable[[str, str], tuple[Trouble | None, Callable[[], object]]]"


_NEVER_FORWARDED = {Trouble.SILENCE, Trouble.CONFLICT_INSTEAD, Trouble.BUSY_INSTEAD, Trouble.CUT_CONNECTION}


@dataclass
class _Order:
    trouble: Trouble | None
    method: str
    match: str
    times: int
    then: Callable[[], object]
    done: int = 0


class Proxy:
    """Forwards to one server. Use as a context manager; ``endpoint`` is the address to give to a client.

    :param weather: lets requests go wrong at random. Such a proxy runs for long, so it does not remember requests.
    """

    def __init__(self, upstream: str, *, weather: Weather | None = None) -> None:
        self.upstream = upstream.removeprefix("http://")
        self.requests: list[tuple[str, str]] = []
        """Method and path of every request that arrived, in order."""
        self._weather = weather
        self._orders: list[_Order] = []
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def order(
        self,
        trouble: Trouble,
        method: str,
        match: str,
        *,
        times: int = 1,
        then: Callable[[], object] = lambda: None,
    ) -> _Order:
        """Let the next ``times`` requests of a method whose path holds ``match`` go wrong.

        ``then`` is called when the server behind has acted and before the client can notice anything.
        """
        order = _Order(trouble, method, match, times, then)
        with self._lock:
            self._orders.append(order)
        return order

    def take(self, method: str, path: str) -> _Order | None:
        path = unquote(path)
        if self._weather is not None:
            trouble, then = self._weather(method, path)
            return _Order(trouble, method, path, 1, then)
        with self._lock:
            self.requests.append((method, path))
            for order in self._orders:
                if order.done < order.times and order.method == method and order.match in path:
                    order.done += 1
                    return order
        return None

    def count(self, method: str, match: str) -> int:
        return sum(1 for seen, path in list(self.requests) if seen == method and match in path)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    # A listen queue of five makes bursts of clients wait a second for their connection.
    request_queue_size = 128
    proxy: Proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is none of our business, and a broken test shows in the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Small answers must not wait for the client's acknowledgement of their headers.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def handle_expect_100(self) -> bool:
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        order = self.server.proxy.take(self.command, self.path)
        trouble = None if order is None else order.trouble
        unanswered = trouble in _NEVER_FORWARDED
        status, headers, answer = (0, [], b"") if unanswered else self._forward(body)
        if order is not None:
            order.then()
        match trouble:
            case None:
                self._answer(status, headers, answer)
            case Trouble.DROP_ANSWER | Trouble.CUT_CONNECTION:
                self._hang_up()
            case Trouble.ERROR_AFTER:
                self._answer(500, [], _s3_error("InternalError"))
            case Trouble.CONFLICT_INSTEAD:
                self._answer(409, [], _s3_error("ConditionalRequestConflict"))
            case Trouble.BUSY_INSTEAD:
                self._answer(503, [], _s3_error("SlowDown"))
            case Trouble.CUT_BODY:
                self._answer(status, headers, answer, send=len(answer) // 2)
                self._hang_up()
            case Trouble.SILENCE:
                self.server.proxy.closing.wait()
                self._hang_up()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _relay  # noqa: N815 - names that the standard library calls

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.server.proxy.upstream, timeout=60)
        with contextlib.closing(connection):
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                # The host goes on as it came: the signature covers it.
                if name.lower() not in {"connection", "expect"}:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
            data = answer.read()
            if self.command == "HEAD":
                kept.append(("Content-Length", answer.headers.get("Content-Length", "0")))
            return answer.status, kept, data

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, send: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD" and status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if send is None else body[:send])
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _s3_error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
