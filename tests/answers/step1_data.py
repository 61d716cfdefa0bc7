"""Wrong answers to the exercises of Step 1."""

from answers import Wrong

WRONG = {
    "ex-own-alphabet": [
        Wrong(
            1,
            "the newline has the id 0, as in Shakespeare",
            """
def own_corpus(text):
    V = CharTokenizer.from_text(text).vocab_size
    return V, math.log(V), 0
""",
        ),
        Wrong(
            0,
            "a text without a newline stops with a KeyError",
            """
def own_corpus(text):
    tokenizer = CharTokenizer.from_text(text)
    V = tokenizer.vocab_size
    return V, math.log(V), tokenizer.ids["\\n"]
""",
        ),
        Wrong(
            1,
            "the blank is forgotten",
            """
def own_corpus(text):
    tokenizer = CharTokenizer.from_text(text)
    V = tokenizer.vocab_size
    return V, math.log(V), tokenizer.ids.get("\\n", 0)
""",
        ),
        Wrong(
            0,
            "the length of the text in place of the size of its alphabet",
            """
def own_corpus(text):
    alphabet = sorted(set(text))
    begin = next((alphabet.index(c) for c in "\\n " if c in alphabet), 0)
    return len(text), math.log(len(text)), begin
""",
        ),
    ],
    "ex-random-cut": [
        Wrong(
            1,
            "a word inside of another one passes for known",
            """
def unknown_share(known, asked, least=5):
    words = re.findall("[a-z]+", asked.lower())
    long = [word for word in words if len(word) >= least]
    if not long:
        return 0.0
    return sum(word not in known.lower() for word in long) / len(long)
""",
        ),
        Wrong(
            0,
            "each word counts once, however often it occurs",
            """
def unknown_share(known, asked, least=5):
    stored = set(re.findall("[a-z]+", known.lower()))
    long = {w for w in re.findall("[a-z]+", asked.lower()) if len(w) >= least}
    return len(long - stored) / len(long) if long else 0.0
""",
        ),
        Wrong(
            0,
            "only words of more than five letters",
            """
def unknown_share(known, asked, least=5):
    stored = set(re.findall("[a-z]+", known.lower()))
    long = [w for w in re.findall("[a-z]+", asked.lower()) if len(w) > least]
    return sum(w not in stored for w in long) / len(long) if long else 0.0
""",
        ),
        Wrong(
            1,
            "cut at blanks and stripped of signs; a sign inside does not end a word",
            """
def unknown_share(known, asked, least=5):
    stored = {w.strip(".,;:!?'-") for w in known.lower().split()}
    long = [w.strip(".,;:!?'-") for w in asked.lower().split()]
    long = [w for w in long if len(w) >= least]
    return sum(w not in stored for w in long) / len(long) if long else 0.0
""",
        ),
    ],
    "ex-step1-tenths": [
        Wrong(
            0,
            "the unigram is counted on the whole text",
            """
def tenth_costs(ids, vocab_size, parts=10, add=0.0):
    p = unigram_probabilities(ids, vocab_size, add)
    cuts = [k * len(ids) // parts for k in range(parts + 1)]
    return [code_bits(p, ids[a:b]) for a, b in zip(cuts, cuts[1:])]
""",
        ),
        Wrong(
            1,
            "parts of equal length, and the last ids are forgotten",
            """
def tenth_costs(ids, vocab_size, parts=10, add=0.0):
    size, costs = len(ids) // parts, []
    for k in range(parts):
        part = ids[k * size : (k + 1) * size]
        rest = torch.cat([ids[: k * size], ids[(k + 1) * size : parts * size]])
        costs.append(code_bits(unigram_probabilities(rest, vocab_size, add), part))
    return costs
""",
        ),
        Wrong(
            1,
            "what is to be added is not handed on",
            """
def tenth_costs(ids, vocab_size, parts=10, add=0.0):
    cuts, costs = [k * len(ids) // parts for k in range(parts + 1)], []
    for a, b in zip(cuts, cuts[1:]):
        rest = torch.cat([ids[:a], ids[b:]])
        costs.append(code_bits(unigram_probabilities(rest, vocab_size), ids[a:b]))
    return costs
""",
        ),
        Wrong(
            0,
            "the cost of the rest in place of the part",
            """
def tenth_costs(ids, vocab_size, parts=10, add=0.0):
    cuts, costs = [k * len(ids) // parts for k in range(parts + 1)], []
    for a, b in zip(cuts, cuts[1:]):
        rest = torch.cat([ids[:a], ids[b:]])
        costs.append(code_bits(unigram_probabilities(rest, vocab_size, add), rest))
    return costs
""",
        ),
    ],
    "ex-step1-add": [
        Wrong(
            0,
            "the counted text decides, and it always wants nothing",
            """
def best_add(ids, held_out, vocab_size, adds):
    def cost(add):
        return code_bits(unigram_probabilities(ids, vocab_size, add), ids)

    return min(adds, key=cost)
""",
        ),
        Wrong(
            0,
            "the lowest cost in place of the number that has it",
            """
def best_add(ids, held_out, vocab_size, adds):
    return min(
        code_bits(unigram_probabilities(ids, vocab_size, add), held_out) for add in adds
    )
""",
        ),
        Wrong(
            0,
            "the place in the list",
            """
def best_add(ids, held_out, vocab_size, adds):
    costs = [
        code_bits(unigram_probabilities(ids, vocab_size, add), held_out) for add in adds
    ]
    return costs.index(min(costs))
""",
        ),
        Wrong(
            0,
            "nothing, always",
            """
def best_add(ids, held_out, vocab_size, adds):
    return min(adds)
""",
        ),
        Wrong(
            1,
            "the search stops at the first rise, as if the numbers were sorted",
            """
def best_add(ids, held_out, vocab_size, adds):
    best, least = adds[0], math.inf
    for add in adds:
        cost = code_bits(unigram_probabilities(ids, vocab_size, add), held_out)
        if cost > least:
            break
        best, least = add, cost
    return best
""",
        ),
    ],
    "ex-step1-pairs": [
        Wrong(
            1,
            "the code is made from the text that it has to write",
            """
def pair_bits(train, text, vocab_size, add=0.0):
    even = len(text) // 2 * 2
    numbers = vocab_size * text[:even:2] + text[1:even:2]
    counts = torch.bincount(numbers, minlength=vocab_size**2) + add
    words = huffman_code(counts.tolist())
    return sum(len(words[i]) for i in numbers.tolist()) / even
""",
        ),
        Wrong(
            0,
            "the cost of a pair in place of a character",
            """
def pair_bits(train, text, vocab_size, add=0.0):
    def pairs(ids):
        even = len(ids) // 2 * 2
        return vocab_size * ids[:even:2] + ids[1:even:2]

    counts = torch.bincount(pairs(train), minlength=vocab_size**2) + add
    words = huffman_code(counts.tolist())
    return sum(len(words[i]) for i in pairs(text).tolist()) / len(pairs(text))
""",
        ),
        Wrong(
            0,
            "the pairs overlap",
            """
def pair_bits(train, text, vocab_size, add=0.0):
    def pairs(ids):
        return vocab_size * ids[:-1] + ids[1:]

    counts = torch.bincount(pairs(train), minlength=vocab_size**2) + add
    words = huffman_code(counts.tolist())
    return sum(len(words[i]) for i in pairs(text).tolist()) / len(pairs(text)) / 2
""",
        ),
        Wrong(
            1,
            "a text of odd length stops it",
            """
def pair_bits(train, text, vocab_size, add=0.0):
    def pairs(ids):
        return ids.view(-1, 2) @ torch.tensor([vocab_size, 1])

    counts = torch.bincount(pairs(train), minlength=vocab_size**2) + add
    words = huffman_code(counts.tolist())
    return sum(len(words[i]) for i in pairs(text).tolist()) / len(text)
""",
        ),
        Wrong(
            1,
            "pairs that were not counted get no word",
            """
def pair_bits(train, text, vocab_size, add=0.0):
    def pairs(ids):
        even = len(ids) // 2 * 2
        return (vocab_size * ids[:even:2] + ids[1:even:2]).tolist()

    counts = Counter(pairs(train))
    symbols = sorted(counts)
    words = dict(zip(symbols, huffman_code([counts[s] + add for s in symbols])))
    return sum(len(words[s]) for s in pairs(text)) / len(pairs(text)) / 2
""",
        ),
    ],
}
