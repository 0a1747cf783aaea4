"""A small GPT-2 trained by the Hugging Face Trainer, guarded by one callback. The Trainer does all the rest itself."""

import argparse
from pathlib import Path
from typing import Any

import torch
from stepkeeper.integrations.huggingface import SnapshotCallback
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

TOKENS = 64
LENGTH = 32


class Texts(torch.utils.data.Dataset):
    """Sequences that count up from somewhere by some stride: something to learn, and the same in every run."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        words = (number * 7 + torch.arange(LENGTH) * (1 + number % 5)) % TOKENS
        return {"input_ids": words, "labels": words.clone()}


class Told(Trainer):
    """Writes down every loss, exactly."""

    losses: Path | None = None

    def training_step(self, *args: Any, **how: Any) -> torch.Tensor:
        loss = super().training_step(*args, **how)
        if self.losses is not None:
            with self.losses.open("a") as file:
                print(self.state.global_step + 1, float(loss).hex(), file=file)
        return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--losses", type=Path)
    parser.add_argument("--output", default="out")
    given = parser.parse_args()
    snapshots = SnapshotCallback()
    args = TrainingArguments(
        output_dir=snapshots.output_dir(given.output),
        save_strategy="no",  # the plan of the job says when
        save_total_limit=3,
        max_steps=given.steps,
        per_device_train_batch_size=8,
        lr_scheduler_type="constant",
        seed=5,
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
    )
    torch.manual_seed(args.seed)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
    trainer = Told(model=model, args=args, train_dataset=Texts(), callbacks=[snapshots])
    trainer.losses = given.losses
    trainer.train(resume_from_checkpoint=snapshots.resume_from)


if __name__ == "__main__":
    main()
