"""Wrong answers to the exercises of Step 7's first part."""

from answers import Wrong

WRONG = {
    "ex-step7-ties": [
        Wrong(
            0,
            "leaves the rule as it was",
            """
def train_largest(chunks, n_merges):
    return train_fast(chunks, n_merges)
""",
        ),
        Wrong(
            1,
            "the plain form on the joined chunks, so that merges reach across",
            """
def train_largest(chunks, n_merges):
    ids = [i for chunk in chunks for i in chunk]
    merges = []
    for new_id in range(256, 256 + n_merges):
        counts = Counter(zip(ids, ids[1:]))
        if not counts:
            break
        merges.append(max(counts, key=lambda pair: (counts[pair], pair)))
        ids = replace_pair(ids, merges[-1], new_id)
    return merges
""",
        ),
        Wrong(
            1,
            "negates the left token only",
            """
def train_largest(chunks, n_merges):
    chain = TokenChain(chunks)
    counts, places = index_pairs(chain)
    heap = [(-n, -left, right) for (left, right), n in counts.items()]
    heapify(heap)
    merges = []
    while heap and len(merges) < n_merges:
        claimed, left, right = heappop(heap)
        pair = -left, right
        if -claimed != counts[pair]:
            if counts[pair]:
                heappush(heap, (-counts[pair], left, right))
            continue
        new_id = 256 + len(merges)
        merges.append(pair)
        for new in merge_everywhere(chain, counts, places, pair, new_id):
            if counts[new]:
                heappush(heap, (-counts[new], -new[0], new[1]))
    return merges
""",
        ),
        Wrong(
            1,
            "believes an entry that claims too much",
            """
def train_largest(chunks, n_merges):
    chain = TokenChain(chunks)
    counts, places = index_pairs(chain)
    heap = [(-n, -left, -right) for (left, right), n in counts.items()]
    heapify(heap)
    merges = []
    while heap and len(merges) < n_merges:
        _, left, right = heappop(heap)
        pair = -left, -right
        if not counts[pair]:
            continue
        new_id = 256 + len(merges)
        merges.append(pair)
        for new in merge_everywhere(chain, counts, places, pair, new_id):
            if counts[new]:
                heappush(heap, (-counts[new], -new[0], -new[1]))
    return merges
""",
        ),
    ],
    "ex-step7-replace": [
        Wrong(
            1,
            "decodes the bytes as text",
            """
def encode_replace(ids, merges):
    row = bytes(ids).decode("utf-8")
    for new_id, (left, right) in enumerate(merges, start=256):
        row = row.replace(chr(left) + chr(right), chr(new_id))
    return [ord(c) for c in row]
""",
        ),
        Wrong(
            1,
            "takes the pair for a pattern",
            """
def encode_replace(ids, merges):
    row = "".join(map(chr, ids))
    for new_id, (left, right) in enumerate(merges, start=256):
        row = re.sub(chr(left) + chr(right), chr(new_id), row)
    return [ord(c) for c in row]
""",
        ),
        Wrong(
            1,
            "stops at the first merge that does not occur",
            """
def encode_replace(ids, merges):
    row = "".join(map(chr, ids))
    for new_id, (left, right) in enumerate(merges, start=256):
        pair = chr(left) + chr(right)
        if len(row) > 3 and pair not in row:
            break
        row = row.replace(pair, chr(new_id))
    return [ord(c) for c in row]
""",
        ),
        Wrong(
            1,
            "sorts the merges",
            """
def encode_replace(ids, merges):
    row = "".join(map(chr, ids))
    for new_id, (left, right) in enumerate(sorted(merges), start=256):
        row = row.replace(chr(left) + chr(right), chr(new_id))
    return [ord(c) for c in row]
""",
        ),
    ],
    "ex-step7-words": [
        Wrong(
            1,
            "a cache that answers for another tokenizer",
            """
known = {}


def encode_words(text, new_ids):
    ids = []
    for word in re.findall(WORDS, text):
        if word not in known:
            known[word] = encode_fast(word.encode(), new_ids)
        ids += known[word]
    return ids
""",
        ),
        Wrong(
            1,
            "cuts the bytes, in which é is no letter",
            """
def encode_words(text, new_ids):
    words = re.findall(WORDS.encode(), text.encode())
    return [i for word in words for i in encode_fast(word, new_ids)]
""",
        ),
        Wrong(
            0,
            "splits at blanks and loses them",
            """
def encode_words(text, new_ids):
    return [i for w in text.split() for i in encode_fast(w.encode(), new_ids)]
""",
        ),
        Wrong(
            0,
            "does not cut at all",
            """
def encode_words(text, new_ids):
    return encode_fast(text.encode(), new_ids)
""",
        ),
    ],
    "ex-step7-marginal": [
        Wrong(
            1,
            "adds plain probabilities, which become zero for a long text",
            """
def all_rows_bits(data, token_bytes, p):
    sums = [1.0]
    for end in range(1, len(data) + 1):
        sums.append(
            sum(
                sums[end - len(t)] * q
                for t, q in zip(token_bytes, p)
                if len(t) <= end and data[end - len(t) : end] == t
            )
        )
    return -math.log2(sums[-1]) if sums[-1] else math.inf
""",
        ),
        Wrong(
            1,
            "a dictionary keeps one of two tokens that spell the same",
            """
def all_rows_bits(data, token_bytes, p):
    chance = dict(zip(token_bytes, p))
    longest = max(map(len, chance))
    sums = [0.0]
    for end in range(1, len(data) + 1):
        logs = [
            sums[end - n] + math.log2(q)
            for n in range(1, min(longest, end) + 1)
            if (q := chance.get(data[end - n : end]))
        ]
        top = max(logs, default=-math.inf)
        if top > -math.inf:
            top += math.log2(sum(2 ** (one - top) for one in logs))
        sums.append(top)
    return -sums[-1]
""",
        ),
        Wrong(
            0,
            "takes the best row in place of the sum",
            """
def all_rows_bits(data, token_bytes, p):
    best = [0.0]
    for end in range(1, len(data) + 1):
        ways = [
            best[end - len(t)] - math.log2(q)
            for t, q in zip(token_bytes, p)
            if q and len(t) <= end and data[end - len(t) : end] == t
        ]
        best.append(min(ways, default=math.inf))
    return best[-1]
""",
        ),
    ],
    "ex-step7-table": [
        Wrong(
            1,
            "forgets the last norm",
            """
def widest(V, T, L, H, budget):
    def count(d):
        return (2 * V + T) * d + L * (12 * d * d + 10 * d)

    fits = [d for d in range(H, 2_000, H) if count(d) <= budget]
    if not fits:
        raise ValueError("nothing fits")
    return fits[-1]
""",
        ),
        Wrong(
            1,
            "answers 0 where nothing fits",
            """
def widest(V, T, L, H, budget):
    d = 0
    while True:
        e = d + H
        if (2 * V + T + 2) * e + L * (12 * e * e + 10 * e) > budget:
            return d
        d = e
""",
        ),
        Wrong(
            0,
            "pays for one table",
            """
def widest(V, T, L, H, budget):
    d = H
    while (V + T + 2) * (d + H) + L * (12 * (d + H) ** 2 + 10 * (d + H)) <= budget:
        d += H
    return d
""",
        ),
        Wrong(
            0,
            "does not ask whether the heads divide the width",
            """
def widest(V, T, L, H, budget):
    d = H
    while (2 * V + T + 2) * (d + 1) + L * (12 * (d + 1) ** 2 + 10 * (d + 1)) <= budget:
        d += 1
    return d
""",
        ),
    ],
}
