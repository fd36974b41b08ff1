"""A thin keep-alive HTTP/1.1 client: trio sockets, h11, one pool of idle connections per server.

Always holds: a connection serves one request at a time; only one whose last answer was read to its end is used again; an answer
is bounded in size.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from urllib.parse import urlsplit

import h11
import trio

from spade_actors.sampling.errors import ServerRefused, ServerUnavailable

MAX_ANSWER = 64 * 1024 * 1024
_READ = 256 * 1024
_Headers = tuple[tuple[bytes, bytes], ...]


class Answer:
    """Status and body of one exchange."""

    __slots__ = ("body", "status")

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body


class HttpPool:
    """Requests to one ``http://host:port``."""

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        url = urlsplit(base_url)
        if url.scheme != "http" or not url.hostname or url.path.strip("/"):
            raise ValueError(f"server address {base_url!r}: expected http://HOST:PORT")
        self.base_url = base_url.rstrip("/")
        self._host, self._port = url.hostname, url.port or 80
        headers = [(b"host", url.netloc.encode()), (b"content-type", b"application/json")]
        if api_key:
            headers.append((b"authorization", b"Bearer " + api_key.encode()))
        self._headers = tuple(headers)
        self._idle: list[_Connection] = []

    async def request(self, method: str, path: str, body: bytes = b"") -> Answer:
        """One exchange.

        Raises ``ServerUnavailable`` when there is no whole answer and ``ServerRefused`` when it is not HTTP.  A kept
        connection that turns out to be closed is replaced once.  Cancellation closes the connection.
        """
        while True:
            kept = bool(self._idle)
            connection = self._idle.pop() if kept else await self._connect()
            try:
                answer = await connection.exchange(method, path, self._headers, body)
            except (OSError, h11.RemoteProtocolError, EOFError) as error:
                connection.close()
                if kept and not connection.answering:
                    continue
                if isinstance(error, h11.RemoteProtocolError) and not connection.lost:
                    raise ServerRefused(f"{self.base_url}{path}: not an HTTP answer ({error})") from error
                raise ServerUnavailable(f"{self.base_url}{path}: connection lost ({error or 'closed'})") from error
            except BaseException:
                connection.close()
                raise
            if connection.reusable:
                self._idle.append(connection)
            else:
                connection.close()
            return answer

    def close(self) -> None:
        """Close idle connections; ones in use close when their exchange ends."""
        while self._idle:
            self._idle.pop().close()

    async def _connect(self) -> _Connection:
        try:
            stream = await trio.open_tcp_stream(self._host, self._port)
        except OSError as error:
            raise ServerUnavailable(f"{self.base_url}: cannot connect ({error})") from error
        stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Connection(stream.socket)


# Checking headers is the dearest part of a request, and most requests differ in nothing but a few lengths.
@lru_cache(maxsize=1024)
def _head(method: str, path: str, headers: _Headers, length: int) -> h11.Request:
    return h11.Request(method=method, target=path, headers=[*headers, (b"content-length", b"%d" % length)])


class _Connection:
    def __init__(self, sock: trio.socket.SocketType) -> None:
        self.sock = sock
        self.http = h11.Connection(h11.CLIENT)
        self.answering = False
        self.lost = False
        self.reusable = False

    def close(self) -> None:
        self.sock.close()

    async def exchange(self, method: str, path: str, headers: _Headers, body: bytes) -> Answer:
        self.answering = self.lost = self.reusable = False
        http = self.http
        data = http.send(_head(method, path, headers, len(body))) or b""
        if body:
            data += http.send(h11.Data(data=body)) or b""
        http.send(h11.EndOfMessage())
        while data:
            sent = await self.sock.send(data)
            data = data[sent:]

        status, parts, size = 0, [], 0
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                received = await self.sock.recv(_READ)
                if received:
                    self.answering = True
                else:
                    self.lost = True
                    if not self.answering:
                        raise EOFError("closed by the server")
                http.receive_data(received)
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                parts.append(event.data)
                size += len(event.data)
                if size > MAX_ANSWER:
                    raise h11.RemoteProtocolError(f"answer over {MAX_ANSWER} bytes")
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed):
                raise EOFError("closed by the server")
        if http.our_state is h11.DONE and http.their_state is h11.DONE:
            http.start_next_cycle()
            self.reusable = True
        return Answer(status, bytes(parts[0]) if len(parts) == 1 else b"".join(parts))
