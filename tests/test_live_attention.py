"""The attention explorer: what it shows is what PyTorch computes."""

import random
import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import product

import pytest
import torch
from browsing import browser  # noqa: F401
from live_page import page, site  # noqa: F401
from safetensors.torch import load_file

from tinygpt.chars import CharTokenizer
from tinygpt.corpus import load_corpus
from tinygpt.gpt import GPT
from tinygpt.transformer import (
    BytePairTokenizer,
    GPTConfig,
    TinyGPT,
    attention_weights,
)
from tools.pages import ROOT
from tools.reference import SIZES

NAMES = ("ch02", "ch02-start", "step6", "step6-start")
LIVE = 'section[data-state="live"]'
# What attention.js computes for several texts: tokens, all weights as the bytes of
# float32 in base64, and how many tokens had no room.
COMPUTE = """async ([name, texts]) => {
  const { loadModel } = await import("/live/models.js");
  const { attentionOver } = await import("/live/attention.js");
  const loaded = await loadModel(new URL("/live/", location.href).href, name);
  return texts.map((text) => {
    const { tokens, attention, left } = attentionOver(loaded, text);
    const all = attention.flat().flatMap((map) => [...map]);
    const bytes = new Uint8Array(Float32Array.from(all).buffer);
    const letters = Array.from(bytes, (byte) => String.fromCharCode(byte));
    return [tokens, btoa(letters.join("")), left];
  });
}"""


def compute(page, name: str, texts: list[str]) -> list[tuple]:
    """Tokens, weights (n, T, T) of all heads in order, and what was left out."""
    results = []
    for tokens, coded, left in page.evaluate(COMPUTE, [name, texts]):
        numbers = torch.frombuffer(bytearray(b64decode(coded)), dtype=torch.float32)
        results.append((tokens, numbers.view(-1, len(tokens), len(tokens)), left))
    return results


@pytest.fixture(scope="module")
def corpora() -> dict[str, str]:
    return {
        "ch02": load_corpus("alice", ROOT),
        "step6": load_corpus("tinyshakespeare", ROOT),
    }


@pytest.fixture(scope="module")
def tokenizers(corpora):
    return {
        "ch02": BytePairTokenizer.train(corpora["ch02"], vocab_size=512),
        "step6": CharTokenizer.from_text(corpora["step6"]),
    }


def weights_of(site, name: str, ids: list[int]) -> torch.Tensor:
    """Attention (L, H, T, T) by the package, with the weights that the site has."""
    weights = load_file(site.folder / "live" / "data" / f"{name}.safetensors")
    weights = {key: tensor.float() for key, tensor in weights.items()}
    with torch.no_grad():
        if name.startswith("ch02"):
            model = TinyGPT(GPTConfig(vocab_size=512))
            model.load_state_dict(weights, strict=False)  # the head is tied
            layers = range(len(model.blocks))
            return torch.stack([attention_weights(model, ids, i) for i in layers])
        model = GPT(**SIZES)
        model.load_state_dict(weights)
        model.eval()(torch.tensor([ids]))
        return torch.stack(
            [torch.cat([head.A for head in block.attn.heads]) for block in model.blocks]
        )


def some_texts(corpus: str, count: int, seed: int) -> list[str]:
    """Pieces of a corpus and shuffled pieces, from one character to the whole block."""
    chance = random.Random(seed)
    texts = [corpus[0], corpus[:64]]
    while len(texts) < count:
        start = chance.randrange(len(corpus) - 64)
        text = corpus[start : start + chance.randint(2, 64)]
        mixed = "".join(chance.sample(text, len(text)))
        texts.append(text if len(texts) % 2 else mixed)
    return texts


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_those_of_the_package(name, page, site, corpora, tokenizers):
    kind = name.removesuffix("-start")
    texts = some_texts(corpora[kind], 12, seed=NAMES.index(name))
    results = compute(page, name, texts)
    for text, (tokens, found, left) in zip(texts, results, strict=True):
        assert "".join(tokens) == text
        assert left == 0
        expected = weights_of(site, name, tokenizers[kind].encode(text)).flatten(0, 1)
        assert (found - expected).abs().max() < 1e-5
        assert (found.sum(dim=-1) - 1).abs().max() < 1e-5
        assert found.triu(diagonal=1).eq(0).all()
        assert found[:, 0, 0].eq(1).all()


def test_what_does_not_fit_is_left_out_and_counted(page, corpora, tokenizers):
    for name, corpus in corpora.items():
        text = corpus[1_000:1_400]
        ids = tokenizers[name].encode(text)
        [(tokens, maps, left)] = compute(page, name, [text])
        assert left == len(ids) - len(tokens) > 0
        assert "".join(tokens) == tokenizers[name].decode(ids[: len(tokens)])
        [(_, shorter, _)] = compute(page, name, ["".join(tokens)])
        assert torch.equal(maps, shorter)


def test_parts_of_a_character_are_named_by_their_bytes(page):
    [(tokens, _, _)] = compute(page, "ch02", ["a🐇é"])
    assert tokens == ["a", *(rf"\x{byte:02x}" for byte in "🐇é".encode())]


# ---- the figure ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(browser, site) -> Iterator:
    """The explorer of Step 8 on a page of its own."""
    opened = browser.new_page(viewport={"width": 1280, "height": 1000})
    opened.asked = []
    opened.on("request", lambda r: opened.asked.append(r.url.split("/")[-1]))
    opened.errors = []
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.goto(site.figure("attention", below=3_000, model="step6"))
    opened.wait_for_load_state("networkidle")
    opened.before = list(opened.asked)
    opened.locator("section").scroll_into_view_if_needed()
    opened.wait_for_selector(LIVE)
    opened.get_by_text("The chosen row as a table").click()
    yield opened
    opened.close()


@pytest.fixture
def explorer(opened):
    """The same page, as it was in the beginning."""
    opened.set_viewport_size({"width": 1280, "height": 1000})
    opened.get_by_label("after training").check()
    opened.locator('input[value="0.3"]').check()
    opened.get_by_role("button", name="The first text again").click()
    opened.locator(".live-strip button").last.focus()
    yield opened
    assert opened.errors == []


def write(explorer, text: str) -> None:
    """Fill the field, and wait until the figure shows the text or says why not."""
    explorer.get_by_label("Your text").fill(text)
    explorer.wait_for_function(
        "text => document.querySelector('.live-problem').textContent ||"
        "  [...document.querySelectorAll('.live-strip .token')]"
        "    .map(node => node.textContent).join('') === text",
        arg=text.replace(" ", "·").replace("\n", "↵"),
    )


def table(explorer) -> list[float]:
    cells = explorer.locator(".live-table tbody td:last-child").all_inner_texts()
    return [float(cell) for cell in cells]


def test_nothing_is_fetched_before_it_is_scrolled_into_view(opened):
    late = {"attention.js", "heads.js", "transformer.js", "step6.safetensors"}
    assert not late & set(opened.before)
    assert late <= set(opened.asked)
    assert not any(name.startswith("ch02") for name in opened.asked)


def test_the_untrained_weights_are_fetched_when_they_are_wanted(
    explorer,
    site,
    tokenizers,
):
    text = "A plague upon it"
    ids = tokenizers["step6"].encode(text)
    write(explorer, text)
    assert "step6-start.safetensors" not in explorer.asked
    for label, name in [
        ("after training", "step6"),
        ("before training", "step6-start"),
        ("after training", "step6"),
    ]:
        explorer.get_by_label(label).check()
        expected = weights_of(site, name, ids)[0, 3, -1]
        first = f"{expected[0]:.4f}"
        explorer.locator(".live-table tbody td:last-child").first.filter(
            has_text=first
        ).wait_for()
        assert torch.tensor(table(explorer)).sub(expected).abs().max() < 0.00007
    assert explorer.asked.count("step6-start.safetensors") == 1
    assert explorer.asked.count("step6.safetensors") == 1


def test_every_row_that_is_shown_is_the_model_s(explorer, site, tokenizers):
    text = "ROMEO:\nIt is my lady,"
    expected = weights_of(site, "step6", tokenizers["step6"].encode(text))
    write(explorer, text)
    buttons = explorer.locator(".live-strip button")
    for head, query in [((0, 3), 20), ((2, 0), 12), ((3, 3), 0), ((1, 2), 7)]:
        explorer.locator(f'input[value="{head[0]}.{head[1]}"]').check()
        buttons.nth(query).focus()
        row = expected[head][query]
        shown = torch.tensor(table(explorer))
        assert len(shown) == query + 1
        assert (shown - row[: query + 1]).abs().max() < 0.00007
        assert explorer.locator(".live-table tfoot td").inner_text() == "1.0000"
        bars = buttons.evaluate_all(
            "all => all.map(b => b.style.getPropertyValue('--w'))"
        )
        assert (torch.tensor([float(bar) for bar in bars]) - row).abs().max() < 1e-5
        names = buttons.evaluate_all("all => all.map(b => b.ariaLabel)")
        hidden = [name.endswith(": hidden") for name in names]
        assert hidden == [key > query for key in range(len(text))]
        top = int(row.argmax())
        target = "itself" if top == query else f"position {top}, "
        sentence = explorer.locator(".live-says").inner_text()
        assert f"looks most at {target}" in sentence
        assert f"{row[top]:.3f}" in sentence
        assert (
            explorer.locator(".live-map")
            .get_attribute("aria-label")
            .startswith(
                f"Head {head[0]}.{head[1]}, a map of all its weights. {sentence}"
            )
        )


def test_the_maps_are_painted_with_the_square_root_of_the_weights(
    explorer,
    site,
    tokenizers,
):
    text = "so sweet a"
    expected = weights_of(site, "step6", tokenizers["step6"].encode(text))
    write(explorer, text)
    small = explorer.locator(".live-heads canvas").evaluate_all(
        "all => all.map(c => [...c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 3))"
    )
    painted = torch.tensor(small).view(expected.shape) / 255
    assert (painted - expected.sqrt()).abs().max() <= 1 / 255 + 1e-5
    cells = explorer.locator(".live-map g:not(.names) rect").evaluate_all(
        "all => all.map(r => ['y', 'x', 'fill-opacity'].map(n => +r.getAttribute(n)))"
    )
    large = torch.zeros(len(text), len(text))
    for y, x, opacity in cells:
        large[int(y), int(x)] = opacity
    assert (large - expected[0, 3].sqrt()).abs().max() <= 0.01


def test_the_maps_turn_with_the_theme(explorer):
    colours = []
    for theme in ("dark", "light"):
        explorer.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        corner = explorer.locator(".live-heads canvas").first.evaluate(
            "c => [...c.getContext('2d').getImageData(0, 0, 1, 1).data]"
        )
        colours.append(corner)
    assert colours == [[0x82, 0xC4, 0xEE, 255], [0x00, 0x5A, 0x8C, 255]]


def luminance(colour: str) -> float:
    """Relative luminance of a computed colour, as WCAG defines it."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", colour)[:3]]
    if colour.startswith("rgb"):
        numbers = [number / 255 for number in numbers]
    red, green, blue = (
        n / 12.92 if n <= 0.04045 else ((n + 0.055) / 1.055) ** 2.4 for n in numbers
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("theme", "paper"), [("light", "#ffffff"), ("dark", "#12171c")]
)
def test_a_token_stays_legible_whatever_its_weight(theme, paper, explorer):
    explorer.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    explorer.evaluate(
        "paper => document.body.style.setProperty('--pst-color-background', paper)",
        paper,
    )
    token = explorer.locator(".live-strip button").last
    for weight in (0, 0.5, 1):
        token.evaluate("(b, w) => b.style.setProperty('--w', w)", weight)
        ink, ground = token.evaluate(
            "b => [getComputedStyle(b.lastChild).color,"
            " getComputedStyle(b).backgroundColor]"
        )
        low, high = sorted([luminance(ink), luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, (weight, ink, ground)
    explorer.evaluate("document.documentElement.dataset.theme = 'light'")


def test_it_can_be_used_by_keyboard_alone(explorer):
    keys = explorer.keyboard
    focus = "document.activeElement"
    explorer.get_by_label("Your text").focus()
    keys.press("ControlOrMeta+a")
    keys.type("Hark, a horn")
    explorer.locator(".live-strip button").nth(11).wait_for()
    explorer.get_by_text("Position 11, “n”").wait_for()
    keys.press("Tab")
    assert explorer.evaluate(f"{focus}.value") == "after"
    keys.press("ArrowUp")
    assert explorer.get_by_label("before training").is_checked()
    keys.press("ArrowDown")
    keys.press("Tab")
    assert explorer.evaluate(f"{focus}.textContent") == "The first text again"
    keys.press("Tab")  # one stop for the whole text
    assert explorer.evaluate(f"{focus}.ariaPressed") == "true"
    for key, place in [
        ("ArrowLeft", 10),
        ("ArrowLeft", 9),
        ("Home", 0),
        ("ArrowLeft", 0),
        ("ArrowRight", 1),
        ("End", 11),
        ("ArrowRight", 11),
    ]:
        keys.press(key)
        assert explorer.evaluate(f"{focus}.ariaLabel").startswith(f"{place}, ")
        assert (
            explorer.locator(".live-says")
            .inner_text()
            .startswith(f"Position {place}, ")
        )
    keys.press("Tab")
    assert explorer.evaluate(f"{focus}.value") == "0.3"
    keys.press("ArrowRight")
    assert explorer.locator(".live-map-name").inner_text() == "Head 1.0"
    spoken = explorer.locator(".live-attention [role=status]")
    spoken.filter(has_text="Head 1.0. Position 11").wait_for()
    keys.press("Tab")
    assert explorer.evaluate(f"{focus}.tagName") == "SUMMARY"
    keys.press("Tab")
    assert explorer.evaluate(f"{focus}.className") == "live-table"


def test_pointing_at_a_token_or_at_a_row_of_the_map_asks(explorer):
    explorer.locator(".live-strip button").nth(9).hover()
    assert explorer.locator(".live-says").inner_text().startswith("Position 9, ")
    box = explorer.locator(".live-map .ground").bounding_box()
    cell = box["width"] / 64
    explorer.mouse.move(box["x"] + 29.5 * cell, box["y"] + 30.5 * cell)
    assert explorer.locator(".live-says").inner_text().startswith("Position 30, ")
    detail = explorer.locator(".live-detail").inner_text()
    assert detail.strip().startswith("· from 30, ")
    read_out = float(detail.rsplit(": ", 1)[1])
    assert abs(read_out - table(explorer)[29]) <= 0.00056  # both are rounded
    explorer.mouse.move(box["x"] + 50.5 * cell, box["y"] + 30.5 * cell)
    assert explorer.locator(".live-detail").inner_text() == ""


def test_a_text_that_cannot_be_read_is_named_and_changes_nothing(explorer):
    write(explorer, "All for one")
    problem = explorer.locator(".live-problem")
    field = explorer.get_by_label("Your text")
    for text, words in [
        ("naïve", "Character 2 of the text is 'ï'"),
        ("", "An empty text has no positions"),
        ("7", "Character 0 of the text is '7'"),
    ]:
        field.fill(text)
        problem.filter(has_text=words).wait_for()
        assert field.get_attribute("aria-invalid") == "true"
        assert explorer.locator(".live-strip button").count() == len("All for one")
    field.fill("Never")
    explorer.locator(".live-strip button").nth(5).wait_for(state="detached")
    assert problem.inner_text() == ""
    assert field.get_attribute("aria-invalid") is None


def test_a_text_that_is_too_long_is_cut_and_that_is_said(explorer):
    explorer.get_by_label("Your text").fill("To be, or not to be. " * 4)
    problem = explorer.locator(".live-problem")
    problem.filter(has_text="reads 64 tokens at most; the last 20 are left").wait_for()
    assert explorer.locator(".live-strip button").count() == 64


def test_weights_that_do_not_arrive_leave_the_others(browser, site):
    fresh = browser.new_page()
    fresh.route("**/ch02-start.safetensors", lambda route: route.fulfill(status=404))
    fresh.goto(site.figure("attention", model="ch02"))
    fresh.wait_for_selector(LIVE)
    shown = fresh.locator(".live-says").inner_text()
    fresh.get_by_label("before training").click()
    problem = fresh.locator(".live-problem")
    problem.filter(has_text="404").wait_for()
    assert "The weights are still those after training." in problem.inner_text()
    assert fresh.get_by_label("after training").is_checked()
    assert fresh.locator(".live-says").inner_text() == shown
    fresh.close()


@pytest.mark.parametrize("model", ["step6", "ch02"])
def test_on_a_phone_nothing_is_cut_and_fingers_find_their_targets(
    model,
    browser,
    site,
):
    phone = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    phone.goto(site.figure("attention", model=model))
    phone.wait_for_selector(LIVE)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = phone.evaluate(
        "[...document.querySelectorAll('.live-panel :is(button, summary, label)')]"
        ".map(e => e.getBoundingClientRect()).map(b => [b.width, b.height])"
    )
    heads = {"step6": (4, 4), "ch02": (2, 4)}[model]
    assert len(boxes) > len(list(product(*map(range, heads))))
    assert min(min(box) for box in boxes) >= 24
    phone.locator(".live-strip button").nth(3).tap()
    assert phone.locator(".live-says").inner_text().startswith("Position 3, ")
    phone.close()
