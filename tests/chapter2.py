"""What the tests of Chapter 2 share: one thread, small models, its own objects."""

import functools
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from tinygpt.corpus import load_corpus
from tinygpt.transformer import BytePairTokenizer, GPTConfig, TinyGPT
from tools.pages import ROOT

SMALL = GPTConfig(vocab_size=40, block_size=8, d_model=16, n_heads=2, n_layers=2)

quick = settings(max_examples=25, deadline=None, database=None, derandomize=True)
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread, as where the book prints a number; the old count is put back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small_model(seed: int = 0, config: GPTConfig = SMALL) -> TinyGPT:
    """A model that runs in a millisecond, with weights large enough to have opinions.

    Fresh weights give nearly even attention and logits; larger ones make a fault show.
    """
    torch.manual_seed(seed)
    model = TinyGPT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(10.0)
            else:
                parameter.uniform_(0.5, 1.5)
    return model


def random_tokens(*shape: int, seed: int = 0, vocab_size: int = 40) -> torch.Tensor:
    """Ids of the given shape from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, shape, generator=generator)


@functools.cache
def alice() -> str:
    return load_corpus("alice", start=ROOT)


@functools.cache
def alice_tokenizer() -> BytePairTokenizer:
    """The chapter's tokenizer: 512 tokens, trained on the whole corpus."""
    return BytePairTokenizer.train(alice(), vocab_size=512)


@functools.cache
def alice_stream() -> tuple[int, ...]:
    return tuple(alice_tokenizer().encode(alice()))


def chapter_model() -> TinyGPT:
    """The chapter's model before training: 512 tokens, everything else as it comes."""
    torch.manual_seed(20)
    return TinyGPT(GPTConfig(vocab_size=512))
