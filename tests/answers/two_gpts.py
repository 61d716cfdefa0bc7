"""Wrong answers to the exercises of "Two GPTs"."""

from answers import Wrong

CENTRE = """
@torch.no_grad()
def without_centring(model):
    twin = HybridGPT(replace(model.config, rms_norm=True)).to(model.lnf.weight.dtype)
    kept = {name: w.clone() for name, w in model.state_dict().items()}
    for i, block in enumerate(model.blocks):
        FOLD
    twin.load_state_dict({name: kept[name] for name in twin.state_dict()})
    return twin
"""
INTO_MLP = 'kept[f"blocks.{i}.mlp.up.bias"] += block.mlp.up.weight @ block.ln2.bias'

REDRAW = """
@torch.no_grad()
def redraw(model, group, generator):
    names = {
        "tables": ("tok", "pos"),
        "readers": ("query", "key", "value", "qkv", "up", "head"),
        "writers": ("proj", "down"),
    }[group]
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in names:
            DRAW
            if getattr(module, "bias", None) is not None:
                module.bias.zero_()
"""

WRONG = {
    "ex-two-centre": [
        Wrong(0, "leaves all offsets of the norms out", CENTRE.replace("FOLD", "pass")),
        Wrong(
            1,
            "folds those of the second norm only",
            CENTRE.replace("FOLD", INTO_MLP),
        ),
        Wrong(
            0,
            "multiplies the offset by the gain, which has been counted already",
            CENTRE.replace(
                "FOLD", INTO_MLP.replace("@ ", "@ (block.ln2.weight * ") + ")"
            ),
        ),
        Wrong(
            1,
            "folds into the offsets of the model that was given",
            """
@torch.no_grad()
def without_centring(model):
    twin = HybridGPT(replace(model.config, rms_norm=True)).to(model.lnf.weight.dtype)
    for block in model.blocks:
        values = [head.value.weight @ block.ln1.bias for head in block.attn.heads]
        block.attn.proj.bias += block.attn.proj.weight @ torch.cat(values)
        block.mlp.up.bias += block.mlp.up.weight @ block.ln2.bias
        block.ln1.bias.zero_()
        block.ln2.bias.zero_()
    kept = model.state_dict()
    twin.load_state_dict({name: kept[name] for name in twin.state_dict()})
    return twin
""",
        ),
        Wrong(
            1,
            "carries the offset through the values, but not through the projection",
            CENTRE.replace(
                "FOLD",
                "values = [h.value.weight @ block.ln1.bias for h in block.attn.heads]\n"
                '        kept[f"blocks.{i}.attn.proj.bias"] += torch.cat(values)\n'
                f"        {INTO_MLP}",
            ),
        ),
    ],
    "ex-two-sharp": [
        Wrong(
            0,
            "lets the other keys stand at right angles to the query",
            """
def sharpest(dh, n, gain=1.0):
    q = torch.eye(dh)[0]
    k = torch.eye(dh)[1].repeat(n, 1) if dh > 1 else -torch.ones(n, 1)
    k[0] = q
    return q, k, 1 / (1 + (n - 1) * math.exp(-(gain**2) * math.sqrt(dh)))
""",
        ),
        Wrong(
            1,
            "counts the gain once",
            """
def sharpest(dh, n, gain=1.0):
    q, k = torch.ones(dh), -torch.ones(n, dh)
    k[0] = q
    return q, k, 1 / (1 + (n - 1) * math.exp(-2 * gain * math.sqrt(dh)))
""",
        ),
        Wrong(
            1,
            "has the width in the exponent, which is right for a width of 4",
            """
def sharpest(dh, n, gain=1.0):
    q, k = torch.ones(dh), -torch.ones(n, dh)
    k[0] = q
    return q, k, 1 / (1 + (n - 1) * math.exp(-(gain**2) * dh))
""",
        ),
        Wrong(
            0,
            "counts the first position among the others",
            """
def sharpest(dh, n, gain=1.0):
    q, k = torch.ones(dh), -torch.ones(n, dh)
    k[0] = q
    return q, k, 1 / (1 + n * math.exp(-2 * gain**2 * math.sqrt(dh)))
""",
        ),
    ],
    "ex-two-seeds": [
        Wrong(
            0,
            "takes the spreads of the two columns, which are not paired then",
            """
def seeds_needed(variant, baseline, effect, fraction=0.25):
    spread = math.sqrt(variant.var().item() + baseline.var().item())
    return max(1, math.ceil((spread / (fraction * effect)) ** 2))
""",
        ),
        Wrong(
            0,
            "divides by the number of seeds and not by one less",
            """
def seeds_needed(variant, baseline, effect, fraction=0.25):
    spread = (variant - baseline).std(correction=0).item()
    return max(1, math.ceil((spread / (fraction * effect)) ** 2))
""",
        ),
        Wrong(
            1,
            "has the quarter built in",
            """
def seeds_needed(variant, baseline, effect, fraction=0.25):
    spread = (variant - baseline).std().item()
    return max(1, math.ceil((spread / (0.25 * effect)) ** 2))
""",
        ),
        Wrong(
            1,
            "asks for no seed at all where the differences do not vary",
            """
def seeds_needed(variant, baseline, effect, fraction=0.25):
    spread = (variant - baseline).std().item()
    return math.ceil((spread / (fraction * effect)) ** 2)
""",
        ),
        Wrong(
            1,
            "takes the root of the mean square, so that a shift counts as spread",
            """
def seeds_needed(variant, baseline, effect, fraction=0.25):
    d = variant - baseline
    spread = math.sqrt(d.pow(2).sum().item() / (len(d) - 1))
    return max(1, math.ceil((spread / (fraction * effect)) ** 2))
""",
        ),
    ],
    "ex-two-halves": [
        Wrong(
            1,
            "puts new parameters in place of new numbers",
            REDRAW.replace(
                "DRAW",
                "new = torch.empty_like(module.weight).normal_(std=0.02, "
                "generator=generator)\n            module.weight = nn.Parameter(new)",
            ),
        ),
        Wrong(
            1,
            "draws from the global generator",
            REDRAW.replace("DRAW", "module.weight.normal_(std=0.02)"),
        ),
        Wrong(
            0,
            "forgets the table of positions",
            REDRAW.replace('"tok", "pos"', '"tok",').replace(
                "DRAW", "module.weight.normal_(std=0.02, generator=generator)"
            ),
        ),
        Wrong(
            1,
            "knows separate heads only",
            REDRAW.replace('"qkv", ', "").replace(
                "DRAW", "module.weight.normal_(std=0.02, generator=generator)"
            ),
        ),
        Wrong(
            0,
            "gives the writers the small start that they have already",
            REDRAW.replace(
                "DRAW",
                'std = 0.01 if group == "writers" else 0.02\n'
                "            module.weight.normal_(std=std, generator=generator)",
            ),
        ),
    ],
    "ex-two-rate": [
        Wrong(
            0,
            "sets the rate in the optimiser, where the trainer overwrites it",
            """
def rated_run(name, seed, factor, train_data, val_data):
    trainer = short_run(name, seed, train_data, val_data)
    for group in trainer.optimizer.param_groups:
        group["lr"] *= factor
    return trainer
""",
        ),
        Wrong(
            1,
            "forgets the second seeding, so the batches are others",
            """
def rated_run(name, seed, factor, train_data, val_data):
    config = short_run(name, seed, train_data, val_data).config
    torch.manual_seed(seed)
    model = HybridGPT(variant_config(name))
    recipe = replace(config, max_rate=factor * config.max_rate)
    return Trainer(model, train_data, val_data, recipe)
""",
        ),
        Wrong(
            1,
            "writes the recipe anew and loses its length and its warm-up",
            """
def rated_run(name, seed, factor, train_data, val_data):
    first = short_run(name, seed, train_data, val_data)
    recipe = TrainConfig(max_rate=factor * first.config.max_rate)
    return Trainer(first.model, train_data, val_data, recipe)
""",
        ),
        Wrong(
            1,
            "scales the lowest rate as well",
            """
def rated_run(name, seed, factor, train_data, val_data):
    first = short_run(name, seed, train_data, val_data)
    c = first.config
    recipe = replace(c, max_rate=factor * c.max_rate, min_rate=factor * c.min_rate)
    return Trainer(first.model, train_data, val_data, recipe)
""",
        ),
    ],
}
