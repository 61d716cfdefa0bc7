"""Make the reference runs and store them: what ``make reference`` runs.

A run uses its page's own functions and nothing else. What it writes goes below
``data/reference/``, and ``data/manifest.json`` then states the new sizes and hashes.

- ``ch02``, a minute: the trained weights of Chapter 2 with their history
  (safetensors). The page trains them as well, each time it runs.
- ``step6``, long: the log of Step 6 (JSON), the trained weights (as a state dict, and
  as safetensors), and the attention of every head over one passage at each evaluation
  (safetensors, half precision). An interrupted run is continued by running the command
  again.

Usage: ``python -m tools.reference [ch02] [step6]``
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import json
import os
import platform
from typing import Any

import numpy
import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.training import (
    TrainConfig,
    Trainer,
    fuse,
    get_batch,
    save_whole,
    whole_text_loss,
)
from tinygpt.transformer import BytePairTokenizer, GPTConfig, TinyGPT, train_model
from tools.data import state_reference
from tools.pages import ROOT

CHAPTER2_SEED = 20
SEED = 1337
THREADS = 2
SIZES = {"V": 65, "T": 64, "d": 128, "H": 4, "L": 4}
PASSAGE = 64  # characters of the validation text whose attention is kept
SAMPLE = 300  # characters written at each evaluation


class Recorder:
    """What is kept at each evaluation; it leaves the global generator as it was."""

    def __init__(self, tokenizer: CharTokenizer, passage: Tensor) -> None:
        self.tokenizer, self.passage = tokenizer, passage
        self.samples: dict[int, str] = {}
        self.attention: dict[str, Tensor] = {}

    def __call__(self, step: int, model: torch.nn.Module) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            plain = GPT(**SIZES)  # head by head, so that each head keeps its weights
            plain.load_state_dict(model.state_dict())
            torch.manual_seed(0)
            newline = torch.tensor([self.tokenizer.encode("\n")])
            ids = plain.generate(newline, SAMPLE)[0].tolist()
            self.samples[step] = self.tokenizer.decode(ids)
            with torch.no_grad():
                plain(self.passage[None])
            maps = [
                torch.cat([head.A for head in block.attn.heads])
                for block in plain.blocks
            ]
            self.attention[f"step_{step}"] = torch.stack(maps).half()  # (L, H, T, T)


def machine() -> dict[str, Any]:
    """What the run was made on, as far as its digits may depend on it."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "numpy": numpy.__version__,
    }


def make_chapter2(root: Path, steps: int = 400) -> dict[str, bytes]:
    """Train the model of Chapter 2 as its page does; return the file by its name."""
    torch.set_num_threads(1)
    text = load_corpus("alice", root)
    tokenizer = BytePairTokenizer.train(text, vocab_size=512)
    data = torch.tensor(tokenizer.encode(text))
    n_train = int(0.85 * len(data))
    torch.manual_seed(CHAPTER2_SEED)
    model = TinyGPT(GPTConfig(vocab_size=tokenizer.vocab_size))
    history = train_model(model, data[:n_train], data[n_train:], steps)
    weights = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # the token embedding, a second time
    }
    metadata = {"history": json.dumps(vars(history))}  # one entry: order is no question
    return {"ch02_model.safetensors": safetensors_bytes(weights, metadata)}


def make_reference(root: Path, config: TrainConfig) -> dict[str, bytes]:
    """Run the recipe of Step 6 and return its files of ``data/reference/`` by name."""
    torch.set_num_threads(THREADS)
    text = load_corpus("tinyshakespeare", root)
    tokenizer = CharTokenizer.from_text(text)
    data = torch.tensor(tokenizer.encode(text))
    train_data, val_data = split_corpus(data)
    recorder = Recorder(tokenizer, val_data[:PASSAGE])
    kept = root / "_build" / "reference" / "recorder.pt"

    def record(step: int, model: torch.nn.Module) -> None:
        recorder(step, model)
        save_whole([recorder.samples, recorder.attention], kept)

    torch.manual_seed(SEED)
    model = GPT(**SIZES)
    get_batch(
        train_data, SIZES["T"], config.batch_size
    )  # the page's check of the shift
    trainer = Trainer(
        fuse(model),
        train_data,
        val_data,
        config,
        checkpoint=root / "_build" / "reference" / "run.pt",
        on_evaluation=record,
    )
    if trainer.step:
        recorder.samples, recorder.attention = torch.load(kept, weights_only=True)
    log = trainer.run()
    weights = {name: t.contiguous() for name, t in model.state_dict().items()}
    best = GPT(**SIZES)
    best.load_state_dict(trainer.best["model"])
    record_of_run = {
        "seed": SEED,
        "sizes": SIZES,
        "config": vars(config) | {"betas": list(config.betas)},
        "machine": machine(),
        "validation_whole": whole_text_loss(model, val_data),
        "best": {
            "step": trainer.best["step"],
            "validation": trainer.best["validation"],
            "validation_whole": whole_text_loss(best, val_data),
        },
        "passage": tokenizer.decode(recorder.passage.tolist()),
        "samples": {str(step): text for step, text in recorder.samples.items()},
        **log,
    }
    temporary = root / "_build" / "reference" / "step6_model.pt"
    save_whole(weights, temporary)
    return {
        "step6_log.json": (json.dumps(record_of_run) + "\n").encode("utf-8"),
        "step6_model.pt": temporary.read_bytes(),
        "step6_model.safetensors": safetensors_bytes(weights),
        "step6_attention.safetensors": safetensors_bytes(recorder.attention),
    }


def main(argv: list[str] | None = None) -> int:
    """Make the runs, or continue them, and store them."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.reference", description=__doc__.splitlines()[0]
    )
    makers = {
        "ch02": make_chapter2,
        "step6": lambda root: make_reference(root, TrainConfig()),
    }
    parser.add_argument("runs", nargs="*", metavar="RUN", help="ch02, step6; else both")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    if unknown := set(options.runs) - makers.keys():
        parser.error(f"no run is called {min(unknown)}; there are {', '.join(makers)}")
    for run in options.runs or makers:
        for name, content in makers[run](options.root).items():
            state_reference(options.root, name, content)
            print(f"data/reference/{name}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
