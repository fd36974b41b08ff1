"""Sequence packing: documents of different lengths laid end to end in one row, with attention inside each only.

Projections and the MLP see one flat row without padding.  Attention gathers documents of similar length into small
rectangles, so that block-diagonal causal attention needs no mask and wastes little.

Always holds: every token is in exactly one rectangle, and a token attends only to earlier tokens of its own document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# A rectangle takes shorter documents while they fill at least this share of its width (or lack at most 8 tokens).
_FILL = 0.75
_SLACK = 8


@dataclass(frozen=True, slots=True)
class Packing:
    """Plan for one packed row of N tokens.

    ``positions``: [N] int64, counted from 0 in each document.  ``rectangles``: index tensors [documents, width] into
    the row, short documents padded at the right by repeating their last token.  ``inverse``: [N] int64, where each
    token of the row lies in the concatenation of the flattened rectangles.
    """

    lengths: tuple[int, ...]
    positions: Tensor
    rectangles: tuple[Tensor, ...]
    inverse: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], *, device: torch.device | str = "cpu") -> Packing:
        """Plan for documents of the given lengths in their order in the row; a length below 1 is a ``ValueError``."""
        if not lengths or min(lengths) < 1:
            raise ValueError(f"lengths = {list(lengths)[:8]}: expected at least one document, each of at least 1 token")
        sizes = torch.tensor(lengths, dtype=torch.int64)
        starts = torch.cumsum(sizes, 0) - sizes
        total = int(sizes.sum())
        positions = torch.arange(total) - torch.repeat_interleave(starts, sizes)

        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        inverse = torch.empty(total, dtype=torch.int64)
        rectangles: list[Tensor] = []
        offset = first = 0
        while first < len(order):
            width = lengths[order[first]]
            least = min(int(width * _FILL), width - _SLACK)
            last = first + 1
            while last < len(order) and lengths[order[last]] >= least:
                last += 1
            members = torch.tensor(order[first:last])
            column = torch.arange(width)
            size = sizes[members][:, None]
            index = starts[members][:, None] + torch.minimum(column, size - 1)
            real = column < size
            slot = torch.arange(index.numel()).view_as(index) + offset
            inverse[index[real]] = slot[real]
            rectangles.append(index.to(device))
            offset += index.numel()
            first = last
        return cls(tuple(lengths), positions.to(device), tuple(rectangles), inverse.to(device))

    @property
    def tokens(self) -> int:
        """Tokens in the row."""
        return int(self.positions.numel())
