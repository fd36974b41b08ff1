"""A non-blocking HTTP/1.1 server on ``selectors`` and ``h11`` that never runs unless it is polled.

Always holds: at most one exchange per connection is open; a request's body and the bytes held for a connection are bounded;
an exchange is either answered once or reported once as dropped (its client went away).
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import h11

MAX_BODY = 8 * 1024 * 1024
_MAX_AHEAD = 256 * 1024
_MAX_CONNECTIONS = 4096
_READ = 256 * 1024


@dataclass(eq=False, slots=True)
class Exchange:
    """One request and, once ``respond`` was called, its answer."""

    method: str
    path: str
    body: bytes
    _connection: _Connection
    open: bool = True

    def respond(self, status: int, body: bytes, content_type: bytes = b"application/json") -> None:
        """Answer; a client that has gone is no error."""
        if self.open:
            self.open = False
            self._connection.answer(status, body, content_type)


class HttpServer:
    """Listens on 127.0.0.1.  ``on_request`` gets every complete request, ``on_dropped`` each unanswered one that was lost."""

    def __init__(
        self,
        port: int,
        on_request: Callable[[Exchange], None],
        on_dropped: Callable[[Exchange], None],
        *,
        max_body: int = MAX_BODY,
    ) -> None:
        self.on_request, self.on_dropped, self.max_body = on_request, on_dropped, max_body
        self.selector = selectors.DefaultSelector()
        self.connections: set[_Connection] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.watch(self._listener, self._accept)

    def watch(self, source: socket.socket | int, on_readable: Callable[[], None]) -> None:
        """Call ``on_readable`` from ``poll`` when ``source`` can be read or is closed."""
        self.selector.register(source, selectors.EVENT_READ, on_readable)

    def poll(self, timeout: float | None) -> None:
        """Serve what has arrived; wait up to ``timeout`` seconds for it (None: until something does)."""
        for key, mask in self.selector.select(timeout):
            if isinstance(key.data, _Connection):
                key.data.ready(mask)
            else:
                key.data()

    def close(self) -> None:
        """Close the listener and every connection."""
        for connection in list(self.connections):
            connection.close()
        self._listener.close()
        self.selector.close()

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            # The client has gone again, or descriptors ran out: it may retry.
            return
        if len(self.connections) >= _MAX_CONNECTIONS:
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections.add(_Connection(self, client))


# Checking headers is the dearest part of an answer, and most answers differ in nothing but a few lengths.
@lru_cache(maxsize=1024)
def _head(status: int, content_type: bytes, length: int, close: bool) -> h11.Response:
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % length)]
    if close:
        headers.append((b"connection", b"close"))
    return h11.Response(status_code=status, headers=headers)


@dataclass(eq=False, slots=True)
class _Connection:
    server: HttpServer
    sock: socket.socket
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.SERVER))
    head: h11.Request | None = None
    body: bytearray = field(default_factory=bytearray)
    out: bytearray = field(default_factory=bytearray)
    exchange: Exchange | None = None
    advancing: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        self.server.selector.register(self.sock, selectors.EVENT_READ, self)

    def ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE and not self.closed:
            self._flush()
        if mask & selectors.EVENT_READ and not self.closed:
            try:
                data = self.sock.recv(_READ)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            if not data:
                self.close()
                return
            self.http.receive_data(data)
            if self.exchange is None:
                self._advance()
            elif len(self.http.trailing_data[0]) > _MAX_AHEAD:
                self.close()

    def answer(self, status: int, body: bytes, content_type: bytes) -> None:
        if self.closed:
            return
        self.exchange = None
        self._send(status, body, content_type)
        if self.http.our_state is h11.MUST_CLOSE or self.http.their_state is not h11.DONE:
            self._flush(then_close=True)
            return
        self.http.start_next_cycle()
        self._flush()
        self._advance()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.server.selector.unregister(self.sock)
        self.sock.close()
        self.server.connections.discard(self)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.open = False
            self.server.on_dropped(exchange)

    def _advance(self) -> None:
        """Take requests out of what has been received until one is open or data runs out."""
        if self.advancing:
            # Answered at once, from inside the loop below, which goes on by itself.
            return
        self.advancing = True
        try:
            self._take_requests()
        finally:
            self.advancing = False

    def _take_requests(self) -> None:
        while not self.closed and self.exchange is None:
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint, str(error))
                return
            if event is h11.NEED_DATA:
                if self.http.they_are_waiting_for_100_continue:
                    self.out += self.http.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                    self._flush()
                return
            if isinstance(event, h11.Request):
                self.head = event
                self.body.clear()
                length = next((value for name, value in event.headers if name == b"content-length"), b"0")
                if int(length) > self.server.max_body:
                    self._refuse(413, f"body of {int(length)} bytes; expected at most {self.server.max_body}")
                    return
            elif isinstance(event, h11.Data):
                self.body += event.data
                if len(self.body) > self.server.max_body:
                    self._refuse(413, f"body over {self.server.max_body} bytes; expected at most that")
                    return
            elif isinstance(event, h11.EndOfMessage) and self.head is not None:
                path = self.head.target.decode("ascii", "replace").partition("?")[0]
                exchange = Exchange(self.head.method.decode("ascii", "replace"), path, bytes(self.body), self)
                self.exchange = exchange
                self.server.on_request(exchange)
            else:
                self.close()
                return

    def _refuse(self, status: int, message: str) -> None:
        """Answer a request that could not be read, and hang up."""
        text = message.replace('"', "'").replace("\\", "/")
        if self.http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(status, b'{"error":{"message":"%s"}}' % text.encode(), b"application/json", close=True)
        self._flush(then_close=True)

    def _send(self, status: int, body: bytes, content_type: bytes, *, close: bool = False) -> None:
        self.out += self.http.send(_head(status, content_type, len(body), close)) or b""
        self.out += self.http.send(h11.Data(data=body)) or b""
        self.out += self.http.send(h11.EndOfMessage()) or b""

    def _flush(self, *, then_close: bool = False) -> None:
        try:
            sent = self.sock.send(self.out) if self.out else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        del self.out[:sent]
        if then_close:
            # What does not fit the socket buffer of a client that is being refused is its loss.
            self.close()
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.out else 0)
        self.server.selector.modify(self.sock, wanted, self)
