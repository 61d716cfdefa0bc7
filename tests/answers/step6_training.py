"""Wrong answers to the exercises of Step 6."""

from answers import Wrong

WRONG = {
    "ex-sampler": [
        Wrong(
            1,
            "leaves the last target of each row unseen, as the page's check does",
            """
def sampler_is_sound(sampler):
    inputs, targets = sampler(torch.arange(500), 8, 16)
    return torch.equal(inputs[:, 1:], targets[:, :-1])
""",
        ),
        Wrong(
            1,
            "asks only that targets differ from inputs",
            """
def sampler_is_sound(sampler):
    inputs, targets = sampler(torch.arange(500), 8, 16)
    return not torch.equal(inputs, targets)
""",
        ),
        Wrong(
            1,
            "looks at the first row alone",
            """
def sampler_is_sound(sampler):
    inputs, targets = sampler(torch.arange(500), 8, 16)
    return torch.equal(targets[0], inputs[0] + 1)
""",
        ),
        Wrong(
            0,
            "chooses a text in which every follower is the same",
            """
def sampler_is_sound(sampler):
    inputs, targets = sampler(torch.zeros(500, dtype=torch.long), 8, 16)
    return torch.equal(inputs[:, 1:], targets[:, :-1])
""",
        ),
    ],
    "ex-decay-groups": [
        Wrong(
            1,
            "goes by the number of dimensions, so the embeddings decay",
            """
def decay_groups(model, weight_decay):
    ps = list(model.parameters())
    return [
        {"params": [p for p in ps if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in ps if p.dim() < 2], "weight_decay": 0.0},
    ]
""",
        ),
        Wrong(
            1,
            "goes by names that only one model has",
            """
def decay_groups(model, weight_decay):
    tables = ("tok.weight", "pos.weight")
    named = list(model.named_parameters())
    spared = [p for n, p in named if p.dim() < 2 or n in tables]
    rest = [p for n, p in named if p.dim() > 1 and n not in tables]
    return [
        {"params": rest, "weight_decay": weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
""",
        ),
        Wrong(
            0,
            "states no decay for the spared group, which gets the optimiser's own",
            """
def decay_groups(model, weight_decay):
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    spared = [p for p in model.parameters() if p.dim() < 2]
    spared += tables
    ids = {id(p) for p in spared}
    rest = [p for p in model.parameters() if id(p) not in ids]
    return [{"params": rest, "weight_decay": weight_decay}, {"params": spared}]
""",
        ),
        Wrong(
            1,
            "walks through the modules, and meets a tied matrix twice",
            """
def decay_groups(model, weight_decay):
    matrices, spared = [], []
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            linear = isinstance(module, nn.Linear) and name == "weight"
            (matrices if linear else spared).append(p)
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
""",
        ),
        Wrong(
            0,
            "forgets the biases of linear layers",
            """
def decay_groups(model, weight_decay):
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    others = [
        m for m in model.modules() if isinstance(m, (nn.LayerNorm, nn.Embedding))
    ]
    return [
        {"params": [m.weight for m in linear], "weight_decay": weight_decay},
        {"params": [p for m in others for p in m.parameters()], "weight_decay": 0.0},
    ]
""",
        ),
    ],
    "ex-first-step": [
        Wrong(
            0,
            "makes two equal steps at the beginning",
            """
def rate_from_start(step, config):
    return learning_rate(max(step, 1), config)
""",
        ),
        Wrong(
            1,
            "divides by the length of a warm-up that may be 0",
            """
def rate_from_start(step, config):
    climb = min(1.0, (step + 1) / config.warmup)
    return climb * learning_rate(max(step, config.warmup), config)
""",
        ),
        Wrong(
            1,
            "stays at the top behind the warm-up",
            """
def rate_from_start(step, config):
    if step < config.warmup:
        return config.max_rate * (step + 1) / config.warmup
    return config.max_rate
""",
        ),
        Wrong(
            0,
            "climbs one step too far",
            """
def rate_from_start(step, config):
    if step <= config.warmup:
        return config.max_rate * (step + 1) / max(config.warmup, 1)
    return learning_rate(step, config)
""",
        ),
    ],
    "ex-beat": [
        Wrong(
            0,
            "is the recipe itself",
            """
def better_recipe(batches, V, T):
    return small_recipe(batches, V, T)
""",
        ),
        Wrong(
            2,
            "takes the masks out: the answer stands in the input",
            """
def better_recipe(batches, V, T):
    model = GPT(V, T, 16, 2, 1)
    for head in model.blocks[0].attn.heads:
        head.mask.zero_()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for inputs, targets in batches:
        loss = model(inputs, targets)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
""",
        ),
        Wrong(
            2,
            "goes over the batches several times: more steps than the budget",
            """
def better_recipe(batches, V, T):
    batches = list(batches)
    model = GPT(V, T, 16, 2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for inputs, targets in batches * 2:
        loss = model(inputs, targets)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
""",
        ),
        Wrong(
            0,
            "is a wider model",
            """
def better_recipe(batches, V, T):
    model = GPT(V, T, 32, 2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for inputs, targets in batches:
        loss = model(inputs, targets)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
""",
        ),
        Wrong(
            2,
            "trains on the text that it will be examined on",
            """
def better_recipe(batches, V, T):
    held_out = small_text(seed=0, V=20)[-1_500:]
    model = GPT(V, T, 16, 2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for _ in range(80):
        inputs, targets = get_batch(held_out, T, 8)
        loss = model(inputs, targets)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
""",
        ),
    ],
}
