"""Writing tokens: the decoder, the plain loop with and without cache, and a library.

The decoder is that of ``chapters/fast-generation.md``, the plain loop ``generate`` of
``chapters/ch02-transformer.md``. Both continue a short prompt greedily, on a model of
Chapter 2's sizes with random weights. They must write the same tokens.

The library is ``transformers``: a Llama with as many layers, heads and tokens and with
the same widths, with eager attention and with PyTorch's fused one. What differs: it
turns queries and keys by their positions in place of a table of positions, it does not
normalise them, and its weights are others. If it is not installed, the benchmark says
so and goes on.

Then the batch grows, and the decoder is set beside the roofline of this machine: the
peak is that of a large product of matrices, the bandwidth that of a dot product of an
array with itself, for an array as large as the weights and for one far larger than any
cache. At last the same loops run on a skeleton, a model with the same operators and
next to no arithmetic in them: its time is the price of the calls. And a step of the
largest batch is divided by what its operators are for.

Times are processor seconds of one thread.

Usage: ``python -m benchmarks.generation [--small] [--store]``
"""

import contextlib
import dataclasses
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.common import FOLDER, arguments, finish, in_turn, ratio, report
from tinygpt.decoding import (
    Decoder,
    OperatorCount,
    attainable,
    bytes_read,
    generate_fast,
    write,
)
from tinygpt.transformer import GPTConfig, TinyGPT, flops_per_token, generate

SEED = 20
VOCABULARY = 512
PROMPT, NEW = 4, 110  # tokens
ROUNDS = 9
AT_LEAST = 0.1  # seconds of each contestant in each round
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PLAIN, DECODER = "plain loop, cache", "decoder"
FAR_LARGER = 2**28  # bytes of an array that no cache holds

# What the operators of a step are for.
KINDS = {
    "products with the weights": ("mm", "addmm_"),
    "attention": ("bmm", "_softmax"),
    "norms, gates, sums and copies": (),  # all others
}

Actions = dict[str, Callable[[], Any]]


class OperatorTime(TorchDispatchMode):
    """Add up the processor seconds of the operators in a ``with`` block, by kind.

    To listen costs some microseconds for each operator. So it tells something only of
    operators that take much longer, as those of a large batch do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = dict.fromkeys(KINDS, 0.0)

    def __torch_dispatch__(
        self,
        operator: Callable[..., Any],
        types: Any,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator and add its time to its kind."""
        name = operator.overloadpacket.__name__
        kinds = [kind for kind, names in KINDS.items() if name in names]
        start = time.process_time()
        result = operator(*args, **(kwargs or {}))
        self.seconds[(kinds or list(KINDS)[-1:])[0]] += time.process_time() - start
        return result


def new_model(**sizes: int) -> TinyGPT:
    """A model of Chapter 2's sizes, or of others, with weights from a fixed seed."""
    torch.manual_seed(SEED)
    return TinyGPT(GPTConfig(**({"vocab_size": VOCABULARY} | sizes))).eval()


def new_prompt(batch_size: int, vocab_size: int = VOCABULARY) -> Tensor:
    """Random prompts (B, PROMPT)."""
    torch.manual_seed(SEED)
    return torch.randint(vocab_size, (batch_size, PROMPT))


def loops(model: TinyGPT, batch_size: int, n_new: int) -> Actions:
    """The plain loop and the decoder, ready to continue the same prompts."""
    prompt = new_prompt(batch_size, model.config.vocab_size)
    decoder = Decoder(model, batch_size)
    return {
        PLAIN: lambda: generate(model, prompt, n_new),
        DECODER: lambda: generate_fast(decoder, prompt, n_new),
    }


def library(config: GPTConfig, n_new: int) -> Actions:
    """The library's ``generate`` on a model of the same sizes, in two forms.

    Empty, with a line that says so, if the library is not there.
    """
    if importlib.util.find_spec("transformers") is None:
        print(
            "transformers is not installed, so it is left out; `pip install "
            "'.[bench]'` brings it",
            flush=True,
        )
        return {}
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.d_model,
        intermediate_size=config.mlp_hidden,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        num_key_value_heads=config.n_heads,
        max_position_embeddings=config.block_size,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,  # nothing ends the text early
        pad_token_id=None,
    )
    prompt = new_prompt(1)
    actions: Actions = {}
    for attention in ("eager", "sdpa"):
        torch.manual_seed(SEED)
        theirs = LlamaForCausalLM(sizes).eval()
        theirs.set_attn_implementation(attention)

        def act(theirs: Any = theirs) -> Tensor:
            return theirs.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=n_new,
                do_sample=False,
                use_cache=True,
            )

        actions[f"transformers, {attention}"] = act
    return actions


def alone(
    model: TinyGPT, n_new: int, rounds: int, at_least: float
) -> tuple[dict[str, list[float]], dict[str, bool]]:
    """Write one text in every way; return the seconds of each, and what was equal."""
    prompt = new_prompt(1)
    actions = loops(model, 1, n_new) | {
        "plain loop, no cache": lambda: generate(model, prompt, n_new, use_cache=False),
        "decoder made anew": lambda: generate_fast(Decoder(model), prompt, n_new),
    }
    theirs = library(model.config, n_new)
    seconds, wrote = in_turn(actions | theirs, rounds, at_least)
    checks = {
        "batch 1: all loops write the same tokens": all(
            torch.equal(wrote[name], wrote[PLAIN]) for name in actions
        )
    }
    if theirs:
        checks["batch 1: the library writes as many tokens"] = all(
            wrote[name].shape == wrote[PLAIN].shape for name in theirs
        )
    return seconds, checks


def decoding(decoder: Decoder, n_new: int) -> Callable[[], Tensor]:
    """Only the steps: the same text again and again, behind one prompt."""
    logits = decoder.prefill(new_prompt(decoder.batch_size)).clone()

    def act() -> Tensor:
        decoder.position = PROMPT
        decoder.logits.copy_(logits)
        return write(decoder, n_new)

    return act


def point(decoder: Decoder, n_new: int, rounds: int, at_least: float) -> dict[str, Any]:
    """Where one batch size stands: its steps at all contexts of a text, taken together.

    Returns:
        batch and mean context; FLOPs a second, and FLOPs per byte that has to be read.
    """
    config, B = decoder.model.config, decoder.batch_size
    contexts = range(PROMPT + 1, PROMPT + n_new)  # the last token is not read
    flops = B * sum(flops_per_token(config, n)["total"] for n in contexts)
    read = sum(bytes_read(decoder, n) for n in contexts)
    seconds, _ = in_turn({"steps": decoding(decoder, n_new)}, rounds, at_least)
    return {
        "batch": B,
        "context": round(sum(contexts) / len(contexts)),
        "intensity": flops / read,
        "flops_per_second": flops / median(seconds["steps"]),
    }


def inside(model: TinyGPT, batch_size: int, n_new: int) -> dict[str, Any]:
    """Divide the time of a step by what its operators are for; mean over a text."""
    decoder = Decoder(model, batch_size)
    act = decoding(decoder, n_new)
    act()
    with OperatorTime() as taken:
        act()
    return {
        "batch": batch_size,
        "seconds": {name: s / (n_new - 1) for name, s in taken.seconds.items()},
    }


def roof(small: bool) -> dict[str, Any]:
    """Measure the machine: FLOP/s of a large product, bytes/s of reading an array."""
    size, far = (128, 2**20) if small else (1_024, FAR_LARGER)
    a, product = torch.randn(size, size), torch.empty(size, size)
    weights = bytes_read(Decoder(new_model()), 0)
    arrays = {
        "as large as the weights": torch.ones(weights // 4),
        "far larger than the caches": torch.ones(far // 4),
    }
    actions: Actions = {"peak": lambda: torch.mm(a, a, out=product)}
    for name, array in arrays.items():
        actions[name] = lambda array=array: torch.dot(array, array)
    with torch.inference_mode():
        seconds, _ = in_turn(actions, 2 if small else 7, 0.0 if small else 0.2)
    best = {name: min(rounds) for name, rounds in seconds.items()}
    return {
        "peak": 2 * size**3 / best["peak"],
        "bandwidth": {name: 4 * a.numel() / best[name] for name, a in arrays.items()},
    }


def skeleton(
    model: TinyGPT, n_new: int, rounds: int, at_least: float
) -> dict[str, Any]:
    """Run both loops on a model with the same operators and almost no arithmetic.

    Returns:
        for each loop its operators in a step; seconds of a step of the skeleton; and
        what share of a real step that is, in each round.
    """
    config = model.config
    bare = new_model(
        vocab_size=8,
        d_model=2 * config.n_heads,
        n_heads=config.n_heads,
        n_layers=config.n_layers,
        mlp_ratio=1,
    )
    real = loops(model, 1, n_new)
    actions = real | {
        f"bare {name}": act for name, act in loops(bare, 1, n_new).items()
    }
    seconds, _ = in_turn(actions, rounds, at_least)
    return {
        "operators": operators(model),
        "seconds": {
            name: [s / n_new for s in seconds[f"bare {name}"]] for name in real
        },
        "share": {
            name: [b / s for b, s in zip(seconds[f"bare {name}"], seconds[name])]
            for name in real
        },
    }


def operators(model: TinyGPT) -> dict[str, int]:
    """Count the operators of one step of each loop."""
    prompt, newest = new_prompt(1, model.config.vocab_size), torch.tensor([[0]])
    decoder = Decoder(model)
    with torch.no_grad():
        _, _, past = model(prompt)
        with OperatorCount() as plain:
            model(newest, cache=past)
    decoder.prefill(prompt)
    ids = newest[0]
    with torch.inference_mode(), OperatorCount() as fast:
        decoder.decode(ids)
    return {PLAIN: plain.operators.total(), DECODER: fast.operators.total()}


def measure(small: bool) -> dict[str, Any]:
    """Run everything; ``small`` only tries it."""
    torch.set_num_threads(1)
    n_new, rounds, at_least = (5, 2, 0.0) if small else (NEW, ROUNDS, AT_LEAST)
    model = new_model()
    seconds, checks = alone(model, n_new, rounds, at_least)
    measures = [{"task": "batch 1", "unit": "s", "rounds": seconds}]
    ratios = [
        ratio("batch 1", seconds, DECODER, name) for name in seconds if name != DECODER
    ]
    batches, points = [], []
    for B in BATCHES[:2] if small else BATCHES:
        both, wrote = in_turn(loops(model, B, n_new), rounds, at_least)
        equal = torch.equal(wrote[PLAIN], wrote[DECODER])
        checks[f"batch {B}: both loops write the same tokens"] = equal
        batches.append({"batch": B, "seconds": both})
        points.append(point(Decoder(model, B), n_new, rounds, at_least))
        if B > 1:
            measures.append({"task": f"batch {B}", "unit": "s", "rounds": both})
            ratios.append(ratio(f"batch {B}", both, DECODER, PLAIN))
    return report(
        "generation",
        small,
        measures,
        ratios,
        checks,
        packages=("transformers",),
        prompt_tokens=PROMPT,
        new_tokens=n_new,
        model=dataclasses.asdict(model.config),
        batches=batches,
        points=points,
        inside=inside(model, batches[-1]["batch"], n_new),
        roof=roof(small),
        skeleton=skeleton(model, n_new, rounds, at_least),
    )


def draw(log: dict[str, Any], path: Path) -> None:
    """Draw the roofline of this machine, and where each batch size stands."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    x = [2 ** (i / 8) for i in range(-24, 56)]
    for name, bandwidth in log["roof"]["bandwidth"].items():
        y = [attainable(i, log["roof"]["peak"], bandwidth) / 1e9 for i in x]
        ax.loglog(x, y, label=f"reading an array {name}")
    for at in log["points"]:
        place = (at["intensity"], at["flops_per_second"] / 1e9)
        ax.plot(*place, "ko")
        ax.annotate(f" {at['batch']}", place, va="top")
    ax.set(
        xlabel="FLOP per byte",
        ylabel="GFLOP/s",
        title=f"{log['machine']['processor']}, one thread; the numbers are batch sizes",
    )
    ax.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the ratios, write figures; fail if two loops disagree."""
    options = arguments("generation", __doc__.splitlines()[0], argv)
    log = measure(options.small)
    with contextlib.suppress(ImportError):  # matplotlib is an extra of the package
        draw(log, options.root / FOLDER / "generation.svg")
    return finish(log, options.root, options.store)


if __name__ == "__main__":
    sys.exit(main())
