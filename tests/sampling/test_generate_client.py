"""The client's reading of answers, against a scripted server: spans, mismatches, errors, aborts, resume in finally."""

import json
from functools import partial

import outcome
import pytest
import trio

from spade_actors.sampling import (
    DeadlineExceeded,
    GenerateClient,
    SamplingParams,
    ServerRefused,
    ServerUnavailable,
    Span,
)


class FakeServer:
    """Answers by ``replies[path]``: (status, content), or None to keep the client waiting.  Notes every request."""

    def __init__(self, **replies):
        self.replies = {"/" + path: reply for path, reply in replies.items()}
        self.seen = []

    async def handle(self, stream):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                chunk = await stream.receive_some()
                if not chunk:
                    return
                data += chunk
            head, _, data = data.partition(b"\r\n\r\n")
            length = next(int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"content-length"))
            while len(data) < length:
                data += await stream.receive_some()
            body, data = data[:length], data[length:]
            path = head.split()[1].decode()
            self.seen.append((path, json.loads(body or b"{}")))
            reply = self.replies.get(path, (200, {}))
            if reply is None:
                await trio.sleep_forever()
            status, content = reply
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            await stream.send_all(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status, len(text), text))

    def paths(self):
        return [path for path, _ in self.seen]


def against(server, use):
    async def main():
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, server.handle, 0, host="127.0.0.1"))
            client = GenerateClient(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
            with trio.fail_after(30):
                result = await outcome.acapture(use, client)
            nursery.cancel_scope.cancel()
        return result.unwrap()

    return trio.run(main)


def answer(ids=(5, 6, 7), **meta):
    pairs = [[-0.5 * i, token, None] for i, token in enumerate(ids)]
    base = {"finish_reason": {"type": "length", "length": len(ids)}, "prompt_tokens": 2, "cached_tokens": 1}
    return 200, {"output_ids": list(ids), "meta_info": base | {"output_token_logprobs": pairs} | meta}


def generate(reply, **options):
    server = FakeServer(generate=reply)
    return against(server, lambda client: client.generate([1, 2], SamplingParams(), **options)), server


def test_a_generation_is_read_with_its_spans():
    spans = [{"version": "1", "start": 0, "end": 1}, {"version": "2", "start": 1, "end": 3}]
    got, _ = generate(answer(weight_versions=spans, weight_version="2"))
    assert got.output_ids == [5, 6, 7]
    assert got.logprobs.typecode == "f"
    assert got.logprobs.tolist() == [0.0, -0.5, -1.0]
    assert got.version_spans == (Span("1", 0, 1), Span("2", 1, 3))
    assert (got.finish, got.spans_exact, got.prompt_tokens, got.cached_tokens) == ("length", True, 2, 1)


def test_the_request_carries_what_was_asked():
    server = FakeServer(generate=answer())
    params = SamplingParams(max_new_tokens=9, temperature=0.5, stop_token_ids=(3,), seed=4)
    against(server, lambda client: client.generate([1, 2], params, rid="play-1", extra_key="7"))
    body = server.seen[0][1]
    assert body["rid"].startswith("play-1#")
    assert body["sampling_params"] == {
        "max_new_tokens": 9,
        "temperature": 0.5,
        "stop_token_ids": [3],
        "sampling_seed": 4,
    }
    assert (body["input_ids"], body["return_logprob"], body["extra_key"]) == ([1, 2], True, "7")


def test_no_request_id_is_the_beginning_of_another():
    server = FakeServer(generate=answer())

    async def use(client):
        for _ in range(12):
            await client.generate([1], SamplingParams(), rid="p-1")
        await client.generate([1], SamplingParams(), rid="p-11")

    against(server, use)
    rids = [body["rid"] for _, body in server.seen]
    assert not any(a is not b and b.startswith(a) for a in rids for b in rids)


def test_without_spans_the_older_version_stands_for_all_and_is_flagged():
    server = FakeServer(generate=answer(weight_version="1"))

    async def use(client):
        first = await client.generate([1], SamplingParams())
        server.replies["/generate"] = answer(weight_version="2")
        return first, await client.generate([1], SamplingParams())

    first, second = against(server, use)
    assert (first.version_spans, first.spans_exact) == ((Span("1", 0, 3),), False)
    assert (second.version_spans, second.spans_exact) == ((Span("1", 0, 3),), False)


def test_an_abort_keeps_the_tokens_that_have_logprobs():
    reason = {"type": "abort", "message": "Abort in queue", "status_code": None}
    spans = [{"version": "1", "start": 0, "end": 3}]
    pairs = [[-1.0, 5, None], [-2.0, 6, None]]
    got, _ = generate(answer(finish_reason=reason, weight_versions=spans, output_token_logprobs=pairs))
    assert (got.output_ids, got.version_spans, got.finish) == ([5, 6], (Span("1", 0, 2),), "abort")
    assert got.message == "Abort in queue"


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        ((400, {"error": {"message": "too long"}}), ServerRefused, "400: too long"),
        ((422, {"detail": "no"}), ServerRefused, "422: no"),
        ((503, b"overloaded\nsorry"), ServerUnavailable, "503: overloaded sorry"),
        ((200, b"<html>"), ServerRefused, "unreadable answer"),
        ((200, {"output_ids": [1]}), ServerRefused, "unreadable answer"),
        (answer(finish_reason=None), ServerRefused, "without a finish reason"),
        (answer(output_token_logprobs=[[-1.0, 5, None]]), ServerRefused, "do not belong"),
        (answer(output_token_logprobs=[[-1.0, 5, None]] * 3), ServerRefused, "do not belong"),
        (answer(weight_versions=[{"version": "1", "start": 0, "end": 2}]), ServerRefused, "do not cover 3 tokens"),
        (answer(weight_versions=[{"version": "1", "start": 1, "end": 3}]), ServerRefused, "do not cover 3 tokens"),
        (answer(weight_versions=[]), ServerRefused, "do not cover 3 tokens"),
        (
            answer(finish_reason={"type": "abort", "message": "dying", "status_code": 503}),
            ServerUnavailable,
            "aborted: dying",
        ),
    ],
)
def test_answers_that_cannot_be_used(reply, error, says):
    with pytest.raises(error) as caught:
        generate(reply)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cancellation_aborts_at_the_server():
    server = FakeServer(generate=None)

    async def use(client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(client.generate, [1], SamplingParams(), rid="x"))
            while not server.seen:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    against(server, use)
    assert server.paths() == ["/generate", "/abort_request"]
    assert server.seen[1][1]["rid"] == server.seen[0][1]["rid"]


def test_the_deadline_aborts_and_says_so():
    server = FakeServer(generate=None)

    async def use(client):
        with pytest.raises(DeadlineExceeded):
            await client.generate([1], SamplingParams(), deadline=trio.current_time() + 0.05)

    against(server, use)
    assert server.paths()[-1] == "/abort_request"


@pytest.mark.parametrize("way", ["normal", "error", "cancelled"])
def test_paused_resumes_on_every_way_out(way):
    server = FakeServer()

    async def use(client):
        with trio.CancelScope() as scope:
            try:
                async with client.paused("in_place"):
                    if way == "error":
                        raise KeyError
                    if way == "cancelled":
                        scope.cancel()
                        await trio.sleep_forever()
            except KeyError:
                pass

    against(server, use)
    assert server.seen == [("/pause_generation", {"mode": "in_place"}), ("/continue_generation", {})]


def test_a_pause_that_fails_is_resumed_too():
    server = FakeServer(pause_generation=(500, {}))

    async def use(client):
        with pytest.raises(ServerUnavailable):
            async with client.paused():
                raise AssertionError("entered")

    against(server, use)
    assert server.paths() == ["/pause_generation", "/continue_generation"]


def test_control_calls_read_their_answers():
    server = FakeServer(
        model_info=(200, {"model_path": "/m", "weight_version": "3", "other": 1}),
        server_info=(200, {"a": 1}),
        update_weights_from_disk=(400, {"success": False, "message": "no", "num_paused_requests": None}),
        flush_cache=(400, b"busy"),
        health_generate=(503, b""),
    )
    server.replies["/v1/loads"] = (
        200,
        {"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 2}, {"num_running_reqs": 3, "num_waiting_reqs": 0}]},
    )

    async def use(client):
        assert await client.model_info() == ("/m", "3")
        assert await client.server_info() == {"a": 1}
        assert await client.load() == (4, 2)
        assert await client.update_weights_from_disk("/m2", "4") == (False, "no", 0)
        assert not await client.flush_cache()
        assert not await client.health_generate()
        assert await client.health()
        await client.abort("nobody's")
        await client.abort_all()

    against(server, use)
    update = {"model_path": "/m2", "weight_version": "4", "flush_cache": False}
    assert ("/update_weights_from_disk", update) in server.seen
    assert [body for path, body in server.seen if path == "/abort_request"] == [{"abort_all": True}]


def test_stop_tokens_that_would_be_ignored_are_refused():
    with pytest.raises(ValueError, match="expected one of the two"):
        SamplingParams(ignore_eos=True, stop_token_ids=(3,))
