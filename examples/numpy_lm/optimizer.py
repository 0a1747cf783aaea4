"""Adam, and the learning rate that warms up and then decays."""

import math

import numpy as np


def learning_rate(step: int, *, steps: int, peak: float, warm_up: int) -> float:
    """Return the rate for a step from 1: linear up to `peak`, then half a cosine down to a tenth of it."""
    if step <= warm_up:
        return peak * step / warm_up
    done = min(1.0, (step - warm_up) / max(1, steps - warm_up))
    return peak * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


class Adam:
    """Adam with bias correction, in place on a dict of float32 arrays."""

    def __init__(self, parameters: dict[str, np.ndarray], beta1: float = 0.9, beta2: float = 0.99) -> None:
        self._parameters = parameters
        self._betas = (beta1, beta2)
        self._first = {name: np.zeros_like(array) for name, array in parameters.items()}
        self._second = {name: np.zeros_like(array) for name, array in parameters.items()}
        self._updates = 0

    def update(self, gradients: dict[str, np.ndarray], rate: float) -> None:
        """Move the parameters one step against the gradients."""
        self._updates += 1
        beta1, beta2 = self._betas
        size = np.float32(rate * math.sqrt(1 - beta2**self._updates) / (1 - beta1**self._updates))
        for name, parameter in self._parameters.items():
            gradient, first, second = gradients[name], self._first[name], self._second[name]
            first += np.float32(1 - beta1) * (gradient - first)
            second += np.float32(1 - beta2) * (gradient * gradient - second)
            parameter -= size * first / (np.sqrt(second) + np.float32(1e-8))

    def state_dict(self) -> dict:
        """Return both moments and the number of updates."""
        return {"first": self._first, "second": self._second, "updates": self._updates}

    def load_state_dict(self, state: dict) -> None:
        """Go on from a state."""
        self._first, self._second, self._updates = state["first"], state["second"], state["updates"]
