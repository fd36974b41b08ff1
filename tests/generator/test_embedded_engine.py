"""The engine against the plain model, and its promises: batching, prefix reuse, pauses, updates, aborts."""

import numpy as np
import pytest
import torch
from embedded_model import full_logprobs, prompt, request, run

from spade_actors.generator.embedded.engine import Finish, PauseMode
from spade_actors.model.config import ModelFormatError


def test_greedy_tokens_and_logprobs_equal_the_full_forward(engine_of, model):
    ones = [request(prompt(n, seed=n), 5 + n % 9, name=str(n)) for n in (1, 2, 3, 17, 18, 40, 60, 90)]
    for one in run(engine_of(), *ones):
        expected = full_logprobs(model, one)
        assert one.output == expected.argmax(-1).tolist()
        torch.testing.assert_close(torch.tensor(one.logprobs), expected.max(-1).values, atol=1e-4, rtol=0)
        assert one.finish is Finish.LENGTH


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_sampled_logprobs_carry_the_temperature_only(engine_of, model, temperature):
    one = run(engine_of(), request(prompt(9), 30, temperature=temperature, top_p=0.9, top_k=50))
    expected = full_logprobs(model, one, temperature)
    got = expected.gather(-1, torch.tensor(one.output)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(one.logprobs), got, atol=1e-4, rtol=0)


def test_a_seeded_request_samples_the_same_in_any_batch(engine_of):
    alone = run(engine_of(), request(prompt(12), 20, temperature=1.0)).output
    assert run(engine_of(), request(prompt(12), 20, temperature=1.0, seed=8)).output != alone

    engine = engine_of(slots=16, prefill_tokens=16)
    others = [request(prompt(3 + 5 * i, seed=i), 25, name=f"o{i}", temperature=1.0, seed=i) for i in range(15)]
    for one in others:
        engine.submit(one)
    for _ in range(4):
        engine.step()
    late = request(prompt(12), 20, name="late", temperature=1.0)
    engine.submit(late)
    while engine.busy:
        engine.step()
    assert late.output == alone


def test_many_lengths_decode_in_several_groups_correctly(engine_of, model):
    engine = engine_of(slots=64, max_len=512)
    ones = [request(prompt(400 if i % 8 == 0 else 5 + i, seed=i), 6, name=str(i)) for i in range(64)]
    for one in run(engine, *ones):
        assert one.output == full_logprobs(model, one).argmax(-1).tolist()


def test_unused_slots_between_running_ones_do_not_matter(engine_of, model):
    engine = engine_of(slots=8)
    short = [request(prompt(4, seed=i), 2 if i % 3 == 1 else 12, name=str(i)) for i in range(8)]
    for one in run(engine, *short):
        assert one.output == full_logprobs(model, one).argmax(-1).tolist()


def test_the_next_turn_reuses_the_cache_and_changes_nothing(engine_of):
    engine = engine_of()
    first = run(engine, request(prompt(20), 5, prefix_key="a"))
    grown = np.concatenate((first.prompt, np.array(first.output, np.int32), prompt(6, seed=3)))
    second = run(engine, request(grown, 8, prefix_key="a"))
    assert (first.cached_tokens, second.cached_tokens) == (0, 24)
    fresh = run(engine_of(), request(grown, 8))
    assert (second.output, fresh.cached_tokens) == (fresh.output, 0)
    np.testing.assert_allclose(second.logprobs, fresh.logprobs, atol=1e-4)


def test_a_shared_beginning_is_copied_even_from_a_running_request(engine_of, model):
    engine = engine_of()
    running = request(prompt(30), 40, name="running")
    engine.submit(running)
    engine.step()
    branch = np.concatenate((prompt(30)[:20], prompt(5, seed=9)))
    other = request(branch, 6, name="branch")
    engine.submit(other)
    while engine.busy:
        engine.step()
    assert other.cached_tokens == 20
    for one in (running, other):
        assert one.output == full_logprobs(model, one).argmax(-1).tolist()


def test_the_same_prompt_again_recomputes_its_last_token_only(engine_of):
    engine = engine_of()
    first, second = run(engine, request(prompt(20))), run(engine, request(prompt(20)))
    assert second.cached_tokens == 19
    assert first.output == second.output


def test_another_key_never_matches(engine_of):
    engine = engine_of()
    run(engine, request(prompt(20), prefix_key="1"))
    assert run(engine, request(prompt(20), prefix_key="2")).cached_tokens == 0
    assert run(engine, request(prompt(20))).cached_tokens == 0
    assert run(engine, request(prompt(20), prefix_key="1")).cached_tokens == 19


def test_flushing_forgets_finished_requests_now_and_running_ones_later(engine_of):
    engine = engine_of()
    run(engine, request(prompt(20)))
    running = request(prompt(25, seed=4), 10, name="running")
    engine.submit(running)
    engine.step()
    engine.flush()
    while engine.busy:
        engine.step()
    assert run(engine, request(prompt(20))).cached_tokens == 0
    assert run(engine, request(prompt(25, seed=4))).cached_tokens == 0


def test_an_update_in_flight_marks_the_tokens_of_each_version(engine_of, folders):
    undisturbed = run(engine_of(), request(prompt(10), 12)).output
    engine = engine_of()
    one = request(prompt(10), 12)
    engine.submit(one)
    for _ in range(5):
        engine.step()
    engine.pause(PauseMode.IN_PLACE)
    assert engine.update_weights(folders[1], "2", flush=False) == 1
    engine.resume()
    while engine.busy:
        engine.step()
    assert one.versions == [("1", 0), ("2", 5)]
    assert one.output[:5] == undisturbed[:5]
    assert one.output[5:] != undisturbed[5:]
    assert len(one.output) == 12


def test_an_update_with_files_that_do_not_fit_changes_nothing(engine_of, tmp_path):
    before = run(engine_of(), request(prompt(10))).output
    engine = engine_of()
    with pytest.raises(ModelFormatError):
        engine.update_weights(tmp_path, "2", flush=True)
    assert engine.weight_version == "1"
    assert run(engine, request(prompt(10))).output == before


@pytest.mark.parametrize("mode", [PauseMode.IN_PLACE, PauseMode.RETRACT])
def test_a_pause_makes_no_tokens_and_the_rest_is_as_without_it(engine_of, mode):
    undisturbed = [run(engine_of(), request(prompt(n), 12, temperature=1.0)).output for n in (10, 11)]
    engine = engine_of()
    ones = [request(prompt(n), 12, name=str(n), temperature=1.0) for n in (10, 11)]
    for one in ones:
        engine.submit(one)
    for _ in range(4):
        engine.step()
    assert engine.pause(mode) == []
    assert not engine.busy
    assert engine.step() == []
    assert [len(one.output) for one in ones] == [4, 4]
    assert (engine.running, engine.waiting) == ((2, 0) if mode is PauseMode.IN_PLACE else (0, 2))
    engine.resume()
    while engine.busy:
        engine.step()
    assert [one.output for one in ones] == undisturbed


def test_pausing_by_abort_ends_everything(engine_of):
    engine = engine_of(slots=1)
    ones = [request(prompt(5), name=str(i)) for i in range(3)]
    for one in ones:
        engine.submit(one)
    engine.step()
    ended = engine.pause(PauseMode.ABORT)
    assert sorted(one.rid for one in ended) == ["0", "1", "2"]
    assert {one.finish for one in ones} == {Finish.ABORT}
    assert (engine.running, engine.waiting) == (0, 0)


def test_abort_goes_by_the_id_and_frees_the_slot(engine_of):
    engine = engine_of(slots=2)
    ones = [request(prompt(5), 20, name=name) for name in ("a", "b", "a1")]
    for one in ones:
        engine.submit(one)
    engine.step()
    assert (engine.running, engine.waiting) == (2, 1)
    assert [one.rid for one in engine.abort("a", "why")] == ["a"]
    assert (engine.running, engine.waiting) == (1, 1)
    assert (ones[0].finish, ones[0].message, len(ones[0].output)) == (Finish.ABORT, "why", 1)
    while engine.busy:
        engine.step()
    assert len(ones[1].output) == 20


def test_cancelling_a_finished_request_does_nothing(engine_of):
    engine = engine_of()
    one = run(engine, request(prompt(5)))
    engine.cancel(one)
    assert one.finish is Finish.LENGTH


def test_more_requests_than_slots_wait_their_turn(engine_of):
    engine = engine_of(slots=2)
    ones = [request(prompt(5, seed=i), 3 + i, name=str(i)) for i in range(7)]
    for one in ones:
        engine.submit(one)
    finished = []
    while engine.busy:
        finished += engine.step()
        assert engine.running <= 2
    assert [one.rid for one in finished] == [str(i) for i in range(7)]


def test_a_prompt_longer_than_the_budget_is_read_in_parts(engine_of, model):
    engine = engine_of(prefill_tokens=16)
    ones = [request(prompt(n, seed=n), 5, name=str(n)) for n in (100, 3, 50)]
    for one in run(engine, *ones):
        assert one.output == full_logprobs(model, one).argmax(-1).tolist()


def test_a_stop_token_ends_the_output_and_belongs_to_it(engine_of):
    free = run(engine_of(), request(prompt(10), 12)).output
    stop = free[4]
    one = run(engine_of(), request(prompt(10), 12, stop=frozenset({stop})))
    assert one.output == free[: free.index(stop) + 1]
    assert (one.finish, one.matched) == (Finish.STOP, stop)


def test_a_request_may_fill_its_slot_to_the_last_position(engine_of, model):
    engine = engine_of(max_len=32)
    one = run(engine, request(prompt(20), 12))
    assert one.output == full_logprobs(model, one).argmax(-1).tolist()
    assert run(engine, request(prompt(31), 1)).finish is Finish.LENGTH
    with pytest.raises(ValueError, match="at most 32 together"):
        engine.submit(request(prompt(20), 13))


def test_the_probe_needs_no_slot_and_sees_broken_weights(engine_of):
    engine = engine_of(slots=1)
    engine.submit(request(prompt(5)))
    engine.step()
    assert engine.probe()
    engine.weights.head.fill_(float("nan"))
    assert not engine.probe()
