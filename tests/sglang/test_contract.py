"""One client, two servers: what we rely on holds for the embedded server and for the real SGLang alike."""

import random

import pytest
import torch
import trio

from spade_actors.sampling import DeadlineExceeded, GenerateClient, SamplingParams, ServerRefused

GREEDY = SamplingParams(max_new_tokens=24, temperature=0.0, ignore_eos=True)
LONG = SamplingParams(max_new_tokens=400, temperature=0.0, ignore_eos=True)


def prompt(length, seed=0):
    draw = random.Random(seed)
    return [draw.randrange(1280) for _ in range(length)]


@pytest.fixture
def run(server, folders):
    """Run ``body(client)``; the server is left at version 1, unpaused and idle."""

    def go(body):
        async def main():
            client = GenerateClient(server.url)
            try:
                with trio.fail_after(120):
                    return await body(client)
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 60):
                    await client.resume()
                    await client.abort_all()
                    await idle(client)
                    if (await client.model_info()).weight_version != "1":
                        assert (await client.update_weights_from_disk(str(folders[0]), "1", flush_cache=True)).success
                client.close()

        return trio.run(main)

    return go


async def idle(client):
    while await client.load() != (0, 0):
        await trio.sleep(0.02)


async def busy(client):
    while (await client.load()).running == 0:
        await trio.sleep(0.01)


def test_who_is_there(run, server, folders):
    async def body(client):
        assert await client.health()
        assert await client.health_generate()
        assert isinstance(await client.server_info(), dict)
        return await client.model_info()

    assert run(body) == (str(folders[0]), "1")


def test_greedy_generation_agrees_with_our_own_forward(run, server, model):
    async def body(client):
        return [await client.generate(prompt(n, seed=n), GREEDY, extra_key="p") for n in (1, 7, 40)]

    for n, got in zip((1, 7, 40), run(body), strict=True):
        ids = torch.tensor([prompt(n, seed=n) + got.output_ids])
        with torch.no_grad():
            logprobs = model(ids)[0, n - 1 : -1].log_softmax(-1)
        ours = logprobs.gather(-1, ids[0, n:, None])[:, 0]
        assert (got.finish, len(got.output_ids), got.prompt_tokens) == ("length", 24, n)
        assert (torch.tensor(got.logprobs.tolist()) - ours).abs().max() < server.tolerance
        # Greedy up to ties within the server's precision.
        assert (logprobs.max(-1).values - ours).max() < server.tolerance
        assert got.version_spans == (("1", 0, 24),)
        assert got.spans_exact


def test_sampled_logprobs_carry_the_temperature(run, server, model):
    params = SamplingParams(max_new_tokens=30, temperature=0.7, ignore_eos=True, seed=5)

    async def body(client):
        return await client.generate(prompt(10), params, extra_key="t")

    got = run(body)
    ids = torch.tensor([prompt(10) + got.output_ids])
    with torch.no_grad():
        ours = (model(ids)[0, 9:-1] / 0.7).log_softmax(-1).gather(-1, ids[0, 10:, None])[:, 0]
    assert (torch.tensor(got.logprobs.tolist()) - ours).abs().max() < 2 * server.tolerance


def test_a_stop_token_ends_the_output_and_belongs_to_it(run):
    async def body(client):
        # A prompt whose greedy output has a new token late enough to tell stopping there from stopping anywhere.
        for seed in range(20):
            free = (await client.generate(prompt(9, seed=seed), GREEDY, extra_key="s")).output_ids
            late = max(i for i, token in enumerate(free) if token not in free[:i])
            if late >= 2:
                break
        params = SamplingParams(max_new_tokens=24, temperature=0.0, stop_token_ids=(free[late],))
        return free, free[late], await client.generate(prompt(9, seed=seed), params, extra_key="s")

    free, stop, got = run(body)
    assert len(got.output_ids) >= 3
    assert got.output_ids == free[: free.index(stop) + 1]
    assert got.finish == "stop"
    assert len(got.logprobs) == len(got.output_ids)


def test_the_next_turn_reuses_the_prefix_of_its_own_key_only(run):
    async def body(client):
        first = await client.generate(prompt(60, seed=60), GREEDY, extra_key="a")
        grown = prompt(60, seed=60) + first.output_ids + prompt(5, seed=5)
        return (
            first,
            await client.generate(grown, GREEDY, extra_key="a"),
            await client.generate(grown, GREEDY, extra_key="b"),
        )

    first, own, other = run(body)
    assert first.cached_tokens == 0
    assert own.cached_tokens >= 60
    assert other.cached_tokens == 0


def test_a_pause_holds_and_an_update_in_flight_leaves_spans(run, server, folders):
    async def body(client):
        results = {}

        async def generate(name):
            results[name] = await client.generate(prompt(12), LONG, rid=name, extra_key="u")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(generate, "free")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(generate, "updated")
            await busy(client)
            async with client.paused("in_place"):
                await trio.sleep(0.3)
                assert "updated" not in results
                outcome = await client.update_weights_from_disk(str(folders[1]), "2")
                assert outcome.success, outcome.message
        return results, await client.model_info()

    results, info = run(body)
    free, updated = results["free"], results["updated"]
    assert info == (str(folders[1]), "2")
    assert [span.version for span in updated.version_spans] == ["1", "2"]
    before = updated.version_spans[0].end
    assert 0 < before < 400
    assert (len(updated.output_ids), updated.finish) == (400, "length")
    assert updated.output_ids[:before] == free.output_ids[:before]
    assert updated.output_ids[before:] != free.output_ids[before:]


def test_a_failed_update_is_reported_and_the_old_version_goes_on(run, tmp_path):
    async def body(client):
        before = await client.generate(prompt(8), GREEDY, extra_key="f1")
        async with client.paused("in_place"):
            outcome = await client.update_weights_from_disk(str(tmp_path / "nothing"), "9")
        return before, outcome, await client.model_info(), await client.generate(prompt(8), GREEDY, extra_key="f2")

    before, outcome, info, after = run(body)
    assert not outcome.success
    assert outcome.message
    assert info.weight_version == "1"
    assert after.output_ids == before.output_ids


def test_cancelling_leaves_no_generation_behind(run):
    async def body(client):
        async with trio.open_nursery() as nursery:
            for i in range(4):
                nursery.start_soon(client.generate, prompt(9, seed=i), LONG)
            await busy(client)
            nursery.cancel_scope.cancel()
        await idle(client)

    run(body)


def test_the_deadline_leaves_no_generation_behind(run):
    async def body(client):
        async with client.paused("in_place"):
            with pytest.raises(DeadlineExceeded):
                await client.generate(prompt(9), LONG, deadline=trio.current_time() + 0.2)
        await idle(client)

    run(body)


def test_abort_ends_a_generation_with_what_it_has(run):
    async def body(client):
        results = []

        async def generate():
            results.append(await client.generate(prompt(9), LONG, rid="ab"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(generate)
            await busy(client)
            await client.abort("ab")
        return results[0]

    got = run(body)
    assert got.finish == "abort"
    assert len(got.output_ids) == len(got.logprobs) < 400


def test_what_is_refused(run):
    async def body(client):
        with pytest.raises(ServerRefused, match="longer than"):
            await client.generate(prompt(600), GREEDY)
        with pytest.raises(ServerRefused, match="context length"):
            await client.generate(prompt(500), GREEDY)
        with pytest.raises(ServerRefused, match="temperature"):
            await client.generate(prompt(5), SamplingParams(temperature=-1.0))
        return await client.generate(prompt(5), GREEDY)

    assert run(body).finish == "length"


def test_many_at_once(run):
    async def body(client):
        results = {}

        async def generate(i):
            params = SamplingParams(max_new_tokens=1 + i % 7, ignore_eos=True)
            results[i] = await client.generate(prompt(3 + i, seed=i), params, extra_key=str(i % 3))

        async with trio.open_nursery() as nursery:
            for i in range(40):
                nursery.start_soon(generate, i)
        return results

    for i, got in run(body).items():
        assert len(got.output_ids) == 1 + i % 7
        assert got.prompt_tokens == 3 + i
