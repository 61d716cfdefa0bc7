"""Cut the reference run of Step 6 to what the training scrubber of the book shows.

``run.json`` holds the evaluations with every digit, the text that was written at each,
and some of the training losses, enough to draw a curve. ``run-attention.safetensors``
holds the stored attention maps, bit by bit, without the half above the diagonal, which
is zero. The page fetches it when the reader asks for it.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

EVERY = 10  # of the training losses one in so many is drawn
DIGITS = 3  # of a loss that is only drawn


def drawn_losses(losses: list[float]) -> list[tuple[int, float]]:
    """Pairs of step and training loss for the thin curve, the first and last included.

    Example: of 25 losses, those of the steps 0, 10, 20 and 24.
    """
    steps = sorted({*range(0, len(losses), EVERY), len(losses) - 1})
    return [(step, round(losses[step], DIGITS)) for step in steps]


def cut_run(log: dict[str, Any]) -> dict[str, Any]:
    """What the page needs of the log, as it goes into ``run.json``."""
    sizes = log["sizes"]
    return {
        "vocabulary": sizes["V"],
        "layers": sizes["L"],
        "heads": sizes["H"],
        "passage": log["passage"],
        "losses": drawn_losses(log["train_loss"]),
        "evaluations": [
            entry | {"sample": log["samples"][str(entry["step"])]}
            for entry in log["evaluations"]
        ],
    }


def pack_triangle(maps: Tensor) -> Tensor:
    """Keep of maps (L, H, T, T) the rows up to the diagonal: (L, H, T (T + 1) / 2).

    Raises:
        ValueError: there is something above the diagonal.
    """
    T = maps.shape[-1]
    if maps.triu(diagonal=1).any():
        raise ValueError("an attention map looks into the future; it cannot be packed")
    row, column = torch.tril_indices(T, T)
    return maps[..., row, column].contiguous()


def write(root: Path, folder: Path) -> None:
    """Put ``run.json`` and ``run-attention.safetensors`` into a folder."""
    stored = root / "data" / "reference"
    log = json.loads((stored / "step6_log.json").read_text(encoding="utf-8"))
    text = json.dumps(cut_run(log), separators=(",", ":"), ensure_ascii=False)
    (folder / "run.json").write_text(text + "\n", encoding="utf-8")
    maps = load_tensors((stored / "step6_attention.safetensors").read_bytes())
    packed = {name: pack_triangle(tensor) for name, tensor in maps.items()}
    (folder / "run-attention.safetensors").write_bytes(safetensors_bytes(packed))
