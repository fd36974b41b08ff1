"""The endpoints: SGLang's names, fields and meanings over one ``Engine``.

One thread does everything: while there is work, a forward step and a look at the sockets take turns; when there is none, it
sleeps in ``select``.

Always holds: a generate exchange is answered when its last request has finished, and a client that hangs up takes its
requests with it; control calls act between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from spade_actors.generator.embedded import wire
from spade_actors.generator.embedded.engine import Engine, Request
from spade_actors.generator.embedded.http import Exchange, HttpServer
from spade_actors.model.config import ModelFormatError

_MAX_WAITING = 8192


@dataclass(eq=False, slots=True)
class _Pending:
    """One generate exchange: its requests, and how many of them still run."""

    exchange: Exchange
    requests: list[Request]
    batch: bool
    logprobs: bool
    started: float
    left: int


class Server:
    """Serves one engine on 127.0.0.1:``port`` (0: any free one, see ``http.port``)."""

    def __init__(self, engine: Engine, model_path: str, *, port: int = 0, eos: frozenset[int] = frozenset()) -> None:
        self.engine, self.model_path = engine, model_path
        self.http = HttpServer(port, self._route, self._dropped)
        self._eos = eos
        self._pending: dict[str, _Pending] = {}
        self._health: list[Exchange] = []
        self._stopping = False
        get, post = ("GET",), ("POST",)
        self._routes: dict[str, tuple[tuple[str, ...], Callable[[Exchange], None]]] = {
            "/generate": (post, self._generate),
            "/health": (get, lambda exchange: exchange.respond(200, b"")),
            "/health_generate": (get, self._health_generate),
            "/model_info": (get, self._model_info),
            "/get_model_info": (get, self._model_info),
            "/server_info": (get, self._server_info),
            "/get_server_info": (get, self._server_info),
            "/v1/loads": (get, self._loads),
            "/pause_generation": (post, self._pause),
            "/continue_generation": (post, self._continue),
            "/update_weights_from_disk": (post, self._update),
            "/abort_request": (post, self._abort),
            "/flush_cache": (get + post, self._flush),
        }

    def serve(self) -> None:
        """Run until ``stop``."""
        while not self._stopping:
            self.http.poll(0 if self.engine.busy else None)
            if self.engine.busy:
                self._deliver(self.engine.step())
        self.http.close()

    def stop(self) -> None:
        """Make ``serve`` return after its current turn; open exchanges lose their connection."""
        self._stopping = True

    def _route(self, exchange: Exchange) -> None:
        methods, handler = self._routes.get(exchange.path, ((), None))
        if handler is None:
            _refuse(exchange, 404, f"no endpoint {exchange.path}; expected one of {', '.join(self._routes)}")
        elif exchange.method not in methods:
            _refuse(exchange, 405, f"{exchange.method} {exchange.path}: expected {' or '.join(methods)}")
        else:
            try:
                handler(exchange)
            except wire.BadRequest as error:
                _refuse(exchange, 400, str(error))

    def _generate(self, exchange: Exchange) -> None:
        body = wire.decode(exchange.body, wire.GenerateBody)
        vocab_size = self.engine.weights.config.vocab_size
        requests, batch = wire.requests_of(body, max_len=self.engine.max_len, vocab_size=vocab_size, eos=self._eos)
        rids = [request.rid for request in requests]
        taken = next((rid for i, rid in enumerate(rids) if rid in self._pending or rid in rids[:i]), None)
        if taken is not None:
            raise wire.BadRequest(f"rid {taken!r} is in use by a running request; expected a new one")
        if self.engine.waiting + len(requests) > _MAX_WAITING:
            _refuse(exchange, 503, f"{self.engine.waiting} requests are waiting; expected at most {_MAX_WAITING}")
            return
        logprobs = bool(body.return_logprob)
        pending = _Pending(exchange, requests, batch, logprobs, time.perf_counter(), len(requests))
        for request in requests:
            self._pending[request.rid] = pending
            self.engine.submit(request)

    def _deliver(self, finished: list[Request]) -> None:
        for request in finished:
            pending = self._pending.pop(request.rid)
            pending.left -= 1
            if pending.left:
                continue
            latency = time.perf_counter() - pending.started
            version = self.engine.weight_version
            answers = [
                wire.answer(own, logprobs=pending.logprobs, weight_version=version, latency=latency)
                for own in pending.requests
            ]
            _reply(pending.exchange, answers if pending.batch else answers[0])

    def _dropped(self, exchange: Exchange) -> None:
        if exchange in self._health:
            self._health.remove(exchange)
        for rid, pending in list(self._pending.items()) if exchange.path == "/generate" else ():
            if pending.exchange is exchange:
                del self._pending[rid]
                for request in pending.requests:
                    self.engine.cancel(request)

    def _health_generate(self, exchange: Exchange) -> None:
        # A paused server does not generate: the answer waits for it to go on, as SGLang's does.
        if self.engine.paused:
            self._health.append(exchange)
        elif self.engine.probe():
            exchange.respond(200, b"")
        else:
            _refuse(exchange, 503, "the model gives logits that are not finite; expected sound weights")

    def _model_info(self, exchange: Exchange) -> None:
        _reply(
            exchange,
            {
                "model_path": self.model_path,
                "weight_version": self.engine.weight_version,
                "is_generation": True,
                "model_type": "qwen3",
                "architectures": ["Qwen3ForCausalLM"],
            },
        )

    def _server_info(self, exchange: Exchange) -> None:
        engine = self.engine
        _reply(
            exchange,
            {
                "server": "spade-actors embedded",
                "model_path": self.model_path,
                "weight_version": engine.weight_version,
                "context_length": engine.max_len,
                "max_running_requests": engine.slots,
                "running": engine.running,
                "waiting": engine.waiting,
                "paused": engine.paused,
                "generated_tokens": engine.generated,
            },
        )

    def _loads(self, exchange: Exchange) -> None:
        load = {"dp_rank": 0, "num_running_reqs": self.engine.running, "num_waiting_reqs": self.engine.waiting}
        _reply(exchange, {"loads": [load]})

    def _pause(self, exchange: Exchange) -> None:
        self._deliver(self.engine.pause(wire.decode(exchange.body, wire.PauseBody).mode))
        _reply(exchange, {"message": "Generation paused successfully.", "status": "ok"})

    def _continue(self, exchange: Exchange) -> None:
        self.engine.resume()
        _reply(exchange, {"message": "Generation continued successfully.", "status": "ok"})
        waiting, self._health = self._health, []
        for health in waiting:
            self._health_generate(health)

    def _update(self, exchange: Exchange) -> None:
        body = wire.decode(exchange.body, wire.UpdateBody)
        if body.abort_all_requests:
            self._deliver(self.engine.abort(None, "aborted by update_weights_from_disk"))
        try:
            running = self.engine.update_weights(body.model_path, body.weight_version, flush=body.flush_cache)
        except ModelFormatError as error:
            _reply(exchange, {"success": False, "message": str(error), "num_paused_requests": 0}, 400)
            return
        self.model_path = body.model_path
        paused = running if self.engine.paused else 0
        _reply(exchange, {"success": True, "message": "Succeeded to update weights.", "num_paused_requests": paused})

    def _abort(self, exchange: Exchange) -> None:
        body = wire.decode(exchange.body, wire.AbortBody)
        if not body.rid and not body.abort_all:
            raise wire.BadRequest("abort_request: expected rid, or abort_all = true")
        self._deliver(self.engine.abort(None if body.abort_all else body.rid, "aborted by abort_request"))
        exchange.respond(200, b"")

    def _flush(self, exchange: Exchange) -> None:
        self.engine.flush()
        exchange.respond(200, b"Cache flushed.\n", b"text/plain")


def _reply(exchange: Exchange, content: Any, status: int = 200) -> None:
    exchange.respond(status, msgspec.json.encode(content))


def _refuse(exchange: Exchange, status: int, message: str) -> None:
    _reply(exchange, {"error": {"message": message}}, status)
