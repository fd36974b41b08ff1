"""The thin HTTP client against servers that misbehave.  Scripted servers, real sockets, no sleeps."""

from functools import partial

import pytest
import trio

from spade_actors.sampling.connection import HttpPool
from spade_actors.sampling.errors import ServerRefused, ServerUnavailable

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def scripted(scripts, use):
    """Serve connection i by ``scripts[i]`` (a list of byte strings, one per request, then close); run ``use(pool)``."""
    left = list(scripts)

    async def serve(stream):
        for reply in left.pop(0):
            received = b""
            while b"\r\n\r\n" not in received:
                chunk = await stream.receive_some()
                if not chunk:
                    return
                received += chunk
            await stream.send_all(reply)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        pool = HttpPool(f"http://127.0.0.1:{port}")
        with trio.fail_after(30):
            await use(pool)
        pool.close()
        nursery.cancel_scope.cancel()
    assert left == []


def test_one_connection_serves_many_requests():
    async def use(pool):
        for _ in range(3):
            answer = await pool.request("POST", "/x", b"{}")
            assert (answer.status, answer.body) == (200, b"ok")

    trio.run(scripted, [[OK] * 3], use)


def test_requests_at_once_use_several_connections():
    async def use(pool):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(pool.request, "GET", "/x")

    trio.run(scripted, [[OK], [OK]], use)


def test_a_kept_connection_that_was_closed_is_replaced():
    async def use(pool):
        for _ in range(2):
            assert (await pool.request("GET", "/x")).body == b"ok"

    trio.run(scripted, [[OK], [OK]], use)


def test_chunked_answers_and_closing_ones_are_read():
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it"

    async def use(pool):
        assert (await pool.request("GET", "/x")).body == b"abc"
        assert (await pool.request("GET", "/x")).body == b"all of it"
        assert (await pool.request("GET", "/x")).body == b"ok"

    trio.run(scripted, [[chunked, closing], [OK]], use)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"], ServerUnavailable),
        ([b""], ServerUnavailable),
        ([b"HTTP/1.1 200"], ServerUnavailable),
        ([b"SSH-2.0 hello\r\n\r\n"], ServerRefused),
    ],
)
def test_half_an_answer_is_an_error_and_not_asked_again(script, error):
    async def use(pool):
        with pytest.raises(error):
            await pool.request("GET", "/x")

    trio.run(scripted, [script], use)


def test_nobody_listening_is_unavailable():
    async def use(pool):
        await trio.lowlevel.checkpoint()
        free = trio.socket.socket()
        await free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ServerUnavailable, match="cannot connect"):
            await HttpPool(address).request("GET", "/x")
        free.close()

    trio.run(scripted, [], use)


def test_a_cancelled_exchange_does_not_return_its_connection():
    async def use(pool):
        with trio.move_on_after(0) as scope:
            await pool.request("GET", "/x")
        assert scope.cancelled_caught
        assert (await pool.request("GET", "/x")).body == b"ok"

    trio.run(scripted, [[OK]], use)


@pytest.mark.parametrize("url", ["https://x", "x:1", "http://", "http://x/path"])
def test_addresses_that_cannot_be_used(url):
    with pytest.raises(ValueError, match="expected http://HOST:PORT"):
        HttpPool(url)
