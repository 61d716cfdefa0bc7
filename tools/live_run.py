"""Cut the reference run of Step 6 to what the training scrubber of the book shows.

The build of the book calls ``write``. ``run.json`` holds the evaluations with every
digit, the text that was written at each, and some of the training losses, enough to
draw a curve. ``run-attention.safetensors`` holds the stored attention maps, bit by bit,
without the half above the diagonal, which is zero. The page fetches it when the reader
asks for it.

Without JavaScript, a picture of a few of these maps stands there. It is stored:

    python -m tools.live_run    # write book/figures/heads-in-time.svg
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import json
from itertools import groupby
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from tinygpt.corpus import write_whole
from tools.pages import ROOT

EVERY = 10  # of the training losses one in so many is drawn
DIGITS = 3  # of a loss that is only drawn

FIGURE = "book/figures/heads-in-time.svg"
SHOWN_STEPS = (0, 500, 1500, 5000)
SHOWN_HEADS = ((0, 3), (2, 0))  # block and head, counted from 0
SHADES = 8  # of blue; the darkest is weight 1, and the shade is its square root
CELL = 2  # pixels of the picture for one weight


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


def read_maps(root: Path) -> dict[str, Tensor]:
    """The stored attention at each evaluation: ``step_500`` is (L, H, T, T)."""
    stored = root / "data" / "reference" / "step6_attention.safetensors"
    return load_tensors(stored.read_bytes())


def write(root: Path, folder: Path) -> None:
    """Put ``run.json`` and ``run-attention.safetensors`` into a folder."""
    stored = root / "data" / "reference" / "step6_log.json"
    log = json.loads(stored.read_text(encoding="utf-8"))
    text = json.dumps(cut_run(log), separators=(",", ":"), ensure_ascii=False)
    write_whole(folder / "run.json", (text + "\n").encode("utf-8"))
    packed = {name: pack_triangle(maps) for name, maps in read_maps(root).items()}
    write_whole(folder / "run-attention.safetensors", safetensors_bytes(packed))


def draw_map(weights: Tensor) -> list[str]:
    """One map (T, T) as SVG paths, one for each shade, made of horizontal runs."""
    shades = (weights.float().sqrt() * SHADES).round().int().tolist()
    runs: dict[int, str] = {}
    for y, row in enumerate(shades):
        x = 0
        for shade, cells in groupby(row):
            length = len(list(cells))
            if shade:
                run = f"M{x} {y}h{length}v1h-{length}z"
                runs[shade] = runs.get(shade, "") + run
            x += length
    return [
        f'<path fill-opacity="{shade / SHADES:g}" d="{d}"/>'
        for shade, d in sorted(runs.items())
    ]


def draw_heads(maps: dict[str, Tensor]) -> str:
    """The picture: a row for each of the shown heads, a column for each shown step."""
    T = maps["step_0"].shape[-1]
    side, gap, left, top = CELL * T, 16, 74, 34
    width = left + (side + gap) * len(SHOWN_STEPS)
    height = top + (side + gap) * len(SHOWN_HEADS)
    words, pictures = [], []
    for column, step in enumerate(SHOWN_STEPS):
        x = left + (side + gap) * column
        middle = x + side // 2
        words.append(
            f'<text x="{middle}" y="22" text-anchor="middle">step {step:,}</text>'
        )
        for line, (layer, head) in enumerate(SHOWN_HEADS):
            y = top + (side + gap) * line
            if column == 0:
                name = f"head {layer}.{head}"
                words.append(f'<text x="8" y="{y + side // 2}">{name}</text>')
            pictures += [
                f'<g transform="translate({x} {y}) scale({CELL})">',
                f'<rect width="{T}" height="{T}" fill="#fff"/>',
                *draw_map(maps[f"step_{step}"][layer, head]),
                "</g>",
            ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'role="img" aria-labelledby="t" font-family="system-ui, -apple-system, '
        "'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" font-size=\"14\">",
        '<title id="t">Two heads at four moments of their training</title>',
        f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" '
        'fill="#fbfcfd" stroke="#d8dee4" stroke-width="2"/>',
        '<g fill="#1f2933">',
        *words,
        "</g>",
        '<g fill="#005a8c" shape-rendering="crispEdges">',
        *pictures,
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Draw the picture that stands in the page without JavaScript."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.live_run", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args(argv)
    picture = draw_heads(read_maps(options.root)).encode("utf-8")
    write_whole(options.root / FIGURE, picture)
    print(f"{FIGURE}: {len(picture):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
