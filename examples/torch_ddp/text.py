"""Training text that every Python installation has, dealt out in a shuffled order that can be stored and restored."""

import sysconfig
from pathlib import Path

import torch

VOCABULARY = 128


class Text:
    """The sources of Python's standard library as one tensor of symbols below 128."""

    def __init__(self, limit_bytes: int = 1_000_000) -> None:
        library = Path(sysconfig.get_paths()["stdlib"])
        collected = bytearray()
        for path in sorted(library.glob("*.py")):
            collected += path.read_bytes()
            if len(collected) >= limit_bytes:
                break
        raw = torch.frombuffer(collected[:limit_bytes], dtype=torch.uint8)
        self.symbols = raw.clamp(max=VOCABULARY - 1).long()

    def windows(self, starts: torch.Tensor, context: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (inputs of shape [samples, context], the symbol that follows each position, of the same shape)."""
        places = starts[:, None] * context + torch.arange(context)
        return self.symbols[places], self.symbols[places + 1]

    def samples(self, context: int) -> int:
        """Return how many samples the text has: windows that do not overlap."""
        return (len(self.symbols) - 1) // context


class ShuffledSampler:
    """Deals this rank's share of each global batch, as torch's DistributedSampler would, and knows where it is.

    All ranks draw the same order from the same seed and take turns in it. What is dealt next depends on this object's
    state alone and never on the step number: whoever restores the state goes on exactly where it was taken.
    """

    def __init__(self, samples: int, *, batch: int, rank: int, world_size: int, seed: int) -> None:
        self._samples, self._batch, self._rank, self._world_size = samples, batch, rank, world_size
        self._generator = torch.Generator().manual_seed(seed)
        self._order = torch.randperm(samples, generator=self._generator)
        self._position = 0

    def __next__(self) -> torch.Tensor:
        """Return the ids of the next samples; a rest too small for all ranks is left out of the pass."""
        count = self._batch * self._world_size
        if self._position + count > self._samples:
            self._order = torch.randperm(self._samples, generator=self._generator)
            self._position = 0
        ids = self._order[self._position : self._position + count]
        self._position += count
        return ids[self._rank :: self._world_size]

    def state_dict(self) -> dict:
        """Return everything that decides what is dealt next."""
        return {"generator": self._generator.get_state(), "order": self._order, "position": self._position}

    def load_state_dict(self, state: dict) -> None:
        """Go on from a state."""
        if len(state["order"]) != self._samples:
            raise ValueError(f"the snapshot knows {len(state['order'])} samples, this text has {self._samples}")
        self._generator.set_state(state["generator"])
        self._order, self._position = state["order"], state["position"]
