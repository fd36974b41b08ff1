"""Builds the micro model from nothing: corpus, tokenizer, training, measurement, files.

Run as `python -m spade_actors.micro.bootstrap OUT [--tokens N] [--seed N] [--threads N] [--check]`. The folder OUT then holds a
Hugging Face Qwen3 model with tokenizer, and `micro.json`: the recipe and the measured quality.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when torch starts its threads

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import click
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer

from spade_actors.micro import heldout, tokenizer
from spade_actors.micro.compare import complaints
from spade_actors.micro.documents import Document, draw_design, draw_play
from spade_actors.micro.encode import chat_of
from spade_actors.micro.init import plant_copying
from spade_actors.micro.measure import measure_designs, measure_plays
from spade_actors.micro.train import Progress as Step
from spade_actors.micro.train import Recipe, train
from spade_actors.model import files
from spade_actors.model.allocator import keep_freed_memory
from spade_actors.model.config import ModelConfig
from spade_actors.model.qwen3 import Qwen3
from spade_actors.prompts.chat import Chat, Message, render

SHIPPED = Path(__file__).with_name("assets") / "model"


def text_of(document: Document) -> str:
    """A document as chat text."""
    pairs = zip(document.users, document.answers, strict=True)
    return render([m for u, a in pairs for m in (Message("user", u), Message("assistant", a))], False)


def make_tokenizer(seed: int) -> Tokenizer:
    """The tokenizer learned from 1,500 designs and 3,000 plays of the corpus."""
    rng = Random(f"tokenizer {seed}")
    drawn = [draw_design(rng) for _ in range(1500)] + [draw_play(rng) for _ in range(3000)]
    return tokenizer.train(text_of(document) for document in drawn)


def make_model(vocabulary: Tokenizer, seed: int) -> Qwen3:
    """A fresh model of the micro shape."""
    config = ModelConfig(
        vocab_size=tokenizer.VOCAB, eos_token_id=tokenizer.END_ID, pad_token_id=tokenizer.PAD_ID, bos_token_id=None
    )
    if vocabulary.get_vocab_size() > config.vocab_size:
        raise ValueError(f"tokenizer has {vocabulary.get_vocab_size()} tokens; the model holds {config.vocab_size}")
    model = Qwen3(config, seed=seed)
    plant_copying(model, seed)
    return model


def quality(model: Qwen3, chat: Chat, vocabulary: Tokenizer, designs: int = 192, plays: int = 4) -> dict[str, Any]:
    """Everything `micro.json` says about a model."""
    model.eval()
    decode = vocabulary.decode
    held = [variant for split, variant in heldout.variants() if split == "heldout"]
    unseen = [variant for split, variant in heldout.variants() if split == "unseen"]
    return {
        "designs": measure_designs(model, chat, decode, designs, with_exemplar=False),
        "designs_with_exemplar": measure_designs(model, chat, decode, designs, with_exemplar=True),
        "heldout_plain": measure_plays(model, chat, decode, held, plays, hinted=False),
        "heldout_hinted": measure_plays(model, chat, decode, held, plays, hinted=True),
        "heldout_greedy": measure_plays(model, chat, decode, held, plays, hinted=False, greedy=True),
        "unseen_plain": measure_plays(model, chat, decode, unseen, 2 * plays, hinted=False),
        "unseen_hinted": measure_plays(model, chat, decode, unseen, 2 * plays, hinted=True),
    }


def bootstrap(out: Path, recipe: Recipe, report: Callable[[Step], None]) -> dict[str, Any]:
    """Builds everything into the new folder `out` and returns what `micro.json`, written last, holds."""
    started = time.perf_counter()
    vocabulary = make_tokenizer(recipe.seed)
    model, chat = make_model(vocabulary, recipe.seed), chat_of(vocabulary)
    train(model, chat, recipe, report)
    trained = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(vocabulary, Path(folder))
        files.save(model, out, extra=sorted(Path(folder).iterdir()))
    found = {
        "recipe": recipe.as_dict(),
        "parameters": model.config.parameter_count(),
        "quality": quality(files.load(out), chat, vocabulary),
        "seconds": {"train": round(trained - started, 1), "measure": round(time.perf_counter() - trained, 1)},
        "threads": torch.get_num_threads(),
    }
    (out / "micro.json").write_text(json.dumps(found, indent=2) + "\n")
    return found


def summary(found: dict[str, Any]) -> str:
    """One line on the measured quality."""
    q = found["quality"]
    return (
        f"valid {q['designs']['valid']:.2f}, with exemplar {q['designs_with_exemplar']['valid']:.2f}, "
        f"families {len(q['designs']['families'])}, held-out plain {q['heldout_plain']['win_rate']:.3f}, "
        f"hinted {q['heldout_hinted']['win_rate']:.3f}, greedy {q['heldout_greedy']['win_rate']:.3f}, "
        f"unseen {q['unseen_plain']['win_rate']:.3f}, hinted {q['unseen_hinted']['win_rate']:.3f}"
    )


def _plain_lines() -> Callable[[Step], None]:
    """Progress for logs: a line per 20 steps."""

    def show(step: Step) -> None:
        if step.step % 20 == 0:
            click.echo(f"step {step.step}, {step.tokens} of {step.of_tokens} tokens, loss {step.loss:.3f}")

    return show


def run(out: Path, recipe: Recipe, threads: int) -> dict[str, Any]:
    """Bootstraps with a progress bar on the terminal, and returns what `micro.json` holds."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    if not sys.stdout.isatty():
        found = bootstrap(out, recipe, _plain_lines())
        click.echo(summary(found))
        return found
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("training", total=recipe.tokens)

        def show(step: Step) -> None:
            bar.update(task, completed=step.tokens, description=f"step {step.step}, loss {step.loss:.3f}")

        found = bootstrap(out, recipe, show)
    click.echo(summary(found))
    click.echo(f"written to {out}")
    return found


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--tokens", default=Recipe.tokens, show_default=True, help="Training tokens.")
@click.option("--seed", default=Recipe.seed, show_default=True, help="Seed of corpus and weights.")
@click.option("--threads", default=2, show_default=True, help="Torch threads.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--check", is_flag=True, help="Exit 1 if the result is worse than the shipped model.")
def main(out: Path, tokens: int, seed: int, threads: int, force: bool, check: bool) -> None:
    """Build the micro model and its tokenizer from scratch into the folder OUT."""
    if out.exists():
        if not force:
            raise click.UsageError(f"{out} exists; expected a new folder, or --force to replace it")
        shutil.rmtree(out)
    found = run(out, Recipe(tokens=tokens, seed=seed), threads)
    if check:
        wrong = complaints(json.loads((SHIPPED / "micro.json").read_text()), found)
        if wrong:
            raise click.ClickException("not as good as the shipped model: " + "; ".join(wrong))
        click.echo("as good as the shipped model")


if __name__ == "__main__":
    main()
