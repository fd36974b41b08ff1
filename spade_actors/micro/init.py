"""First weights of the micro model: random, but for a circuit that copies.

Models learn late to look back for an earlier occurrence of the current token and to repeat what followed it, and one of
this size, on this little text, never does. So it starts with that circuit, in two attention heads of the first two
layers; training then uses, refines or overwrites it like any other weight.

Layer 0, head 0 attends to the previous token (a constant embedding dimension gives it a fixed query and key, one
position apart under the rotary embedding) and notes that token's content in the last `head_dim` dimensions. Layer 1,
heads 0 and 2 look for a position whose note matches the current content, and add that position's own content to the
prediction. Everything else adds nothing to the residual stream at first (output projections start at zero), so that
noise does not drown it.
"""

from typing import Any

import torch
from torch import Tensor

from spade_actors.model.qwen3 import MLP, Attention, Qwen3, RMSNorm

SHARP = 2.0
"""Initial weight of the query and key norms: attention scores span SHARP**2 * sqrt(head_dim)."""
SPREAD, CONSTANT = 0.3, 1.5
"""Standard deviation of the embedding's content, and value of its constant dimension. The usual .02 would be overwritten
by the first few steps at the rates used here."""
NOTE_GAIN, COPY_GAIN = 0.4, 0.8
DRAWN = 0.02
"""Standard deviation with which Qwen3 draws its weights."""
OUTPUT_SCALE = 0.07
"""Initial weight of the last norm, which brings logits back to the usual size."""


def plant_copying(model: Qwen3, seed: int) -> None:
    """Writes the circuit into freshly drawn weights. Needs at least two layers, 4 heads, 2 KV heads."""
    config = model.config
    width, head = config.hidden_size, config.head_dim
    note = slice(width - head, width)
    constant = width - head - 1
    content = slice(0, constant)
    draw = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        module: Any
        for module in model.modules():
            if isinstance(module, RMSNorm) and module.weight.numel() == head:
                module.weight.fill_(SHARP)
            elif isinstance(module, Attention):
                module.o_proj.weight.zero_()
            elif isinstance(module, MLP):
                module.down_proj.weight.zero_()
        embedding = model.model.embed_tokens.weight
        embedding *= SPREAD / DRAWN
        model.model.norm.weight.fill_(OUTPUT_SCALE)
        embedding[:, note] = 0.0
        embedding[:, constant] = CONSTANT
        bases = _orthogonal(constant, 3 * head, draw)
        look = bases[:head]
        layers: list[Any] = list(model.model.layers)
        first, second = layers[0].self_attn, layers[1].self_attn

        query, key = _one_back(head, config.rope_theta)
        _clear(first.q_proj.weight[:head])[:, constant] = query
        _clear(first.k_proj.weight[:head])[:, constant] = key
        _clear(first.v_proj.weight[:head])[:, content] = look
        first.o_proj.weight[note, :head] = NOTE_GAIN * torch.eye(head)

        slow = _slow_dimensions(head, config.rope_theta)
        groups = config.num_attention_heads // config.num_key_value_heads
        for kv in range(2):
            basis = bases[(kv + 1) * head : (kv + 2) * head]
            rows, heads = slice(kv * head, (kv + 1) * head), slice(kv * groups * head, (kv * groups + 1) * head)
            _clear(second.q_proj.weight[heads])[slow, content] = look[slow]
            _clear(second.k_proj.weight[rows])[slow, note] = torch.eye(head)[slow]
            _clear(second.v_proj.weight[rows])[:, content] = basis
            second.o_proj.weight[content, heads] = COPY_GAIN * basis.T


def _clear(rows: Tensor) -> Tensor:
    return rows.zero_()


def _orthogonal(width: int, rows: int, draw: torch.Generator) -> Tensor:
    """`rows` x `width`: orthonormal rows in blocks of at most `width`, in random directions."""
    blocks = []
    for start in range(0, rows, width):
        square, _ = torch.linalg.qr(torch.randn(width, width, generator=draw))
        blocks.append(square[: min(width, rows - start)])
    return torch.cat(blocks)


def _one_back(head: int, theta: float) -> tuple[Tensor, Tensor]:
    """A query and a key whose rotary score is highest one position back: power in the four fastest frequencies."""
    pairs = torch.arange(4)
    angle = theta ** (-2.0 * pairs / head)
    power = torch.tensor([0.4, 0.3, 0.2, 0.1]).sqrt()
    query, key = torch.zeros(head), torch.zeros(head)
    key[pairs] = power
    query[pairs], query[pairs + head // 2] = power * angle.cos(), -power * angle.sin()
    return query, key


def _slow_dimensions(head: int, theta: float, angle: float = 0.02) -> Tensor:
    """Dimensions that turn less than `angle` per position, so that a match holds over a whole chat."""
    slow = (theta ** (-2.0 * torch.arange(head // 2) / head) < angle).nonzero()[:, 0]
    return torch.cat((slow, slow + head // 2))
