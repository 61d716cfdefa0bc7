"""Wrong answers to the exercises of Step 8."""

from answers import Wrong

WRONG = {
    "ex-step8-joint": [
        Wrong(
            0,
            "adds up the costs of the parts, one at a time",
            """
def joint_cost(model, windows, values):
    before, total = target_bits(model, windows), torch.zeros(len(windows))
    for part, value in values.items():
        with ablated(model, part, value):
            total += (target_bits(model, windows) - before).mean(dim=-1)
    return total
""",
        ),
        Wrong(
            1,
            "takes the mean over the windows first, and gives each window the same",
            """
from contextlib import ExitStack
def joint_cost(model, windows, values):
    before = target_bits(model, windows).mean()
    with ExitStack() as stack:
        for part, value in values.items():
            stack.enter_context(ablated(model, part, value))
        after = target_bits(model, windows).mean()
    return (after - before).expand(len(windows))
""",
        ),
        Wrong(
            1,
            "forgets the values that stand in, and puts zero everywhere",
            """
from contextlib import ExitStack
def joint_cost(model, windows, values):
    before = target_bits(model, windows)
    with ExitStack() as stack:
        for part in values:
            stack.enter_context(ablated(model, part))
        after = target_bits(model, windows)
    return (after - before).mean(dim=-1)
""",
        ),
        Wrong(
            0,
            "measures what is paid before while the parts are replaced already",
            """
from contextlib import ExitStack
def joint_cost(model, windows, values):
    with ExitStack() as stack:
        for part, value in values.items():
            stack.enter_context(ablated(model, part, value))
        before = target_bits(model, windows)
        after = target_bits(model, windows)
    return (after - before).mean(dim=-1)
""",
        ),
    ],
    "ex-step8-position": [
        Wrong(
            1,
            "changes the model that was given",
            """
def flattened(model, table):
    weight = getattr(model, table).weight
    with torch.no_grad():
        weight.copy_(weight.mean(dim=0).expand_as(weight))
    return model
""".replace("return model", "import copy; return copy.deepcopy(model)"),
        ),
        Wrong(
            1,
            "puts zero in place of the mean",
            """
def flattened(model, table):
    import copy
    changed = copy.deepcopy(model)
    getattr(changed, table).weight.data.zero_()
    return changed
""",
        ),
        Wrong(
            0,
            "takes the mean of each row, over its entries",
            """
def flattened(model, table):
    import copy
    changed = copy.deepcopy(model)
    weight = getattr(changed, table).weight
    weight.data = weight.data.mean(dim=1, keepdim=True).expand_as(weight).clone()
    return changed
""",
        ),
        Wrong(
            1,
            "flattens a tied head as well",
            """
def flattened(model, table):
    import copy
    changed = copy.deepcopy(model)
    weight = getattr(changed, table).weight
    with torch.no_grad():
        weight.copy_(weight.mean(dim=0).expand_as(weight))
    return changed
""",
        ),
    ],
    "ex-step8-scale": [
        Wrong(
            1,
            "applies the whole norm to the vector, with its own spread and the shift",
            """
@torch.no_grad()
def logit_push(model, vector):
    push = model.head(model.lnf(vector))
    return push - push.mean()
""",
        ),
        Wrong(
            1,
            "counts the shift of the norm",
            """
@torch.no_grad()
def logit_push(model, vector):
    norm = model.lnf
    push = model.head(norm.weight * (vector - vector.mean()) + norm.bias)
    return push - push.mean()
""",
        ),
        Wrong(
            0,
            "does not centre the vector",
            """
@torch.no_grad()
def logit_push(model, vector):
    push = model.head(model.lnf.weight * vector)
    return push - push.mean()
""",
        ),
        Wrong(
            0,
            "multiplies by the gain before it centres",
            """
@torch.no_grad()
def logit_push(model, vector):
    scaled = model.lnf.weight * vector
    push = model.head(scaled - scaled.mean())
    return push - push.mean()
""",
        ),
        Wrong(
            1,
            "centres the vector in place",
            """
@torch.no_grad()
def logit_push(model, vector):
    vector -= vector.mean()
    push = model.head(model.lnf.weight * vector)
    return push - push.mean()
""",
        ),
    ],
    "ex-step8-neuron": [
        Wrong(
            1,
            "searches all windows, those of the confirmation too",
            """
def search_and_confirm(neurons, label, shifts):
    half = len(label) // 2
    scores = neuron_scores(neurons, label).abs()
    block, index = divmod(scores.argmax().item(), scores.shape[1])
    first = neuron_scores(neurons[:, :half], label[:half])
    second = neuron_scores(neurons[:, half:], label[half:])
    chance = max(
        neuron_scores(neurons[:, :half], label[:half].roll(i, dims=0)).abs().max()
        for i in range(1, shifts + 1)
    ).item()
    part = Part("neuron", block, index)
    return part, first[block, index].item(), second[block, index].item(), chance
""",
        ),
        Wrong(
            1,
            "looks for the largest correlation, not for the strongest",
            """
def search_and_confirm(neurons, label, shifts):
    half = len(label) // 2
    first = neuron_scores(neurons[:, :half], label[:half])
    second = neuron_scores(neurons[:, half:], label[half:])
    block, index = divmod(first.argmax().item(), first.shape[1])
    chance = max(
        neuron_scores(neurons[:, :half], label[:half].roll(i, dims=0)).abs().max()
        for i in range(1, shifts + 1)
    ).item()
    part = Part("neuron", block, index)
    return part, first[block, index].item(), second[block, index].item(), chance
""",
        ),
        Wrong(
            1,
            "rolls the labels along the positions",
            """
def search_and_confirm(neurons, label, shifts):
    half = len(label) // 2
    first = neuron_scores(neurons[:, :half], label[:half])
    second = neuron_scores(neurons[:, half:], label[half:])
    block, index = divmod(first.abs().argmax().item(), first.shape[1])
    chance = max(
        neuron_scores(neurons[:, :half], label[:half].roll(i, dims=1)).abs().max()
        for i in range(1, shifts + 1)
    ).item()
    part = Part("neuron", block, index)
    return part, first[block, index].item(), second[block, index].item(), chance
""",
        ),
        Wrong(
            0,
            "confirms on all windows, which the search has seen",
            """
def search_and_confirm(neurons, label, shifts):
    half = len(label) // 2
    first = neuron_scores(neurons[:, :half], label[:half])
    second = neuron_scores(neurons, label)
    block, index = divmod(first.abs().argmax().item(), first.shape[1])
    chance = max(
        neuron_scores(neurons[:, :half], label[:half].roll(i, dims=0)).abs().max()
        for i in range(1, shifts + 1)
    ).item()
    part = Part("neuron", block, index)
    return part, first[block, index].item(), second[block, index].item(), chance
""",
        ),
    ],
    "ex-step8-teach": [
        Wrong(
            1,
            "one length for all rows of a batch",
            """
def mixed_batch(data, T, batch_size, V, lengths, generator):
    half = batch_size // 2
    starts = torch.randint(len(data) - T, (half,), generator=generator)
    text = data[starts[:, None] + torch.arange(T + 1)]
    length = torch.randint(lengths[0], lengths[1] + 1, (1,), generator=generator)
    strings = induction_strings(half, length.item(), V, generator)
    strings = strings.repeat(1, T)[:, : T + 1]
    rows = torch.cat([text, strings])
    return rows[:, :-1], rows[:, 1:]
""",
        ),
        Wrong(
            1,
            "rolls the targets, so that the last one is the first id of its row",
            """
def mixed_batch(data, T, batch_size, V, lengths, generator):
    half = batch_size // 2
    starts = torch.randint(len(data) - T, (half,), generator=generator)
    rows = [data[s : s + T] for s in starts.tolist()]
    for _ in range(half):
        n = torch.randint(lengths[0], lengths[1] + 1, (1,), generator=generator).item()
        rows.append(induction_strings(1, n, V, generator)[0].repeat(T)[:T])
    x = torch.stack(rows)
    return x, x.roll(-1, dims=1)
""",
        ),
        Wrong(
            1,
            "never draws the longest string",
            """
def mixed_batch(data, T, batch_size, V, lengths, generator):
    half = batch_size // 2
    starts = torch.randint(len(data) - T, (half,), generator=generator)
    rows = [data[s : s + T + 1] for s in starts.tolist()]
    for _ in range(half):
        n = torch.randint(lengths[0], lengths[1], (1,), generator=generator).item()
        rows.append(induction_strings(1, n, V, generator)[0].repeat(T)[: T + 1])
    rows = torch.stack(rows)
    return rows[:, :-1], rows[:, 1:]
""",
        ),
        Wrong(
            1,
            "draws the lengths from the global generator",
            """
def mixed_batch(data, T, batch_size, V, lengths, generator):
    half = batch_size // 2
    starts = torch.randint(len(data) - T, (half,), generator=generator)
    rows = [data[s : s + T + 1] for s in starts.tolist()]
    for _ in range(half):
        n = torch.randint(lengths[0], lengths[1] + 1, (1,)).item()
        rows.append(induction_strings(1, n, V, generator)[0].repeat(T)[: T + 1])
    rows = torch.stack(rows)
    return rows[:, :-1], rows[:, 1:]
""",
        ),
        Wrong(
            0,
            "writes each string twice and fills the rest with new ids",
            """
def mixed_batch(data, T, batch_size, V, lengths, generator):
    half = batch_size // 2
    starts = torch.randint(len(data) - T, (half,), generator=generator)
    rows = [data[s : s + T + 1] for s in starts.tolist()]
    for _ in range(half):
        n = lengths[0]
        twice = induction_strings(1, n, V, generator)[0]
        rest = torch.randint(V, (T + 1,), generator=generator)
        rows.append(torch.cat([twice, rest])[: T + 1])
    rows = torch.stack(rows)
    return rows[:, :-1], rows[:, 1:]
""",
        ),
    ],
}
