"""Write the models that the live figures run: weights, sizes and tokenizer in one file.

A safetensors file for each of ``ch02`` and ``step6``, as trained and (``-start``) as
they were before, with 16 bits a weight: a test shows that both write the same greedy
text with these as with 32. The metadata hold ``config`` and ``tokenizer`` as JSON.

The build of the book calls ``write``.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from tinygpt.chars import CharTokenizer
from tinygpt.corpus import load_corpus, write_whole
from tinygpt.gpt import GPT
from tinygpt.transformer import BytePairTokenizer, GPTConfig, TinyGPT
from tools.reference import CHAPTER2_SEED, SEED, SIZES

NAMES = ("ch02", "ch02-start", "step6", "step6-start")


class LiveModel(NamedTuple):
    """What a page needs to run a model: plain facts, and tensors by name."""

    config: dict[str, Any]
    tokenizer: dict[str, Any]
    weights: dict[str, Tensor]


def chapter2(root: Path) -> Iterator[LiveModel]:
    """Chapter 2's model, trained and before; the tied head is stored once."""
    tokenizer = BytePairTokenizer.train(load_corpus("alice", root), vocab_size=512)
    merges = [[merge.left, merge.right, merge.new_id] for merge in tokenizer.merges]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(CHAPTER2_SEED)
        model = TinyGPT(GPTConfig(vocab_size=tokenizer.vocab_size))
    c = model.config
    sizes = {"V": c.vocab_size, "T": c.block_size, "d": c.d_model}
    config = {"kind": "ch02", **sizes, "H": c.n_heads, "L": c.n_layers}
    start = model.state_dict()
    del start["lm_head.weight"]
    trained = load_file(root / "data" / "reference" / "ch02_model.safetensors")
    for weights in (trained, start):
        yield LiveModel(config, {"kind": "bytes", "merges": merges}, weights)


def step6(root: Path) -> Iterator[LiveModel]:
    """Step 6's model, trained and before."""
    characters = CharTokenizer.from_text(load_corpus("tinyshakespeare", root)).alphabet
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        start = GPT(**SIZES).state_dict()
    trained = load_file(root / "data" / "reference" / "step6_model.safetensors")
    for weights in (trained, start):
        tokenizer = {"kind": "characters", "characters": "".join(characters)}
        yield LiveModel({"kind": "step6", **SIZES}, tokenizer, weights)


def safetensors_file(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> bytes:
    """Lay out tensors in half precision as a file, always with the same bytes.

    The library's own writer leaves the order of several metadata to chance.
    """
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    content = bytearray()
    for name, tensor in sorted(tensors.items()):
        start = len(content)
        content += tensor.half().contiguous().numpy().astype("<f2").tobytes()
        place = {"dtype": "F16", "shape": list(tensor.shape)}
        header[name] = place | {"data_offsets": [start, len(content)]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the format wants the tensors aligned
    return len(text).to_bytes(8, "little") + text + bytes(content)


def write(root: Path, folder: Path) -> None:
    """Write ``NAME.safetensors`` for each model into a folder."""
    for name, model in zip(NAMES, [*chapter2(root), *step6(root)]):
        facts = {"config": model.config, "tokenizer": model.tokenizer}
        metadata = {key: json.dumps(value) for key, value in facts.items()}
        content = safetensors_file(model.weights, metadata)
        write_whole(folder / f"{name}.safetensors", content)
