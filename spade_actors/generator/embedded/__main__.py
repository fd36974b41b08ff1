"""``python -m spade_actors.generator.embedded``: serve one model folder until SIGTERM.

Prints one JSON line, ``{"port": ..., "pid": ...}``, once requests are accepted.  Exit codes: 0 after SIGTERM, SIGINT or the
end of the parent, 2 for a model or port that cannot be used.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import socket
import sys


def main() -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(
        prog="spade_actors.generator.embedded", description="SGLang-compatible tiny server"
    )
    parser.add_argument("--model", required=True, help="Hugging Face folder of a Qwen3 model")
    parser.add_argument("--weight-version", default="default", help="version name of these weights")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--slots", type=int, default=128, help="requests that run, or stay cached, at once")
    parser.add_argument("--max-len", type=int, default=0, help="tokens per request; 0 takes the model's, at most 1024")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--parent-death-fd", type=int, default=None, help="exit when this descriptor reaches its end")
    options = parser.parse_args()
    for name, least in (("slots", 1), ("threads", 1), ("max_len", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: expected at least {least}")

    # Spinning worker threads would starve the other processes of a small machine; read when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    from spade_actors.generator.embedded.engine import Engine
    from spade_actors.generator.embedded.server import Server
    from spade_actors.generator.embedded.weights import Weights
    from spade_actors.model.allocator import keep_freed_memory
    from spade_actors.model.config import ModelConfig, ModelFormatError

    torch.set_num_threads(options.threads)
    keep_freed_memory()
    try:
        config = ModelConfig.read(options.model)
        weights = Weights(config)
        weights.load(options.model)
    except ModelFormatError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    limit = config.max_position_embeddings
    max_len = min(options.max_len or 1024, limit)
    engine = Engine(weights, weight_version=options.weight_version, slots=options.slots, max_len=max_len)
    engine.probe()
    eos = frozenset(() if config.eos_token_id is None else (config.eos_token_id,))
    try:
        server = Server(engine, options.model, port=options.port, eos=eos)
    except OSError as error:
        sys.stderr.write(f"port {options.port}: {error.strerror}; expected a free port, or 0\n")
        return 2

    # A signal writes to this pair, so it ends the sleep in select without a race.
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.http.watch(woken, lambda: (woken.recv(64), None)[1])
    if options.parent_death_fd is not None:
        server.http.watch(
            options.parent_death_fd, lambda: None if os.read(options.parent_death_fd, 64) else server.stop()
        )

    gc.collect()
    gc.freeze()
    sys.stdout.write(json.dumps({"port": server.http.port, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
