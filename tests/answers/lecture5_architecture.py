"""Wrong answers to the exercises of Lecture 5."""

from answers import Wrong

WRONG = {
    "ex-l5-rmsnorm": [
        Wrong(
            0,
            "is the Jacobian of LayerNorm: it subtracts the mean as well",
            """
def rms_jacobian(u, eps):
    d = len(u)
    s = (u.pow(2).mean() + eps).sqrt()
    z = u / s
    one = torch.ones_like(u)
    eye = torch.eye(d, dtype=u.dtype)
    return (eye - torch.outer(one, one) / d - torch.outer(z, z) / d) / s
""",
        ),
        Wrong(
            1,
            "projects on a unit vector, which is right for eps 0 only",
            """
def rms_jacobian(u, eps):
    s = (u.pow(2).mean() + eps).sqrt()
    unit = u / u.norm()
    return (torch.eye(len(u), dtype=u.dtype) - torch.outer(unit, unit)) / s
""",
        ),
        Wrong(
            0,
            "forgets that s changes the size of the derivative",
            """
def rms_jacobian(u, eps):
    z = u / (u.pow(2).mean() + eps).sqrt()
    return torch.eye(len(u), dtype=u.dtype) - torch.outer(z, z) / len(u)
""",
        ),
        Wrong(
            1,
            "adds eps behind the root",
            """
def rms_jacobian(u, eps):
    s = u.pow(2).mean().sqrt() + eps
    z = u / s
    return (torch.eye(len(u), dtype=u.dtype) - torch.outer(z, z) / len(u)) / s
""",
        ),
        Wrong(
            1,
            "asks autograd",
            """
def rms_jacobian(u, eps):
    return jacobian(lambda v: v / (v.pow(2).mean() + eps).sqrt(), u)
""",
        ),
    ],
    "ex-l5-linear": [
        Wrong(
            0,
            "leaves the first bias out of the second matrix",
            """
def collapse(mlp):
    d = mlp.down.out_features
    one = nn.Linear(d, d, dtype=mlp.down.weight.dtype)
    with torch.no_grad():
        one.weight.copy_(mlp.down.weight @ mlp.up.weight)
        one.bias.copy_(mlp.down.bias)
    return one
""",
        ),
        Wrong(
            0,
            "multiplies in the order of the formula, on transposed matrices",
            """
def collapse(mlp):
    d = mlp.down.out_features
    one = nn.Linear(d, d, dtype=mlp.down.weight.dtype)
    with torch.no_grad():
        one.weight.copy_(mlp.up.weight.T @ mlp.down.weight.T)
        one.bias.copy_(mlp.down(mlp.up.bias))
    return one
""",
        ),
        Wrong(
            1,
            "makes a layer in single precision, whatever the MLP is",
            """
def collapse(mlp):
    d = mlp.down.out_features
    one = nn.Linear(d, d)
    one.weight.data.copy_(mlp.down.weight @ mlp.up.weight)
    one.bias.data.copy_(mlp.down(mlp.up.bias))
    return one
""",
        ),
        Wrong(
            1,
            "computes the new layer in place, in tensors of the MLP",
            """
def collapse(mlp):
    d = mlp.down.out_features
    one = nn.Linear(d, d, dtype=mlp.down.weight.dtype)
    one.weight = nn.Parameter((mlp.down.weight @ mlp.up.weight).detach())
    one.bias = mlp.down.bias
    with torch.no_grad():
        one.bias += mlp.down.weight @ mlp.up.bias
        mlp.up.bias.zero_()
    return one
""",
        ),
    ],
    "ex-l5-mha": [
        Wrong(
            0,
            "returns the gradient of the weight, which is transposed",
            """
def mha_backward(mha, X, Z_bar):
    Y = torch.cat([head(X[None])[0] for head in mha.heads], dim=-1)
    pieces = (Z_bar @ mha.proj.weight).chunk(len(mha.heads), dim=-1)
    dX = sum(head_backward(head, X, G) for head, G in zip(mha.heads, pieces))
    return Z_bar.T @ Y, Z_bar.sum(dim=0), dX
""",
        ),
        Wrong(
            0,
            "takes the mean over positions for the bias",
            """
def mha_backward(mha, X, Z_bar):
    Y = torch.cat([head(X[None])[0] for head in mha.heads], dim=-1)
    pieces = (Z_bar @ mha.proj.weight).chunk(len(mha.heads), dim=-1)
    dX = sum(head_backward(head, X, G) for head, G in zip(mha.heads, pieces))
    return Y.T @ Z_bar, Z_bar.mean(dim=0), dX
""",
        ),
        Wrong(
            0,
            "gives each head every H-th column",
            """
def mha_backward(mha, X, Z_bar):
    H = len(mha.heads)
    Y = torch.cat([head(X[None])[0] for head in mha.heads], dim=-1)
    Y_bar = Z_bar @ mha.proj.weight
    dX = sum(head_backward(mha.heads[h], X, Y_bar[:, h::H]) for h in range(H))
    return Y.T @ Z_bar, Z_bar.sum(dim=0), dX
""",
        ),
        Wrong(
            1,
            "cuts the joined outputs in two, however many heads there are",
            """
def mha_backward(mha, X, Z_bar):
    Y = torch.cat([head(X[None])[0] for head in mha.heads], dim=-1)
    Y_bar = Z_bar @ mha.proj.weight
    half = Y_bar.shape[1] // 2
    dX = head_backward(mha.heads[0], X, Y_bar[:, :half])
    dX = dX + head_backward(mha.heads[-1], X, Y_bar[:, half:])
    return Y.T @ Z_bar, Z_bar.sum(dim=0), dX
""",
        ),
        Wrong(
            1,
            "asks autograd",
            """
def mha_backward(mha, X, Z_bar):
    with torch.enable_grad():
        X = X.clone().requires_grad_()
        loss = (mha(X[None])[0] * Z_bar).sum()
        wanted = [mha.proj.weight, mha.proj.bias, X]
        W, b, dX = torch.autograd.grad(loss, wanted)
    return W.T, b, dX
""",
        ),
    ],
}
