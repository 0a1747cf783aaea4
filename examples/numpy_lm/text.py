"""Training text that every Python installation has: the sources of its own standard library."""

import hashlib
import sysconfig
from pathlib import Path

import numpy as np

VOCABULARY = 128


class Text:
    """The text as one array of symbols below 128, and a digest that all ranks compare before they start."""

    def __init__(self, limit_bytes: int = 1_000_000) -> None:
        library = Path(sysconfig.get_paths()["stdlib"])
        collected = bytearray()
        for path in sorted(library.glob("*.py")):
            collected += path.read_bytes()
            if len(collected) >= limit_bytes:
                break
        raw = bytes(collected[:limit_bytes])
        self.symbols = np.minimum(np.frombuffer(raw, dtype=np.uint8), VOCABULARY - 1).astype(np.int64)
        self.digest = hashlib.sha256(raw).hexdigest()

    def windows(self, starts: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (inputs of shape [samples, context], the symbol that follows each of shape [samples])."""
        places = starts[:, None] * context + np.arange(context)
        return self.symbols[places], self.symbols[places[:, -1] + 1]

    def samples(self, context: int) -> int:
        """Return how many samples the text has: windows that do not overlap."""
        return (len(self.symbols) - 1) // context


class ShuffledSamples:
    """Deals each sample once in every pass over the text, in a new order each time.

    What is dealt next depends on this object's state alone (the generator, the order of the pass, the position in it)
    and never on the step number: whoever restores the state goes on exactly where it was taken.
    """

    def __init__(self, samples: int, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._order = self._generator.permutation(samples)
        self._position = 0
        self._passes = 0

    def deal(self, count: int) -> np.ndarray:
        """Return the ids of the next `count` samples; a rest too small for them is left out of the pass."""
        if self._position + count > len(self._order):
            self._order = self._generator.permutation(len(self._order))
            self._position = 0
            self._passes += 1
        ids = self._order[self._position : self._position + count]
        self._position += count
        return ids

    def state_dict(self) -> dict:
        """Return everything that decides what is dealt next."""
        return {
            "generator": self._generator.bit_generator.state,
            "order": self._order,
            "position": self._position,
            "passes": self._passes,
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on from a state."""
        if len(state["order"]) != len(self._order):
            raise ValueError(f"the snapshot knows {len(state['order'])} samples, this text has {len(self._order)}")
        self._generator.bit_generator.state = state["generator"]
        self._order, self._position, self._passes = state["order"], state["position"], state["passes"]
