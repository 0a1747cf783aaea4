"""A small classifier trained by Lightning, guarded by one callback. Lightning does all the rest itself."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import lightning
import torch
from stepkeeper.integrations.pytorch_lightning import SnapshotCallback
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """Two layers with dropout, so that the random generator matters."""

    def __init__(self, losses: Path | None) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 4)
        )
        self.losses = losses

    def training_step(self, batch: list[torch.Tensor], _number: int) -> torch.Tensor:
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(inputs), labels)
        if self.losses is not None:
            with self.losses.open("a") as file:
                print(self.global_step + 1, float(loss).hex(), file=file)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Resumable(DataLoader[tuple[torch.Tensor, ...]]):
    """A loader that knows how many batches of this pass it gave: Lightning keeps that with its checkpoint.

    `torchdata.stateful_dataloader.StatefulDataLoader` is one for all cases; this one suits data without shuffling.
    """

    given = 0
    skip = 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        self.given = 0
        skip, self.skip = self.skip, 0
        for batch in super().__iter__():
            self.given += 1
            if self.given > skip:
                yield batch

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skip = state["given"] % len(self)


def data() -> Resumable:
    drawn = torch.Generator().manual_seed(3)
    inputs = torch.randn(256, 16, generator=drawn)
    labels = inputs[:, :4].argmax(dim=1)
    return Resumable(TensorDataset(inputs, labels), batch_size=8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--losses", type=Path)
    given = parser.parse_args()
    snapshots = SnapshotCallback()
    lightning.seed_everything(5, verbose=False)
    trainer = lightning.Trainer(
        max_steps=given.steps,
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=1,
        callbacks=[snapshots],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(Classifier(given.losses), data(), ckpt_path=snapshots.resume_from, weights_only=False)


if __name__ == "__main__":
    main()
