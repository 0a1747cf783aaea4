"""A small language model with hand-written gradients: embedding, two hidden layers, softmax over the next symbol."""

import hashlib

import numpy as np


class LanguageModel:
    """Predicts the symbol that follows `context` symbols. All parameters are float32 arrays in one dict."""

    def __init__(self, *, vocabulary: int, context: int, embedding: int, hidden: int, seed: int) -> None:
        generator = np.random.default_rng(seed)

        def weights(rows: int, columns: int) -> np.ndarray:
            return (generator.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

        self.parameters: dict[str, np.ndarray] = {
            "embedding": weights(vocabulary, embedding),
            "w1": weights(context * embedding, hidden),
            "b1": np.zeros(hidden, np.float32),
            "w2": weights(hidden, hidden),
            "b2": np.zeros(hidden, np.float32),
            "w3": weights(hidden, vocabulary),
            "b3": np.zeros(vocabulary, np.float32),
        }

    def loss_and_gradients(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
        """Return the mean cross entropy in nats and its gradients.

        inputs: [samples, context] of symbols; targets: [samples].
        """
        p = self.parameters
        samples = len(inputs)
        embedded = p["embedding"][inputs].reshape(samples, -1)
        first = np.tanh(embedded @ p["w1"] + p["b1"])
        second = np.tanh(first @ p["w2"] + p["b2"])
        logits = second @ p["w3"] + p["b3"]
        logits -= logits.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(logits).sum(axis=1, keepdims=True))
        loss = float((log_sum[:, 0] - logits[np.arange(samples), targets]).mean())

        d_logits = np.exp(logits - log_sum)
        d_logits[np.arange(samples), targets] -= 1
        d_logits /= np.float32(samples)
        d_second = (d_logits @ p["w3"].T) * (1 - second**2)
        d_first = (d_second @ p["w2"].T) * (1 - first**2)
        d_embedded = (d_first @ p["w1"].T).reshape(*inputs.shape, -1)
        d_embedding = np.zeros_like(p["embedding"])
        np.add.at(d_embedding, inputs, d_embedded)  # one after the other, so always in the same order
        return loss, {
            "embedding": d_embedding,
            "w1": embedded.T @ d_first,
            "b1": d_first.sum(axis=0),
            "w2": first.T @ d_second,
            "b2": d_second.sum(axis=0),
            "w3": second.T @ d_logits,
            "b3": d_logits.sum(axis=0),
        }

    def digest(self) -> str:
        """Return the SHA-256 of all weights, bit by bit."""
        digest = hashlib.sha256()
        for name in sorted(self.parameters):
            digest.update(self.parameters[name].tobytes())
        return digest.hexdigest()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the parameters."""
        return self.parameters

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Take over parameters of the same shapes."""
        for name, array in self.parameters.items():
            if state[name].shape != array.shape:
                raise ValueError(f"{name} has the shape {state[name].shape} in the snapshot and {array.shape} here")
            array[...] = state[name]
