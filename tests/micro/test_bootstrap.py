"""Bootstrap: training is reproducible and lowers the loss, decoding is exact, the shipped model is what it says."""

import json
import os
from pathlib import Path
from random import Random

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
torch = pytest.importorskip("torch")

from spade_actors.micro import bootstrap, heldout, measure, tokenizer  # noqa: E402
from spade_actors.micro.decode import sample  # noqa: E402
from spade_actors.micro.encode import chat_of  # noqa: E402
from spade_actors.micro.init import plant_copying  # noqa: E402
from spade_actors.micro.train import Progress, Recipe, batch, loss_of, rate, train  # noqa: E402
from spade_actors.model import files  # noqa: E402
from spade_actors.model.config import ModelConfig  # noqa: E402
from spade_actors.model.qwen3 import Qwen3  # noqa: E402
from spade_actors.prompts.chat import Chat  # noqa: E402

SHIPPED = bootstrap.SHIPPED
TINY = ModelConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, head_dim=16)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def vocabulary() -> tokenizer.Tokenizer:
    return tokenizer.Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))


@pytest.fixture(scope="module")
def chat(vocabulary: tokenizer.Tokenizer) -> Chat:
    return chat_of(vocabulary)


def test_training_is_reproducible_and_learns(chat: Chat) -> None:
    recipe = Recipe(tokens=6_000, designs=1, plays=4, drills=1, warm_steps=5)
    runs = []
    for _ in range(2):
        model, steps = Qwen3(TINY, seed=1), list[Progress]()
        train(model, chat, recipe, steps.append)
        runs.append((steps, model.model.embed_tokens.weight.detach().clone()))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    steps = runs[0][0]
    assert steps[-1].tokens >= recipe.tokens
    assert steps[-1].loss < steps[0].loss - 0.2


def test_rate_warms_up_and_falls() -> None:
    recipe = Recipe()
    assert rate(0.0, 0, recipe) == pytest.approx(1 / 30)
    assert rate(0.5, 500, recipe) == pytest.approx(0.525)
    assert rate(1.0, 900, recipe) == pytest.approx(0.05)


def test_first_weights_copy_what_followed_before() -> None:
    model = Qwen3(ModelConfig(), seed=1)
    plant_copying(model, seed=1)
    once = torch.randint(3, 1280, (8, 20), generator=torch.Generator().manual_seed(0))
    ids = torch.cat([once, once], dim=1)
    with torch.no_grad():
        logits = model(ids)
    said = logits[:, 20:-1].argmax(-1)
    assert float((said == ids[:, 21:]).float().mean()) >= 0.8


def test_loss_of_fresh_weights_is_uniform(chat: Chat) -> None:
    documents = batch(Random(0), chat, Recipe(designs=1, plays=2))
    assert float(loss_of(Qwen3(TINY, seed=0), documents).detach()) == pytest.approx(7.15, abs=0.15)


def test_decoding_equals_the_full_forward(chat: Chat) -> None:
    model = files.load(SHIPPED)
    prompts = [
        chat.start(text) for text in ("now 3", "design pattern easy: tin roof", "to a: b c d\n\nHINT: keep to it")
    ]
    drawn = sample(model, prompts, 24, chat.end_id, torch.Generator(), greedy=True)
    for prompt, said in zip(prompts, drawn, strict=True):
        alone = sample(model, [prompt], 24, chat.end_id, torch.Generator(), greedy=True)
        assert alone == [said]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + said]))[0]
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == said
        assert said[-1] == chat.end_id or len(said) == 24


def test_shipped_files_are_small_and_match_the_recipe() -> None:
    found = json.loads((SHIPPED / "micro.json").read_text())
    assert found["parameters"] == ModelConfig.read(SHIPPED).parameter_count() == 951_680
    size = sum(path.stat().st_size for path in Path(SHIPPED).parent.rglob("*") if path.is_file())
    assert size <= 5_000_000
    fresh = bootstrap.make_tokenizer(found["recipe"]["seed"])
    assert fresh.to_str() == tokenizer.Tokenizer.from_file(str(SHIPPED / "tokenizer.json")).to_str()


def test_shipped_model_designs_and_plays(chat: Chat, vocabulary: tokenizer.Tokenizer) -> None:
    model = files.load(SHIPPED)
    designs = measure.measure_designs(model, chat, vocabulary.decode, 32, with_exemplar=False, seed=5)
    assert designs["valid"] >= 0.7
    assert len(designs["families"]) >= 6
    near = measure.measure_designs(model, chat, vocabulary.decode, 16, with_exemplar=True, seed=5)
    assert near["valid"] >= 0.6
    assert near["same_family"] >= 0.5
    variants = [v for split, v in heldout.variants() if split == "heldout"][::4]
    hinted = measure.measure_plays(model, chat, vocabulary.decode, variants, 2, hinted=True)
    assert hinted["win_rate"] >= 0.1
