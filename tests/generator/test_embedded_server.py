"""The server as a process: raw HTTP, malformed input, hang-ups, its own end."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

GENERATE = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4, "sampling_seed": 1}}


@contextmanager
def serving(folder, *options, **popen):
    process = subprocess.Popen(
        [sys.executable, "-m", "spade_actors.generator.embedded", "--model", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **popen,
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        process.port = json.loads(line)["port"]
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def port(folders):
    with serving(folders[0], "--weight-version", "1", "--slots", "2", "--max-len", "128") as process:
        yield process.port


@pytest.fixture
def http(port):
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        yield client
        client.post("/abort_request", json={"abort_all": True})
        client.post("/continue_generation", json={})


@contextmanager
def connected(port):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        yield sock


def until(condition, tries=2000):
    """Ask again until it holds; every try is a round trip to the server, which has moved on by then."""
    for _ in range(tries):
        if condition():
            return
    raise AssertionError("never became true")


def raw(path="/generate", body=GENERATE):
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (path.encode(), len(data), data)


def read_answer(sock):
    """One whole answer: status and parsed body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    while len(body) < length:
        body += _some(sock)
    return int(head.split()[1]), json.loads(body[:length]), body[length:]


def _some(sock):
    data = sock.recv(65536)
    assert data, "closed"
    return data


def info(http):
    return http.get("/server_info").json()


def test_generate_answers_with_all_fields(http):
    answer = http.post("/generate", json=GENERATE | {"rid": "one", "return_logprob": True}).json()
    meta = answer["meta_info"]
    assert len(answer["output_ids"]) == 4
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    assert meta["weight_versions"] == [{"version": "1", "start": 0, "end": 4}]
    assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"]) == ("one", 3, 4)
    assert meta["finish_reason"] == {"type": "length", "length": 4}
    assert meta["e2e_latency"] > 0


def test_a_batch_is_answered_by_a_list_in_order(http):
    prompts = [[1], [2, 3], [4, 5, 6], [7], [8]]
    together = http.post("/generate", json=GENERATE | {"input_ids": prompts}).json()
    apart = [http.post("/generate", json=GENERATE | {"input_ids": prompt}).json() for prompt in prompts]
    assert [one["output_ids"] for one in together] == [one["output_ids"] for one in apart]


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "says"),
    [
        ("POST", "/generate", b"{", 400, "truncated"),
        ("POST", "/generate", b'{"input_ids": [1], "stream": true}', 400, "stream"),
        ("POST", "/generate", b'{"input_ids": [999]}', 400, "vocabulary"),
        ("POST", "/generate", b"\xff\xfe", 400, "malformed"),
        ("POST", "/pause_generation", b'{"mode": "nap"}', 400, "nap"),
        ("POST", "/update_weights_from_disk", b"{}", 400, "model_path"),
        ("POST", "/abort_request", b"{}", 400, "rid"),
        ("GET", "/generate", b"", 405, "POST"),
        ("POST", "/nowhere", b"", 404, "/nowhere"),
    ],
)
def test_wrong_requests_are_answered_in_one_line(http, method, path, content, status, says):
    answer = http.request(method, path, content=content)
    message = answer.json()["error"]["message"]
    assert answer.status_code == status
    assert says in message
    assert "\n" not in message
    assert http.post("/generate", json=GENERATE).status_code == 200


def test_an_update_that_fails_is_refused_and_changes_nothing(http, tmp_path):
    answer = http.post("/update_weights_from_disk", json={"model_path": str(tmp_path), "weight_version": "9"})
    assert answer.status_code == 400
    assert answer.json()["success"] is False
    assert "no weights found" in answer.json()["message"]
    assert http.get("/model_info").json()["weight_version"] == "1"


def test_a_body_announced_too_large_is_refused_before_it_is_sent(port):
    with connected(port) as sock:
        sock.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n")
        status, body, _ = read_answer(sock)
        assert (status, "expected at most" in body["error"]["message"]) == (413, True)
        assert sock.recv(10) == b""


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a" * 70000])
def test_garbage_is_refused_and_the_connection_closed(port, http, garbage):
    with connected(port) as sock:
        sock.sendall(garbage)
        assert read_answer(sock)[0] in (400, 431)
    assert http.get("/health").status_code == 200


def test_requests_sent_ahead_are_answered_in_order(port):
    with connected(port) as sock:
        sock.sendall(raw() + raw("/abort_request", {}) + raw(body=GENERATE | {"rid": "third"}))
        rest, answers = b"", []
        while len(answers) < 3:
            data = rest + _some(sock)
            while b"\r\n\r\n" in data:
                head, _, body = data.partition(b"\r\n\r\n")
                length = next(int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"content-length"))
                if len(body) < length:
                    break
                answers.append((int(head.split()[1]), json.loads(body[:length])))
                data = body[length:]
            rest = data
    assert [status for status, _ in answers] == [200, 400, 200]
    assert answers[2][1]["meta_info"]["id"] == "third"


def test_a_request_in_small_pieces_is_understood(port):
    with connected(port) as sock:
        for byte in raw():
            sock.sendall(bytes([byte]))
        assert read_answer(sock)[0] == 200


def test_hanging_up_takes_the_request_away_running_or_waiting(port, http):
    long = {"input_ids": [1], "sampling_params": {"max_new_tokens": 120}}
    http.post("/pause_generation", json={"mode": "in_place"})
    with connected(port) as one, connected(port) as two:
        one.sendall(raw(body=long | {"input_ids": [[1], [2], [3]]}))
        two.sendall(raw(body=long))
        until(lambda: info(http)["waiting"] == 4)
    until(lambda: info(http)["waiting"] == 0)


def test_abort_ends_a_running_request_and_frees_its_slot(port, http):
    with connected(port) as sock:
        http.post("/pause_generation", json={"mode": "in_place"})
        sock.sendall(raw(body={"input_ids": [1], "rid": "gone", "sampling_params": {"max_new_tokens": 120}}))
        until(lambda: info(http)["waiting"] == 1)
        http.post("/abort_request", json={"rid": "gone"})
        assert read_answer(sock)[1]["meta_info"]["finish_reason"]["type"] == "abort"
    assert info(http)["running"] + info(http)["waiting"] == 0


def test_a_rid_in_use_is_refused_and_free_again_afterwards(port, http):
    http.post("/pause_generation", json={"mode": "in_place"})
    with connected(port) as sock:
        sock.sendall(raw(body=GENERATE | {"rid": "same"}))
        until(lambda: info(http)["waiting"] == 1)
        twice = http.post("/generate", json=GENERATE | {"rid": "same"})
        assert (twice.status_code, "in use" in twice.json()["error"]["message"]) == (400, True)
        http.post("/continue_generation", json={})
        assert read_answer(sock)[0] == 200
    assert http.post("/generate", json=GENERATE | {"rid": "same"}).status_code == 200


def test_health_by_generation_waits_while_paused(port, http):
    assert http.get("/health_generate").status_code == 200
    http.post("/pause_generation", json={"mode": "in_place"})
    assert http.get("/health").status_code == 200
    with connected(port) as sock:
        sock.sendall(b"GET /health_generate HTTP/1.1\r\nhost: x\r\n\r\n")
        info(http)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(10)
        sock.settimeout(30)
        http.post("/continue_generation", json={})
        assert sock.recv(15) == b"HTTP/1.1 200 \r\n"


def test_more_requests_than_slots_are_all_answered(http):
    many = http.post("/generate", json=GENERATE | {"input_ids": [[i] for i in range(50)]}).json()
    assert [one["meta_info"]["completion_tokens"] for one in many] == [4] * 50


def test_sigterm_ends_it_cleanly_even_while_it_generates(folders):
    with serving(folders[0]) as process, connected(process.port) as sock:
        sock.sendall(raw(body={"input_ids": [1], "sampling_params": {"max_new_tokens": 1000}}))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def test_it_ends_with_its_parent(folders):
    ours, theirs = os.pipe()
    with serving(folders[0], "--parent-death-fd", str(ours), pass_fds=(ours,)) as process:
        os.close(ours)
        os.close(theirs)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--model", "/nonexistent"], "/nonexistent/config.json: no such file"),
        (["--model", "x", "--slots", "0"], "--slots 0: expected at least 1"),
    ],
)
def test_what_cannot_be_served_is_said_with_exit_code_2(options, says):
    command = [sys.executable, "-m", "spade_actors.generator.embedded", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_is_said_with_exit_code_2(folders, port):
    command = [sys.executable, "-m", "spade_actors.generator.embedded", "--model", str(folders[0]), "--port", str(port)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, f"port {port}:" in ended.stderr, "Traceback" in ended.stderr) == (2, True, False)
