"""Bodies of the endpoints: what is accepted, and refusals that say what is wrong."""

import msgspec
import numpy as np
import pytest

from spade_actors.generator.embedded import wire
from spade_actors.generator.embedded.engine import Finish, Request


def parse(**fields):
    body = wire.decode(msgspec.json.encode(fields), wire.GenerateBody)
    return wire.requests_of(body, max_len=100, vocab_size=50, eos=frozenset({49}))


def test_defaults_are_those_of_sglang():
    (one,), batch = parse(input_ids=[1, 2, 3])
    assert not batch
    assert one.prompt.tolist() == [1, 2, 3]
    assert (one.max_new_tokens, one.temperature, one.top_p, one.top_k, one.min_p) == (97, 1.0, 1.0, -1, 0.0)
    assert (one.stop, one.prefix_key) == (frozenset({49}), "")


def test_a_batch_takes_lists_or_one_value_for_all():
    many, batch = parse(
        input_ids=[[1], [2, 3]],
        sampling_params=[{"max_new_tokens": 1}, {"max_new_tokens": 2}],
        rid="x",
        extra_key=["a", "b"],
    )
    assert batch
    assert [(r.rid, r.max_new_tokens, r.prefix_key) for r in many] == [("x_0", 1, "a"), ("x_1", 2, "b")]


def test_ignore_eos_takes_every_stop_token_out_of_effect():
    (one,), _ = parse(input_ids=[1], sampling_params={"ignore_eos": True, "stop_token_ids": [3]})
    assert one.stop == frozenset()


def test_sampling_parameters_arrive():
    (one,), _ = parse(
        input_ids=[1],
        sampling_params={
            "max_new_tokens": 5,
            "temperature": 1e-9,
            "top_p": 0.9,
            "top_k": 7,
            "min_p": 0.1,
            "stop_token_ids": [3, 4],
            "sampling_seed": 11,
            "skip_special_tokens": False,
            "n": 1,
            "repetition_penalty": 1.0,
            "stop": None,
        },
    )
    assert (one.temperature, one.top_p, one.top_k, one.min_p, one.seed) == (0.0, 0.9, 7, 0.1, 11)
    assert one.stop == frozenset({3, 4, 49})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "input_ids"),
        ({"input_ids": []}, "input_ids: expected a non-empty list"),
        ({"input_ids": "text"}, "input_ids: expected a non-empty list"),
        ({"input_ids": [[]]}, "input_ids: expected a non-empty list"),
        ({"input_ids": [1, "2"]}, "input_ids: expected a non-empty list"),
        ({"input_ids": [1, [2]]}, "input_ids: expected a non-empty list"),
        ({"input_ids": [1.5]}, "input_ids: expected a non-empty list"),
        ({"input_ids": [10**30]}, "input_ids: expected a non-empty list"),
        ({"input_ids": [1, 50]}, "token id 50 is outside the vocabulary; expected 0 to 49"),
        ({"input_ids": [-1]}, "token id -1"),
        ({"input_ids": [1] * 100}, "longer than the model's context length"),
        ({"input_ids": [1] * 90, "sampling_params": {"max_new_tokens": 11}}, "expected 1 to 10"),
        ({"input_ids": [1], "sampling_params": {"max_new_tokens": 0}}, "max_new_tokens = 0"),
        ({"input_ids": [1], "sampling_params": {"temperature": -1}}, "temperature = -1"),
        ({"input_ids": [1], "sampling_params": {"temperature": "hot"}}, "Expected `float | null`"),
        ({"input_ids": [1], "sampling_params": {"top_p": 0}}, "top_p = 0"),
        ({"input_ids": [1], "sampling_params": {"top_k": 0}}, "top_k = 0"),
        ({"input_ids": [1], "sampling_params": {"min_p": 2}}, "min_p = 2"),
        ({"input_ids": [1], "sampling_params": {"stop": ["a"]}}, "sampling_params.stop = "),
        ({"input_ids": [1], "sampling_params": {"frequency_penalty": 0.5}}, "frequency_penalty = 0.5 is not supported"),
        ({"input_ids": [1], "sampling_params": {"n": 2}}, "n = 2 is not supported"),
        ({"input_ids": [1], "sampling_params": {"tempreture": 1}}, "unknown field `tempreture`"),
        ({"input_ids": [1], "sampling_params": [{}, {}]}, "2 values for 1 prompts"),
        ({"input_ids": [1], "stream": True}, "stream = true"),
        ({"input_ids": [1], "logprob_start_len": 0}, "logprob_start_len = 0"),
        ({"input_ids": [1], "text": "x"}, "unknown field `text`"),
    ],
)
def test_what_is_refused(fields, says):
    with pytest.raises(wire.BadRequest) as refusal:
        parse(**fields)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'"x"', b'{"input_ids": [1]} x'])
def test_a_body_that_is_not_the_json_asked_for(body):
    with pytest.raises(wire.BadRequest):
        wire.decode(body, wire.GenerateBody)


def test_spans_of_an_answer_cover_the_output():
    one = Request("r", np.array([1], np.int32), 5, 0, output=[4, 5, 6], logprobs=[-1.0, -2.0, -3.0])
    one.versions, one.finish, one.cached_tokens = [("7", 0), ("8", 2)], Finish.LENGTH, 0
    meta = wire.answer(one, logprobs=True, weight_version="9", latency=0.5)["meta_info"]
    assert meta["weight_versions"] == [
        {"version": "7", "start": 0, "end": 2},
        {"version": "8", "start": 2, "end": 3},
    ]
    assert meta["output_token_logprobs"] == [(-1.0, 4, None), (-2.0, 5, None), (-3.0, 6, None)]
    assert meta["finish_reason"] == {"type": "length", "length": 3}
    assert (meta["weight_version"], meta["prompt_tokens"], meta["completion_tokens"]) == ("9", 1, 3)


def test_an_aborted_request_without_output_has_no_spans():
    one = Request("r", np.array([1], np.int32), 5, 0, finish=Finish.ABORT, message="why")
    meta = wire.answer(one, logprobs=False, weight_version="9", latency=0.5)["meta_info"]
    assert (meta["weight_versions"], meta["finish_reason"]) == ([], {"type": "abort", "message": "why"})
