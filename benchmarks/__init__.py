"""Speed and memory against what people would use instead; ``make bench`` runs it.

Each module is one benchmark with a ``main`` of its own. It takes ``--small``,
``--store`` and ``--root``, and writes ``_build/bench/NAME.json`` in the form of
``benchmarks.common.report``. A benchmark is no timed test: the tests run it at a small
size and look at what it computed, never at how long that took.
"""

ORDER = ("training", "generation", "tokenizer", "distributed", "memory")
