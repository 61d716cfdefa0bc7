"""Typical wrong answers to the exercises of Step 5."""

from answer import Answer

WRONG = {
    "ex-step5-tie": [
        Answer(
            points=0,
            why="shares the numbers, but keeps two parameters",
            code="""
def tie(model):
    model.head.weight.data = model.tok.weight.data
    return model
""",
        ),
        Answer(
            points=0,
            why="copies the numbers",
            code="""
def tie(model):
    with torch.no_grad():
        model.head.weight.copy_(model.tok.weight)
    return model
""",
        ),
        Answer(
            points=1,
            why="lets the table use the head, so that the table is lost",
            code="""
def tie(model):
    model.tok.weight = model.head.weight
    return model
""",
        ),
        Answer(
            points=0,
            why="returns nothing",
            code="""
def tie(model):
    model.head.weight = model.tok.weight
""",
        ),
    ],
}
