"""Wrong answers to the exercises of Step 5."""

from answers import Wrong

WRONG = {
    "ex-step5-tie": [
        Wrong(
            1,
            "lets the table use the head's matrix: the other way round",
            """
def tie(model):
    model.tok.weight = model.head.weight
    return model
""",
        ),
        Wrong(
            1,
            "copies the numbers: equal at the start, and drifting apart",
            """
def tie(model):
    del model.head.weight
    model.head.weight = model.tok.weight.detach().clone()
    return model
""",
        ),
        Wrong(
            0,
            "copies the data into the head, which keeps its own parameter",
            """
def tie(model):
    model.head.weight.data = model.tok.weight.data
    return model
""",
        ),
    ],
    "ex-step5-scale": [
        Wrong(
            0,
            "takes the width of the stream for that of the head",
            """
def scale_is_right(head, x):
    q, k, v = head.query(x), head.key(x), head.value(x)
    scores = q @ k.transpose(-2, -1) / math.sqrt(x.shape[-1])
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    A = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
    return torch.allclose(A @ v, head(x), atol=1e-5)
""",
        ),
        Wrong(
            0,
            "compares with attention that has no mask",
            """
def scale_is_right(head, x):
    theirs = F.scaled_dot_product_attention(head.query(x), head.key(x), head.value(x))
    return torch.allclose(head(x), theirs, atol=1e-5)
""",
        ),
        Wrong(
            1,
            "has a tolerance that only gross errors exceed",
            """
def scale_is_right(head, x):
    q, k, v = head.query(x), head.key(x), head.value(x)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return (head(x) - theirs).abs().max().item() < 0.1
""",
        ),
        Wrong(
            0,
            "looks at the rows' sums, which are one at any scale",
            """
def scale_is_right(head, x):
    head(x)
    return bool(((head.A.sum(dim=-1) - 1).abs() < 1e-5).all())
""",
        ),
    ],
    "ex-step5-key": [
        Wrong(
            1,
            "lets all offsets share the memory of the argument",
            """
def offset_keys(model, offset):
    for block in model.blocks:
        for head in block.attn.heads:
            head.key.bias = nn.Parameter(offset)
    return model
""",
        ),
        Wrong(
            0,
            "makes one parameter for all heads",
            """
def offset_keys(model, offset):
    shared = nn.Parameter(offset.clone())
    for block in model.blocks:
        for head in block.attn.heads:
            head.key.bias = shared
    return model
""",
        ),
        Wrong(
            0,
            "draws new matrices along with the offsets",
            """
def offset_keys(model, offset):
    for block in model.blocks:
        for head in block.attn.heads:
            dh, d = head.key.weight.shape
            head.key = nn.Linear(d, dh)
            head.key.bias.data.copy_(offset)
    return model
""",
        ),
        Wrong(
            1,
            "leaves the offsets as the layer draws them",
            """
def offset_keys(model, offset):
    for block in model.blocks:
        for head in block.attn.heads:
            weight = head.key.weight
            head.key = nn.Linear(weight.shape[1], weight.shape[0])
            head.key.weight = weight
    return model
""",
        ),
    ],
    "ex-step5-postnorm": [
        Wrong(
            0,
            "normalises what the branch returns, not the sum",
            """
class PostBlock(Block):
    def forward(self, x):
        x = x + self.ln1(self.attn(x))
        return x + self.ln2(self.mlp(x))
""",
        ),
        Wrong(
            1,
            "exchanges the two norms, which fresh gains do not show",
            """
class PostBlock(Block):
    def forward(self, x):
        x = self.ln2(x + self.attn(x))
        return self.ln1(x + self.mlp(x))
""",
        ),
        Wrong(
            1,
            "keeps the norm before attention as well",
            """
class PostBlock(Block):
    def forward(self, x):
        x = self.ln1(x + self.attn(self.ln1(x)))
        return self.ln2(x + self.mlp(x))
""",
        ),
        Wrong(
            0,
            "adds the second branch to the stream that came in",
            """
class PostBlock(Block):
    def forward(self, x):
        h = self.ln1(x + self.attn(x))
        return self.ln2(x + self.mlp(h))
""",
        ),
    ],
    "ex-step5-lnf": [
        Wrong(
            0,
            "forgets the position table",
            """
def predicted_loss(model):
    V, d = model.head.weight.shape
    square = 1.0
    if isinstance(model.lnf, nn.Identity):
        square = model.tok.weight.var().item()
    return math.log(V) + d * square * model.head.weight.var().item() / 2
""",
        ),
        Wrong(
            1,
            "writes down what holds for PyTorch's own start only",
            """
def predicted_loss(model):
    V = model.head.weight.shape[0]
    s2 = 2 / 3 if isinstance(model.lnf, nn.Identity) else 1 / 3
    return math.log(V) + s2 / 2
""",
        ),
        Wrong(
            0,
            "takes the bound of the uniform distribution for its deviation",
            """
def predicted_loss(model):
    V, d = model.head.weight.shape
    square = 2.0 if isinstance(model.lnf, nn.Identity) else 1.0
    return math.log(V) + d * square * (1 / d) / 2
""",
        ),
        Wrong(
            1,
            "runs the model in place of predicting",
            """
def predicted_loss(model):
    V = model.head.weight.shape[0]
    ids = torch.randint(V, (16, model.T))
    return -model(ids)[0].log_softmax(dim=-1).mean().item()
""",
        ),
    ],
    "ex-step5-count": [
        Wrong(
            0,
            "forgets the final norm",
            """
def count_parameters(V, T, d, H, L, tied=False, offsets=False):
    n = (2 - tied) * V * d + T * d + L * (12 * d**2 + 10 * d)
    return n + 3 * L * d * offsets
""",
        ),
        Wrong(
            1,
            "counts the offsets of one head in each block",
            """
def count_parameters(V, T, d, H, L, tied=False, offsets=False):
    n = (2 - tied) * V * d + T * d + L * (12 * d**2 + 10 * d) + 2 * d
    return n + 3 * L * (d // H) * offsets
""",
        ),
        Wrong(
            0,
            "subtracts a tied head twice",
            """
def count_parameters(V, T, d, H, L, tied=False, offsets=False):
    n = V * d + T * d + L * (12 * d**2 + 10 * d) + 2 * d
    n += 0 if tied else V * d
    return n - (V * d if tied else 0) + 3 * L * d * offsets
""",
        ),
    ],
}
