"""The tokenizers in JavaScript give what the package gives; the playground works."""

import json
import random
import re
import unicodedata
from xml.etree import ElementTree

import pytest
from browsing import browser, need_a_browser  # noqa: F401
from chapter2 import alice_tokenizer
from live_page import page, site  # noqa: F401
from playwright import sync_api

from tinygpt.bpe import FastBPE
from tinygpt.chars import CharTokenizer
from tools import live_tokens
from tools.pages import ROOT

need_a_browser()

SENTENCE = "Alice waited by the rabbit-hole 🐇"
CORNERS = ["", " ", "\n\n", "\t", "\x00", "\ufeff", "\ufeff\ufeffa", "é", "e\u0301"]
CORNERS += [
    "\r\n",
    "aaa",
    "aaaa",
    "aaaaa",
    "<|endoftext|>",
    "𝄞\U0010ffff",
    "👩‍🚀",
    "שלום",
]
CORNERS += [SENTENCE, "the the\u00a0the", "\ufffd", "\ud7ff\ue000"]
PIECES = [
    "the ",
    "Alice ",
    " a",
    "e ",
    "ing ",
    "\u0301",
    "\u200d",
    "🐇",
    "ß",
    " ",
    "\n",
]


def random_text(generator: random.Random) -> str:
    """Characters of every plane, and pieces that the tokenizer has merges for."""
    characters = []
    for _ in range(generator.randrange(40)):
        if generator.random() < 0.6:
            characters.append(generator.choice(PIECES))
            continue
        most = generator.choice((0x80, 0x800, 0x10000, 0x110000))
        code = generator.randrange(most)
        characters.append(chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd")
    return "".join(characters)


def texts(count: int = 200) -> list[str]:
    generator = random.Random(0)
    return CORNERS + [random_text(generator) for _ in range(count)]


OPEN = """
const {BytePairTokenizer, CharTokenizer} = await import("/live/tokenizer.js");
const merges = async (name) =>
  (await fetch(`/live/data/${name}-merges.json`)).json();
const ch02 = new BytePairTokenizer(await merges("ch02"));
const message = (act) => {
  try { act(); return null; } catch (error) { return error.message; }
};
"""


def run(page, body: str, given=None):
    """Run JavaScript with the tokenizers at hand; ``given`` is what it is about."""
    return page.evaluate(f"async (given) => {{ {OPEN} {body} }}", given)


def test_the_texts_reach_every_corner():
    joined = "".join(texts())
    assert any(ord(character) > 0xFFFF for character in joined)
    assert any(unicodedata.combining(character) for character in joined)
    assert "" in texts()


def test_ids_and_bytes_are_those_of_the_package(page):
    tokenizer = alice_tokenizer()
    found = run(page, "return given.map((text) => ch02.encode(text));", texts())
    assert found == [tokenizer.encode(text) for text in texts()]
    spelled = run(
        page, "return Array.from({length: 512}, (_, i) => [...ch02.bytes(i)]);"
    )
    assert spelled == [list(spelling) for spelling in tokenizer.token_bytes]


def test_decoding_replaces_what_is_no_text_as_the_package_does(page):
    tokenizer = alice_tokenizer()
    generator = random.Random(1)
    rows = [tokenizer.encode(text) for text in texts()]
    rows += [[i] for i in range(512)]
    for _ in range(300):  # bytes that begin, continue and break off characters
        n = generator.randrange(12)
        rows.append(
            [generator.choice((*range(0x80, 0x100), 65, 270)) for _ in range(n)]
        )
    found = run(page, "return given.map((ids) => ch02.decode(ids));", rows)
    assert found == [tokenizer.decode(row, errors="replace") for row in rows]
    assert found[: len(texts())] == texts()


def test_step_7_reads_its_own_merges(page):
    merges = live_tokens.merges(ROOT, "step7")
    fast = FastBPE([(left, right) for left, right, _ in merges])
    some = ["ROMEO:\nBut, soft!", *texts(20)]
    body = 'const step7 = new BytePairTokenizer(await merges("step7"));'
    found = run(page, body + "return given.map((text) => step7.encode(text));", some)
    assert found == [fast.encode(text) for text in some]
    first = [fast.token_bytes[i].decode().replace(" ", "␠") for i in range(256, 264)]
    printed = (ROOT / "notebooks/step7-tokens.ipynb").read_text(encoding="utf-8")
    assert f"the first: {' '.join(first)}" in printed


def test_the_written_merges_are_those_of_the_page(tmp_path):
    live_tokens.write(ROOT, tmp_path)
    stored = json.loads((tmp_path / "ch02-merges.json").read_text(encoding="utf-8"))
    assert stored == [[m.left, m.right, m.new_id] for m in alice_tokenizer().merges]
    with pytest.raises(ValueError, match="'other'; expected one of"):
        live_tokens.merges(ROOT, "other")


def test_the_steps_replay_the_merges_in_order(page):
    steps = run(page, "return given.map((text) => ch02.steps(text));", texts(40))
    for text, replayed in zip(texts(40), steps, strict=True):
        assert replayed[0] == {"merge": None, "ids": list(text.encode()), "joined": []}
        assert replayed[-1]["ids"] == alice_tokenizer().encode(text)
        new_ids = [step["merge"][2] for step in replayed[1:]]
        assert new_ids == sorted(set(new_ids))
        for before, after in zip(replayed, replayed[1:], strict=False):
            assert len(before["ids"]) - len(after["ids"]) == len(after["joined"]) > 0
            written = {after["ids"][place] for place in after["joined"]}
            assert written == {after["merge"][2]}


def test_what_cannot_be_is_refused_by_name(page):
    body = """return [
      message(() => ch02.encode("a🐇" + String.fromCharCode(0xd83d))),
      message(() => ch02.encode(String.fromCharCode(0xdc07) + "b")),
      message(() => ch02.bytes(512)), message(() => ch02.decode([65, -1])),
      message(() => new BytePairTokenizer([[97, 98, 257]])),
      message(() => new BytePairTokenizer([[97, 256, 256]])),
    ];"""
    surrogate = "lone surrogate; expected text that UTF-8 can encode"
    assert run(page, body) == [
        f"character 2 of the text is '\\ud83d', a {surrogate}",
        f"character 0 of the text is '\\udc07', a {surrogate}",
        "token 512; expected 0 to 511",
        "token -1; expected 0 to 511",
        "the merge (97, 98) -> 257 cannot follow; expected 256 for it, and two parts "
        "from 0 to 255",
        "the merge (97, 256) -> 256 cannot follow; expected 256 for it, and two parts "
        "from 0 to 255",
    ]
    with pytest.raises(
        ValueError,
        match=re.escape(f"character 2 of the text is '\\ud83d', a {surrogate}"),
    ):
        alice_tokenizer().encode("a🐇\ud83d")


def test_characters_have_the_ids_of_the_package(page):
    alphabet = "🐇zß\na é\U0001f407"[:-1]
    tokenizer = CharTokenizer(alphabet)
    text = "za\n🐇éß a"
    body = """const c = new CharTokenizer(given[0]); const ids = c.encode(given[1]);
    return [ids, c.decode(ids), c.vocabSize, message(() => c.encode("zax")),
      message(() => c.decode([0, 7])), message(() => new CharTokenizer("aa")),
      message(() => new CharTokenizer(""))];"""
    ids, decoded, size, *messages = run(page, body, [alphabet, text])
    assert ids == tokenizer.encode(text)
    assert decoded == text
    assert size == tokenizer.vocab_size == 7
    assert messages[0] == (
        "character 2 of the text is 'x'; "
        "it is not among the 7 characters of the alphabet"
    )
    assert messages[1] == "id 1 is 7; expected 0 to 6"
    assert messages[2].startswith("the alphabet is 'aa'; expected")
    assert messages[3].startswith("the alphabet is ''; expected")


def test_the_static_figure_shows_the_ids_of_the_sentence():
    root = ElementTree.parse(ROOT / "book/figures/tokens.svg").getroot()
    ids = next(g for g in root.iter() if g.get("class") == "ids")
    assert [int(text.text) for text in ids] == alice_tokenizer().encode(SENTENCE)


# ---- the playground ------------------------------------------------------------------


@pytest.fixture
def playground(browser, site):
    """The figure on a page of a phone's width; nothing may go wrong there."""
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    wrong = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda m: wrong.append(m.text) if m.type == "error" else 0)
    opened.goto(site.figure("tokens", model="ch02"))
    opened.wait_for_selector('section[data-state="live"]')
    yield opened
    assert wrong == []
    opened.close()


def state(found) -> dict[str, list[str]]:
    """What a reader sees: lengths, the step, the ids of the chips."""
    return {
        "lengths": found.locator(".tokens-number").all_text_contents(),
        "step": [found.locator(".tokens-step").text_content()],
        "ids": found.locator(".tokens-chip small").all_text_contents(),
    }


def test_the_playground_replays_the_sentence(playground):
    tokenizer = alice_tokenizer()
    ids = [str(i) for i in tokenizer.encode(SENTENCE)]
    assert state(playground)["ids"] == ids
    assert state(playground)["lengths"] == ["33", "36", "17", "2.12"]
    assert playground.get_by_label("+1, one merge on").is_disabled()
    playground.get_by_label("Bytes, no merge").click()
    assert state(playground)["ids"] == [str(b) for b in SENTENCE.encode()]
    playground.get_by_label("+1, one merge on").click()
    slider = playground.get_by_label("merges replayed")
    said = slider.get_attribute("aria-valuetext")
    assert state(playground)["step"] == [said]
    assert said == "merge 1 of 16: ‘e’ + ‘␠’ → 256, at 3 places"
    assert playground.locator(".tokens-chip[data-fresh] small").all_text_contents() == [
        "256",
        "256",
        "256",
    ]
    assert said in playground.locator("[role=status]").text_content()
    slider.press("End")
    assert state(playground)["ids"] == ids
    width = playground.evaluate("document.documentElement.scrollWidth")
    assert width <= 390


def test_a_token_is_looked_at_by_keyboard(playground):
    chips = playground.locator(".tokens-chip")
    chips.first.focus()
    playground.keyboard.press("ArrowRight")
    label = playground.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == "token 2 of 17: wa, id 269, 2 bytes 119 97"
    detail = playground.locator(".tokens-detail")
    assert "Token 269 is merge 14 of the 256" in detail.text_content()
    names = detail.locator(".tokens-name small").all_text_contents()
    assert names == ["269", "119", "97"]
    assert playground.locator('.tokens-chip[tabindex="0"]').count() == 1
    small = playground.evaluate(
        "[...document.querySelectorAll('.live-panel button')].map(b => "
        "b.getBoundingClientRect()).filter(r => r.width < 24 || r.height < 24).length"
    )
    assert small == 0


def test_a_button_at_the_end_of_its_way_keeps_the_focus(playground):
    back = playground.get_by_label("−1, one merge back")
    back.focus()
    for _ in range(20):
        playground.keyboard.press("Enter")
    assert state(playground)["step"] == ["the bytes, before the first of 16 merges"]
    assert back.is_disabled()
    playground.screenshot()  # what is drawn has its final focus
    assert back.evaluate("e => e === document.activeElement")


def test_one_region_speaks_once_the_typing_rests(playground):
    """The step is written and not said a second time; a bad text is said."""
    spoken = playground.locator(".live-spoken")
    outputs = playground.locator("output")
    assert outputs.evaluate_all("all => all.map(e => e.ariaLive)") == ["off"]
    area = playground.get_by_label("Your text")
    area.fill("x" * 601)
    sync_api.expect(spoken).to_contain_text("the first 600 are cut into tokens here.")
    area.evaluate(
        "e => { e.value = 'ab\\ud83d'; e.dispatchEvent(new Event('input')); }"
    )
    sync_api.expect(spoken).to_contain_text("Character 2 is half of a two-part")


def test_any_text_is_cut_and_a_bad_one_is_told(playground):
    area = playground.get_by_label("Your text")
    area.fill("")
    assert state(playground) == {
        "lengths": ["0", "0", "0", "–"],
        "step": ["no text, no tokens"],
        "ids": [],
    }
    area.fill("x" * 1_234)
    problem = playground.locator(".live-problem")
    assert problem.text_content() == (
        "The text has 1,234 characters; the first 600 are cut into tokens here."
    )
    assert state(playground)["lengths"][0] == "600"
    area.evaluate(
        "e => { e.value = 'ab\\ud83d'; e.dispatchEvent(new Event('input')); }"
    )
    assert problem.text_content().startswith("Character 2 is half of a two-part")
    assert area.get_attribute("aria-invalid") == "true"
    for name in playground.locator(".tokens-presets button").all():
        name.click()
        assert problem.text_content() == ""
        text = area.input_value()
        ids = [str(i) for i in alice_tokenizer().encode(text)]
        assert state(playground)["ids"] == ids
