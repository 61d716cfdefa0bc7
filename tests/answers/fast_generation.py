"""Wrong answers to the exercises of the page on fast generation."""

from answers import Wrong

WRONG = {
    "ex-fast-copies": [
        Wrong(
            0,
            "counts a step for the last token, which is never read",
            """
def bytes_written(config, batch, n_prompt, n_new):
    position = 4 * batch * 2 * config.n_layers * config.d_model
    lengths = range(n_prompt + 1, n_prompt + n_new + 1)
    return position * sum(lengths), position * len(lengths)
""",
        ),
        Wrong(
            0,
            "forgets the values",
            """
def bytes_written(config, batch, n_prompt, n_new):
    position = 4 * batch * config.n_layers * config.d_model
    lengths = range(n_prompt + 1, n_prompt + n_new)
    return position * sum(lengths), position * len(lengths)
""",
        ),
        Wrong(
            1,
            "forgets that each sequence has a cache of its own",
            """
def bytes_written(config, batch, n_prompt, n_new):
    position = 4 * 2 * config.n_layers * config.d_model
    lengths = range(n_prompt + 1, n_prompt + n_new)
    return position * sum(lengths), position * len(lengths)
""",
        ),
    ],
    "ex-fast-batch": [
        Wrong(
            0,
            "counts the cache once for the whole batch: some batch is always enough",
            """
def batch_for(config, n, balance):
    flops = flops_per_token(config, n)
    moved = 2 * flops["weights"] + 8 * config.n_layers * config.d_model * n
    return max(1, math.ceil(balance * moved / flops["total"]))
""",
        ),
        Wrong(
            0,
            "answers with a negative batch where there is none",
            """
def batch_for(config, n, balance):
    flops = flops_per_token(config, n)
    cached = 8 * config.n_layers * config.d_model * n
    gain = flops["total"] - balance * cached
    return math.ceil(balance * 2 * flops["weights"] / gain)
""",
        ),
        Wrong(
            0,
            "rounds to the nearest",
            """
def batch_for(config, n, balance):
    flops = flops_per_token(config, n)
    cached = 8 * config.n_layers * config.d_model * n
    gain = flops["total"] - balance * cached
    if gain <= 0:
        return None
    return max(1, round(balance * 2 * flops["weights"] / gain))
""",
        ),
    ],
    "ex-fast-texts": [
        Wrong(
            1,
            "reads the prompt again for each text",
            """
def several(decoder, prompt, n_texts, n_new, temperature=1.0):
    return [
        generate_fast(decoder, prompt, n_new, temperature, seed=i)[len(prompt) :]
        for i in range(n_texts)
    ]
""",
        ),
        Wrong(
            1,
            "keeps the logits without a copy",
            """
def several(decoder, prompt, n_texts, n_new, temperature=1.0):
    logits = decoder.prefill(prompt)
    behind = decoder.position
    texts = []
    for i in range(n_texts):
        decoder.position = behind
        decoder.logits.copy_(logits)
        generator = torch.Generator().manual_seed(i)
        texts.append(write(decoder, n_new, temperature, generator)[0])
    return texts
""",
        ),
        Wrong(
            0,
            "draws all texts from one generator",
            """
def several(decoder, prompt, n_texts, n_new, temperature=1.0):
    logits = decoder.prefill(prompt).clone()
    behind = decoder.position
    generator = torch.Generator().manual_seed(0)
    texts = []
    for i in range(n_texts):
        decoder.position = behind
        decoder.logits.copy_(logits)
        texts.append(write(decoder, n_new, temperature, generator)[0])
    return texts
""",
        ),
    ],
}
