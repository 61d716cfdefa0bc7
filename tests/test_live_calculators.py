"""The formulas in JavaScript are those of the package; the calculators tell them."""

import random
import re

import pytest
import torch
from browsing import browser, need_a_browser  # noqa: F401
from chapter2 import small_model
from live_page import page, site  # noqa: F401
from playwright import sync_api

from tinygpt.gpt import GPT, component_counts
from tinygpt.transformer import (
    GPTConfig,
    flops_per_token,
    kv_cache_bytes,
    param_breakdown,
)
from tools.pages import ROOT

need_a_browser()

# Parameters, as the authors of these models or their released weights have them.
KNOWN = {
    "ch02": 139_776,
    "step5": 816_640,
    "gpt2": 124_439_808,
    "gpt2xl": 1_557_611_200,
    "gpt3": 174_604_259_328,
    "llama2": 6_738_415_616,
    "llama3": 8_030_261_248,
}


def run(page, body: str, given=None):
    """Run JavaScript with the modules at hand; ``given`` is what it is about."""
    opened = """
    const f = await import("/live/formulas.js");
    const c = {...await import("/live/numbers.js"), ...await import("/live/views.js")};
    """
    return page.evaluate(f"async (given) => {{ {opened} {body} }}", given)


def random_configs(count: int = 40) -> list[GPTConfig]:
    generator = random.Random(0)
    configs = []
    for _ in range(count):
        heads = generator.randrange(1, 9)
        configs.append(
            GPTConfig(
                vocab_size=generator.randrange(1, 60_000),
                block_size=generator.randrange(1, 5_000),
                d_model=heads * generator.randrange(1, 130),
                n_heads=heads,
                n_layers=generator.randrange(1, 50),
                mlp_ratio=generator.choice((8 / 3, 4, 1.5)),
            )
        )
    return configs


def sizes(config: GPTConfig, architecture: str = "chapter") -> dict:
    return {
        "architecture": architecture,
        "vocabulary": config.vocab_size,
        "context": config.block_size,
        "width": config.d_model,
        "layers": config.n_layers,
        "heads": config.n_heads,
        "keyHeads": config.n_heads,
        "hidden": config.mlp_hidden,
    }


def test_the_parameters_of_chapter_2_part_by_part(page):
    configs = [GPTConfig(vocab_size=512), *random_configs()]
    body = "return given.map(f.parameters);"
    found = run(page, body, [sizes(config) for config in configs])
    for config, parts in zip(configs, found, strict=True):
        assert {
            "embedding (tied with LM head)": parts["embedding"] + parts["head"],
            "position table": parts["positions"],
            "attention projections": parts["attention"],
            "feed-forward (SwiGLU)": parts["mlp"],
            "norm scales": parts["blockNorms"] + parts["finalNorm"],
            "total": parts["total"],
        } == param_breakdown(config)


def test_the_parameters_of_step_5_component_by_component(page):
    generator = random.Random(2)
    drawn = [(65, 64, 128, 4, 4)]
    for _ in range(8):
        V, T, dh, H, L = (generator.randrange(1, 9) for _ in range(5))
        drawn.append((V, T, dh * H, H, L))
    rows = [
        sizes(GPTConfig(V, T, d, H, L, mlp_ratio=4), "steps") | {"hidden": 4 * d}
        for V, T, d, H, L in drawn
    ]
    found = run(page, "return given.map(f.parameters);", rows)
    for row, parts in zip(drawn, found, strict=True):
        assert {
            "embeddings": parts["embedding"] + parts["positions"],
            "attention": parts["attention"],
            "MLPs": parts["mlp"],
            "block norms": parts["blockNorms"],
            "final norm + head": parts["finalNorm"] + parts["head"],
            "total": parts["total"],
        } == component_counts(GPT(*row))


def test_the_presets_have_the_sizes_that_are_known(page):
    body = """return Object.fromEntries(Object.entries(f.PRESETS).map(
      ([key, preset]) => [key, f.parameters(preset.sizes).total]));"""
    assert run(page, body) == KNOWN
    # The compute that the authors of GPT-3 state for its training, in FLOPs.
    gpt3 = "const {tokens} = f.PRESETS.gpt3; return c.powers(6 * given * tokens);"
    assert run(page, gpt3, KNOWN["gpt3"]) == "3.14 · 10²³"


def test_the_operations_are_those_of_the_package(page):
    configs = random_configs()
    body = "return given.map(([sizes, c]) => f.flopsPerToken(sizes, c));"
    given = [[sizes(config), 1 + 37 * i] for i, config in enumerate(configs)]
    for (_, context), config, found in zip(
        given, configs, run(page, body, given), strict=True
    ):
        assert found == flops_per_token(config, context)


def test_training_costs_what_the_lecture_counts(page):
    body = "return given.map(([sizes, D]) => f.trainingFlops(sizes, D));"
    drawn = [(16, 2, 1), (32, 4, 2), (64, 4, 3), (128, 4, 4)]
    V, T, D = 65, 64, 128
    rows = [
        [sizes(GPTConfig(V, T, d, H, L), "steps") | {"hidden": 4 * d}, D]
        for d, H, L in drawn
    ]
    assert run(page, body, rows) == [
        3 * D * (2 * (12 * L * d**2 + V * d) + 4 * L * T * d) for d, H, L in drawn
    ]


def test_the_cache_is_as_large_as_a_real_one(page):
    model = small_model()
    body = "return f.cacheBytes(...given);"
    for batch, length in ((1, 1), (3, 5), (2, 8)):
        cache = model(torch.zeros(batch, length, dtype=torch.long))[2]
        given = [sizes(model.config), length, batch, 4]
        assert run(page, body, given) == kv_cache_bytes(cache)
    shared = sizes(model.config) | {"keyHeads": 1}
    assert run(page, body, [shared, 8, 2, 4]) * 2 == kv_cache_bytes(cache)


def test_a_step_of_decoding_moves_weights_once_and_caches_each(page):
    config = GPTConfig(32_000, 2_048, 512, 8, 4)
    weights = flops_per_token(config, 0)["weights"] // 2
    for batch, length, size in ((1, 1, 2), (8, 2_048, 2), (64, 300, 4)):
        cached = 2 * batch * config.n_layers * length * config.d_model
        flops = batch * flops_per_token(config, length)["total"]
        found = run(
            page, "return f.decodeStep(...given);", [sizes(config), batch, length, size]
        )
        assert found["flops"] == flops
        assert found["weightBytes"] == size * weights
        assert found["cacheBytes"] == size * cached
        assert found["intensity"] == pytest.approx(flops / (size * (weights + cached)))


def test_the_roof_is_the_smaller_limit(page):
    body = "return given.map((i) => f.roofline(i, 100e12, 2e12));"
    below, at, above = run(page, body, [1, 50, 512])
    assert below == {"balance": 50, "reached": 2e12, "share": 0.02, "bound": "memory"}
    assert (at["share"], at["bound"]) == (1, "arithmetic")
    assert (above["share"], above["bound"]) == (1, "arithmetic")


def test_numbers_are_read_as_people_write_them(page):
    body = "return given.map(([text, field]) => c.readNumber(text, field));"
    whole, part = (
        {"label": "d", "most": 5_000_000},
        {"label": "s", "most": 8, "fraction": True},
    )
    good = {
        "64": 64,
        " 1,024 ": 1_024,
        "1 024": 1_024,
        "1_024,000": 1_024_000,
        "2e3": 2_000,
    }
    found = run(page, body, [[text, whole] for text in good])
    assert found == [{"value": value} for value in good.values()]
    assert run(page, body, [["0.5", part]]) == [{"value": 0.5}]
    bad = [
        "",
        "0",
        "-3",
        "1.5",
        "12x",
        "1,02",
        "6000000",
        "Infinity",
        "NaN",
        "0x10",
        "１２",
    ]
    for text, answer in zip(
        bad, run(page, body, [[t, whole] for t in bad]), strict=True
    ):
        said = f"is “{text}”" if text else "is empty"
        assert answer == {
            "message": f"d {said}; expected a whole number from 1 to 5,000,000."
        }
    assert run(page, body, [["0", part]]) == [
        {"message": "s is “0”; expected a number above 0, up to 8."}
    ]


def test_numbers_are_written_short_and_true(page):
    scaled = {
        0: "0 B",
        999: "999 B",
        1_024: "1.02 kB",
        999_600: "1 MB",
        13.5e9: "13.5 GB",
    }
    body = "return given.map((n) => c.scaled(n, 'B'));"
    assert run(page, body, list(scaled)) == list(scaled.values())
    shares = {0: "0%", 0.0002: "under 0.1%", 0.2: "20%", 0.9999: "99.9%", 1: "100%"}
    assert run(page, "return given.map(c.percent);", list(shares)) == list(
        shares.values()
    )
    assert run(page, "return c.grouped(2 ** 60);") == "1.15 · 10¹⁸"


def test_every_link_leads_to_a_place_of_the_book(page):
    links = run(page, "return Object.values(c.VIEWS).flatMap((view) => view.links);")
    assert len(links) >= 6
    for _, address in links:
        name, anchor = address.split(".html#")
        text = (ROOT / f"chapters/{name}.md").read_text(encoding="utf-8")
        label = anchor.removeprefix("equation-")
        titles = re.findall(r"^###? (.+)$", text, re.MULTILINE)
        slugs = [re.sub(r"[^a-z0-9]+", "-", title.lower()) for title in titles]
        places = (f"$$ ({label})\n", f":label: {label}\n")
        assert anchor in slugs or any(place in text for place in places), address


def test_every_published_model_is_in_the_bibliography(page):
    said = run(page, "return Object.values(f.PRESETS).map((p) => p.published ?? null);")
    entries = (ROOT / "book/references.bib").read_text(encoding="utf-8").split("\n@")
    for author, year in (re.split(r" et al\., ", name) for name in said if name):
        assert any(
            f"author = {{{author}," in entry and f"year = {{{year}}}" in entry
            for entry in entries
        ), author


# ---- the calculators on a page -------------------------------------------------------


def calculator(browser, site, **options):
    """A page with one calculator, of a phone's width."""
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    opened.goto(site.figure("calculators", **options))
    opened.wait_for_selector('section[data-state="live"]')
    return opened


def row(opened, name: str) -> str:
    """The number in the row of that name."""
    found = opened.locator(
        "tr", has=opened.get_by_role("rowheader", name=name, exact=True)
    )
    return found.locator(".calculators-number").text_content()


def test_the_counts_follow_the_fields(browser, site):
    opened = calculator(browser, site, view="parameters")
    assert row(opened, "all parameters") == "816,640"
    model = opened.get_by_label("model", exact=True)
    for key, total in KNOWN.items():
        model.select_option(key)
        assert row(opened, "all parameters") == f"{total:,}"
    assert opened.get_by_label("heads of keys").is_visible()
    model.select_option("ch02")
    assert not opened.get_by_label("heads of keys").is_visible()
    opened.get_by_label("layers L").fill("3")
    assert model.input_value() == "own"
    expected = param_breakdown(GPTConfig(512, n_layers=3))
    assert row(opened, "all parameters") == f"{expected['total']:,}"
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    opened.close()


def test_bad_input_is_told_and_the_last_result_stays(browser, site):
    opened = calculator(browser, site, view="parameters", model="ch02")
    width = opened.get_by_label("width d")
    told = opened.locator(f"#{width.get_attribute('aria-describedby')}")
    stale = opened.locator(".calculators-stale")
    width.fill("sixty")
    assert told.text_content() == (
        "width d is “sixty”; expected a whole number from 1 to 100,000."
    )
    assert width.get_attribute("aria-invalid") == "true"
    assert row(opened, "all parameters") == "139,776"
    assert stale.count() == 1
    spoken = opened.locator(".live-spoken")
    sync_api.expect(spoken).to_have_text(told.text_content())
    width.fill("66")
    heads = opened.get_by_label("heads H")
    said = opened.locator(f"#{heads.get_attribute('aria-describedby')}")
    assert told.text_content() == ""
    assert said.text_content() == (
        "the width is 66 and there are 4 heads; expected heads that divide it evenly."
    )
    heads.fill("3")
    assert said.text_content() == ""
    assert stale.count() == 0
    opened.close()


@pytest.mark.parametrize(
    ("live", "options", "bar"),
    [
        ("calculators", {"view": "parameters"}, ".calculators-share span"),
        ("tokens", {"model": "ch02"}, ".tokens-bar span"),
        ("generation", {"model": "ch02"}, ".bar .drawn"),
        ("attention", {"model": "ch02"}, ".live-strip .bar"),
    ],
)
def test_bars_are_seen_in_the_reader_s_own_colours(browser, site, live, options, bar):
    opened = browser.new_page()
    ground = "e => getComputedStyle(e).backgroundColor"
    opened.goto(site.figure(live, **options))
    opened.wait_for_selector('section[data-state="live"]')
    own = opened.locator(bar).first.evaluate(ground)
    opened.emulate_media(forced_colors="active")
    assert opened.locator(bar).first.evaluate(ground) == own
    opened.close()


def test_the_roofline_moves_with_the_batch(browser, site):
    opened = calculator(browser, site, view="roofline")
    point = opened.locator(".calculators-point")
    verdict = opened.locator(".calculators-verdict").first
    assert "memory sets the pace, at 2% of the peak" in verdict.text_content()
    before = float(point.get_attribute("cx"))
    opened.get_by_label("batch B, powers of two").press("End")
    assert opened.get_by_label("batch B", exact=True).input_value() == "65,536"
    assert float(point.get_attribute("cx")) > before
    assert "arithmetic sets the pace, at 100%" in verdict.text_content()
    drawn = opened.get_by_role("img").get_attribute("aria-label")
    assert "batch 65,536 stands at" in drawn
    opened.get_by_label("context c", exact=True).fill("1,000,000")
    assert "memory sets the pace" in verdict.text_content()
    opened.close()


@pytest.mark.parametrize(
    ("view", "name", "number"),
    [
        ("flops", "one token", "327,936"),
        ("cache", "a token", "1,024 B"),
        ("known", "the estimate", "3.14 · 10²³"),
    ],
)
def test_each_view_prints_what_its_page_prints(browser, site, view, name, number):
    opened = calculator(browser, site, view=view)
    assert row(opened, name) == number
    opened.close()


def test_a_view_that_does_not_exist_leaves_the_static_figure(browser, site):
    opened = browser.new_page()
    opened.goto(site.figure("calculators", view="moon"))
    opened.wait_for_selector('section[data-state="failed"]')
    note = opened.locator(".live-note").text_content()
    assert "no calculator ‘moon’; there are parameters" in note
    assert opened.locator(".live-static").is_visible()
    opened.close()
