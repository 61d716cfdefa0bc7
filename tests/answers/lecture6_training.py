"""Wrong answers to the exercises of Lecture 6."""

from answers import Wrong

WRONG = {
    "ex-l6-above": [
        Wrong(
            1,
            "takes the eigenvalue that is largest in absolute value",
            """
def limit_rate(f, theta):
    H = torch.autograd.functional.hessian(f, theta)
    v = torch.ones_like(theta) / len(theta) ** 0.5
    for _ in range(500):
        product = H @ v
        v = product / product.norm()
    return 2 / abs((v @ H @ v).item())
""",
        ),
        Wrong(
            0,
            "measures the curvature at the origin, not at the point",
            """
def limit_rate(f, theta):
    H = torch.autograd.functional.hessian(f, torch.zeros_like(theta))
    return 2 / torch.linalg.eigvalsh(H).max().item()
""",
        ),
        Wrong(
            1,
            "looks at the diagonal of the Hessian alone",
            """
def limit_rate(f, theta):
    H = torch.autograd.functional.hessian(f, theta)
    largest = H.diagonal().max().item()
    return 2 / largest if largest > 0 else math.inf
""",
        ),
        Wrong(
            1,
            "returns a negative rate where everything curves downward",
            """
def limit_rate(f, theta):
    H = torch.autograd.functional.hessian(f, theta)
    return 2 / torch.linalg.eigvalsh(H).max().item()
""",
        ),
    ],
    "ex-l6-momentum": [
        Wrong(
            1,
            "turns the sign of the momentum, which a step from rest does not show",
            """
def momentum_matrix(eta, curvature, beta):
    first = [1 - beta - eta * curvature, beta]
    return torch.tensor([first, [1.0, 0.0]], dtype=torch.float64)
""",
        ),
        Wrong(
            0,
            "takes a running mean of the gradients for their running sum",
            """
def momentum_matrix(eta, curvature, beta):
    first = [1 + beta - eta * (1 - beta) * curvature, -beta]
    return torch.tensor([first, [1.0, 0.0]], dtype=torch.float64)
""",
        ),
        Wrong(
            0,
            "keeps the older of the two positions",
            """
def momentum_matrix(eta, curvature, beta):
    first = [1 + beta - eta * curvature, -beta]
    return torch.tensor([first, [0.0, 0.0]], dtype=torch.float64)
""",
        ),
        Wrong(
            0,
            "leaves the momentum out",
            """
def momentum_matrix(eta, curvature, beta):
    first = [1 - eta * curvature, 0.0]
    return torch.tensor([first, [1.0, 0.0]], dtype=torch.float64)
""",
        ),
    ],
    "ex-l6-l2": [
        Wrong(
            1,
            "forgets that the penalty enters the second moment as well",
            """
def matching_l2(decay, theta, s):
    return decay * s
""",
        ),
        Wrong(
            1,
            "returns nan where no strength is enough",
            """
def matching_l2(decay, theta, s):
    return decay * s / (1 - (decay * theta) ** 2).sqrt()
""",
        ),
        Wrong(
            0,
            "divides by the size of the gradient in place of multiplying",
            """
def matching_l2(decay, theta, s):
    return decay / s
""",
        ),
    ],
    "ex-l6-factor": [
        Wrong(
            0,
            "counts one write for each block",
            """
def gpt2_init(model, std=0.02):
    for name, p in model.named_parameters():
        if p.dim() == 1:
            nn.init.constant_(p, 0.0 if name.endswith("bias") else 1.0)
        else:
            writes = "proj" in name or "down" in name
            L = len(model.blocks)
            nn.init.normal_(p, std=std / L**0.5 if writes else std)
    return model
""",
        ),
        Wrong(
            1,
            "forgets that the second matrix of the MLP writes too",
            """
def gpt2_init(model, std=0.02):
    for name, p in model.named_parameters():
        if p.dim() == 1:
            nn.init.constant_(p, 0.0 if name.endswith("bias") else 1.0)
        else:
            writes = name.endswith("proj.weight")
            L = len(model.blocks)
            nn.init.normal_(p, std=std / (2 * L) ** 0.5 if writes else std)
    return model
""",
        ),
        Wrong(
            1,
            "leaves the norms as they are, and keeps 0.02 for the factor",
            """
def gpt2_init(model, std=0.02):
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for block in model.blocks:
        for write in (block.attn.proj, block.mlp.down):
            nn.init.normal_(write.weight, std=0.02 / math.sqrt(2 * len(model.blocks)))
    return model
""",
        ),
        Wrong(
            0,
            "divides the matrices in place and forgets the biases",
            """
def gpt2_init(model, std=0.02):
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=std)
    for block in model.blocks:
        for write in (block.attn.proj, block.mlp.down):
            write.weight.data /= math.sqrt(2 * len(model.blocks))
    return model
""",
        ),
    ],
}
