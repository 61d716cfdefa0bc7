# Generated from chapters/beyond-one-machine.md by `make export`.
# Change the page, not this file.
"""Beyond one machine.

The saved code of https://example.org/tinygpt/chapters/beyond-one-machine.html
"""

import argparse
import inspect
import json
import os
import signal
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tinygpt.chars import CharTokenizer, split_corpus
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT, component_counts
from tinygpt.training import TrainConfig, Trainer, fuse

__all__ = [
    "SHAPES",
    "Cluster",
    "DistributedTrainer",
    "Parallel",
    "compute_seconds",
    "counted",
    "farewell",
    "lost_a_rank",
    "main",
    "process_group",
    "read_place",
    "report",
    "ring_bytes",
    "share",
    "talk_seconds",
    "train_in_place",
]


def share(rows: int, rank: int, world: int) -> slice:
    """Which rows of a batch belong to a rank: neighbours, as even as they can be.

    ``share(5, 0, 2)`` is ``slice(0, 2)`` and ``share(5, 1, 2)`` is ``slice(2, 5)``.

    Raises:
        ValueError: the rank is not one of ``world``, or a rank would get no row.

    Built in Beyond one machine, section The same batch, cut in shares:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#the-same-batch-cut-in-shares
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank is {rank}; expected 0 to {world - 1}")
    if rows < world:
        raise ValueError(
            f"a batch of {rows} rows for {world} ranks; expected a row for each"
        )
    return slice(rank * rows // world, (rank + 1) * rows // world)


class Parallel(nn.Module):
    """A language model that is computed by all ranks together, each on its rows.

    Every rank calls it with the same batch. The loss has the value of the whole batch
    and, after ``backward``, every rank has the gradient of the whole batch. State
    dicts are those of the model inside, so they fit with or without this class.

    Args:
        model: equal in shape on every rank; rank 0's weights are sent to the others.

    Raises:
        RuntimeError: there is no process group; see ``process_group``.

    Built in Beyond one machine, section A model that takes its rows:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#a-model-that-takes-its-rows
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        if not dist.is_initialized():
            raise RuntimeError("no process group; expected one from process_group()")
        self.T = model.T
        # Masks never change, so they need no sending; PyTorch renamed the switch.
        known = inspect.signature(DistributedDataParallel.__init__).parameters
        name = "forward_sync_buffers"
        switch = {name if name in known else "broadcast_buffers": False}
        # The gradients live in the buffers they are sent from, not in a copy of these.
        switch["gradient_as_bucket_view"] = True
        self.replica = DistributedDataParallel(model, **switch)

    def forward(
        self, idx: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The logits of this rank's rows, and the loss of all; alone without targets.

        Args:
            idx, targets: ids of the whole batch (B, T).

        Returns:
            logits (b, T, V) of the b rows of this rank, and the loss in nats.
        """
        plain = self.replica.module
        if targets is None:
            return plain(idx)
        rank, world = dist.get_rank(), dist.get_world_size()
        rows = share(len(idx), rank, world)
        inner = self.replica if torch.is_grad_enabled() else plain
        logits, loss = inner(idx[rows], targets[rows])
        weight = (rows.stop - rows.start) / len(idx)
        whole = loss.detach().float() * weight
        dist.all_reduce(whole)  # now the mean over all rows, on every rank
        own = loss * (world * weight)  # the mean of this over ranks has our gradient
        return logits, own + (whole - own).detach()

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """The state of the model inside, under its own names."""
        return self.replica.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state of the model inside."""
        return self.replica.module.load_state_dict(*args, **kwargs)


class DistributedTrainer(Trainer):
    """The trainer of Step 6 as one of several ranks, with the losses of one process.

    Takes what ``Trainer`` takes. ``batch_size`` is that of all ranks together. Every
    rank reads the checkpoint and rank 0 writes it; it fits ``Trainer`` and any number
    of ranks. The state of the global generator is that of rank 0.

    Raises:
        ValueError: fewer rows than ranks, or ranks that begin at another step, or with
            other data, another recipe or other weights than rank 0.

    Built in Beyond one machine, section One rank writes:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#one-rank-writes
    """

    def __init__(
        self,
        model: nn.Module,
        train_data: Tensor,
        val_data: Tensor,
        config: TrainConfig,
        checkpoint: str | Path | None = None,
        **options: Any,
    ) -> None:
        parallel = Parallel(model)
        share(config.batch_size, dist.get_rank(), dist.get_world_size())
        super().__init__(parallel, train_data, val_data, config, checkpoint, **options)
        sums = [len(train_data), int(train_data.sum()), int(val_data.sum())]
        weights = 0
        for value in self.model.state_dict().values():
            numbers = value.flatten().cpu().view(torch.uint8)  # their bytes
            weights = zlib.crc32(numbers.numpy(), weights)
        sums += [zlib.crc32(repr(config).encode()), weights]
        begin = torch.tensor([self.step, *sums], device=train_data.device)
        all_begin = [torch.zeros_like(begin) for _ in range(dist.get_world_size())]
        dist.all_gather(all_begin, begin)
        for rank, other in enumerate(all_begin):
            if other.tolist() != all_begin[0].tolist():
                raise ValueError(
                    f"rank {rank} begins at step {other[0]} with "
                    f"{other[1]:,} ids to train on, rank 0 at step {all_begin[0][0]} "
                    f"with {all_begin[0][1]:,}; expected the same recipe, the same "
                    f"checkpoint ({self.checkpoint}) and the same data on every rank"
                )
        state = torch.get_rng_state().to(train_data.device)
        dist.broadcast(state, src=0)
        torch.set_rng_state(state.cpu())

    def _save(self) -> None:
        if dist.get_rank() == 0:
            super()._save()
        dist.barrier()


def read_place(environment: Mapping[str, str] | None = None) -> tuple[int, int, int]:
    """This process's rank, the world size and the rank on its machine.

    Read from ``RANK``, ``WORLD_SIZE`` and ``LOCAL_RANK``, as ``torchrun`` sets them.
    Without any of them the process is alone: (0, 1, 0).

    Raises:
        ValueError: some are missing, are no numbers or do not fit each other.

    Built in Beyond one machine, section A process among others:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#a-process-among-others
    """
    environment = os.environ if environment is None else environment
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    found = {name: environment[name] for name in names if name in environment}
    if not found:
        return 0, 1, 0
    if len(found) < len(names) or not all(v.isdecimal() for v in found.values()):
        raise ValueError(
            f"{found}; expected RANK, WORLD_SIZE and LOCAL_RANK, all numbers, as "
            "torchrun sets them"
        )
    rank, world, local = (int(found[name]) for name in names)
    if not (rank < world and local <= rank):
        raise ValueError(
            f"RANK {rank}, WORLD_SIZE {world}, LOCAL_RANK {local}; expected a rank "
            "below the world size and a local rank up to the rank"
        )
    return rank, world, local


def _attempt() -> int:
    """How often ``torchrun`` has started all ranks again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def process_group(
    patience: float = 300.0, cpu: bool = False
) -> Iterator[tuple[int, int, torch.device]]:
    """Join the other processes; yield rank, world size and this rank's device.

    NCCL and one GPU for each rank of the machine where there are enough, else gloo and
    the CPU. A process that was not started by ``torchrun`` is a group of one.

    Args:
        patience: seconds that a rank waits for the others before it gives up.
        cpu: leave the GPUs alone.

    Built in Beyond one machine, section A process among others:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#a-process-among-others
    """
    rank, world, local = read_place()
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    enough = torch.cuda.is_available() and torch.cuda.device_count() >= ranks_here
    gpu = enough and not cpu
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    waits = timedelta(seconds=patience)
    store = dist.HashStore()
    if "RANK" in os.environ:  # a new attempt must not read the addresses of the dead
        store, *_ = next(dist.rendezvous("env://", timeout=waits))
        store = dist.PrefixStore(f"attempt {_attempt()}", store)
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        rank=rank,
        world_size=world,
        timeout=waits,
        store=store,
    )
    try:
        yield rank, world, device
    finally:
        dist.destroy_process_group()


def train_in_place(options: argparse.Namespace) -> None:
    """Train as this rank: what ``main`` does once the command line is read.

    Built in Beyond one machine, section A process among others:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#a-process-among-others
    """
    torch.set_num_threads(options.threads)
    text = options.text.read_text("utf-8") if options.text else None
    text = load_corpus("tinyshakespeare") if text is None else text
    tokenizer = CharTokenizer.from_text(text)
    data = torch.tensor(tokenizer.encode(text))
    config = TrainConfig(
        steps=options.steps,
        batch_size=options.batch_size,
        warmup=min(100, options.steps // 10),
        eval_every=options.eval_every,
        eval_batches=options.eval_batches,
        final_batches=options.eval_batches,
    )
    T, d, H, L = options.sizes
    with process_group(cpu=options.cpu) as (rank, world, device):
        if rank:
            os.environ["TQDM_DISABLE"] = "1"  # one bar is enough
        torch.manual_seed(options.seed)
        model = fuse(GPT(tokenizer.vocab_size, T, d, H, L)).to(device)
        parts = split_corpus(data.to(device))
        trainer = DistributedTrainer(model, *parts, config, options.checkpoint)
        begin = trainer.step

        def give_up(told: int | None = None, *_: object) -> None:
            """Say where the run goes on, then leave the last word to ``torchrun``."""
            heard = [told] if told else []
            signal.signal(signal.SIGTERM, lambda told, _: heard.append(told))
            print(farewell(rank, world, trainer), flush=True)  # not cut short
            patience = time.monotonic() + 10  # until it has seen who is dead
            while not heard and time.monotonic() < patience:
                time.sleep(0.1)
            raise SystemExit(1)

        if world > 1:
            signal.signal(signal.SIGTERM, give_up)
        try:
            if options.kill and options.kill[1] >= begin and not _attempt():
                trainer.run(options.kill[1])
                if options.kill[0] == rank:
                    os.kill(os.getpid(), signal.SIGKILL)
            warm = max(trainer.step, min(begin + 3, config.steps - 1))
            trainer.run(warm)
            start = time.perf_counter()
            trainer.run(config.steps - 1 if trainer.step < config.steps else None)
            seconds = time.perf_counter() - start
            trainer.run()
        except RuntimeError as error:
            if not lost_a_rank(error):
                raise
            print(error, file=sys.stderr)
            give_up()
        if rank == 0:
            per_step = seconds / max(1, config.steps - 1 - warm)
            report(trainer, world, begin)
            if options.record:
                content = {"world": world, "begin": begin, "seconds_per_step": per_step}
                content |= trainer.log
                options.record.write_text(json.dumps(content), "utf-8")


def lost_a_rank(error: RuntimeError) -> bool:
    """Whether an error says that another rank is gone or does not answer.

    Built in Beyond one machine, section A process among others:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#a-process-among-others
    """
    words = ("gloo", "NCCL", "Connection closed", "Connection reset", "Timed out")
    return isinstance(error, dist.DistError) or any(w in str(error) for w in words)


def farewell(rank: int, world: int, trainer: Trainer) -> str:
    """What a rank says when it cannot go on, and how the run can.

    Built in Beyond one machine, section A process among others:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#a-process-among-others
    """
    where = "no checkpoint was kept: the run starts again"
    if trainer.checkpoint is not None and trainer.checkpoint.is_file():
        state = torch.load(trainer.checkpoint, map_location="cpu", weights_only=True)
        step = len(state["log"]["train_loss"])
        where = f"the same command goes on from step {step}, {trainer.checkpoint}"
    return (
        f"rank {rank} of {world}: the job broke off at step {trainer.step}; "
        f"{where}, with any number of ranks"
    )


def report(trainer: Trainer, world: int, begin: int) -> None:
    """Print the evaluations and the last loss of a run.

    Built in Beyond one machine, section A process among others:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#a-process-among-others
    """
    for row in trainer.log["evaluations"]:
        print(
            f"step {row['step']:>5,}: training {row['train']:.4f}, "
            f"held out {row['validation']:.4f}"
        )
    last = trainer.log["train_loss"][-1]
    ranks = "1 rank" if world == 1 else f"{world} ranks"
    print(f"{ranks}, from step {begin}: the last loss is {last:.4f}", flush=True)


def main(argv: list[str] | None = None) -> None:
    """Train a GPT as one rank of a job that ``torchrun`` started, or alone.

    Built in Beyond one machine, section A process among others:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#a-process-among-others
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--text", type=Path, help="a text; else Tiny Shakespeare")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks")
    parser.add_argument(
        "--sizes", type=int, nargs=4, default=(64, 128, 4, 4), metavar=tuple("TdHL")
    )
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--eval-batches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--cpu", action="store_true", help="leave the GPUs alone")
    parser.add_argument("--checkpoint", type=Path, help="where to keep the run")
    parser.add_argument("--record", type=Path, help="a file for the losses, as JSON")
    parser.add_argument(
        "--kill", type=int, nargs=2, metavar=("RANK", "STEP"), help="a fire drill"
    )
    options = parser.parse_args(argv)
    if options.steps < 1:
        parser.error(f"--steps is {options.steps}; expected 1 or more")
    if options.record and not options.record.absolute().parent.is_dir():
        parser.error(f"--record {options.record}: there is no such folder")
    train_in_place(options)


@dataclass(frozen=True)
class Cluster:
    """GPUs on paper; each figure is an assumption of the order of present hardware.

    Args:
        peak: operations a second of one GPU, in half precision.
        used: the share of the peak that training reaches.
        together: GPUs in one machine.
        inside, outside: bytes a second that a GPU sends, within and between machines.
        delay: seconds that a message takes on top of its bytes.
        gradient: bytes of one gradient, 4 in float32.

    Built in Beyond one machine, section On paper: when do they talk longer than they
    compute?:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#on-paper-when-do-they-talk-longer-than-they-compute
    """

    peak: float = 1e15
    used: float = 0.4
    together: int = 8
    inside: float = 450e9
    outside: float = 50e9
    delay: float = 5e-6
    gradient: int = 4


def ring_bytes(n: int, size: float) -> float:
    """Bytes that each of n ranks sends to take the mean of ``size`` bytes in a ring.

    Built in Beyond one machine, section On paper: when do they talk longer than they
    compute?:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#on-paper-when-do-they-talk-longer-than-they-compute
    """
    if n < 1 or size < 0:
        raise ValueError(f"n {n}, size {size}; expected n from 1 and a size from 0")
    return 2 * (n - 1) / n * size


def talk_seconds(n: int, N: int, cluster: Cluster) -> float:
    """Seconds to take the mean of N gradients over n ranks, nothing overlapped.

    The slowest link sets the pace: within a machine the fast one, else the network.

    Built in Beyond one machine, section On paper: when do they talk longer than they
    compute?:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#on-paper-when-do-they-talk-longer-than-they-compute
    """
    speed = cluster.inside if n <= cluster.together else cluster.outside
    return ring_bytes(n, N * cluster.gradient) / speed + 2 * (n - 1) * cluster.delay


def compute_seconds(N: int, tokens: float, cluster: Cluster) -> float:
    """Seconds of one GPU for a step of N parameters on its ``tokens``: 6 N each.

    Built in Beyond one machine, section On paper: when do they talk longer than they
    compute?:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#on-paper-when-do-they-talk-longer-than-they-compute
    """
    return 6 * N * tokens / (cluster.peak * cluster.used)


SHAPES = {  # V, T, d, H, L; and the tokens of a global batch
    "ours": ((65, 64, 128, 4, 4), 64 * 64),
    "small": ((50_257, 1_024, 768, 12, 12), 2**19),
    "large": ((32_000, 4_096, 4_096, 32, 32), 2**22),
}


def counted(sizes: tuple[int, ...]) -> int:
    """Count the parameters of a GPT of Step 5 of these sizes, without its memory.

    Built in Beyond one machine, section On paper: when do they talk longer than they
    compute?:
    https://example.org/tinygpt/chapters/beyond-one-machine.html#on-paper-when-do-they-talk-longer-than-they-compute
    """
    with torch.device("meta"):
        return component_counts(GPT(*sizes))["total"]
