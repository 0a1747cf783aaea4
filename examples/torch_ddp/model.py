"""A small transformer that predicts the next symbol at every position, with dropout."""

import hashlib

import torch
from torch import nn


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [samples, context, width]; returns the same shape."""
        samples, context, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(samples, context, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        later = torch.ones(context, context, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ value
        x = x + self.dropout(self.mix(mixed.transpose(1, 2).reshape(samples, context, width)))
        return x + self.dropout(self.feed(self.before_feed(x)))


class LanguageModel(nn.Module):
    """Embedding, blocks, and a linear layer back to the vocabulary."""

    def __init__(self, *, vocabulary: int, context: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.symbol, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, 4, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs: [samples, context] of symbols; returns logits [samples, context, vocabulary]."""
        x = self.symbol(inputs) + self.place(torch.arange(inputs.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers, bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).tolist()))
    return digest.hexdigest()
