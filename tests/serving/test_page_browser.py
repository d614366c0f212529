"""The page in a headless Chromium: what a visitor types, sees and switches. `make page` gets one and runs this."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.serving.live import Live, live, scripted, slow_down

sync_api = pytest.importorskip("playwright.sync_api", reason="the page's tests need playwright: pip install playwright")
expect = sync_api.expect
Page = Any
Open = Callable[..., Page]
CHARACTERS = "?a😀é中!<eos>X"
MARKUP = "?<script>!<eos>X"


def chromium() -> str:
    """FORETELL_CHROMIUM, or one on the path."""
    own = os.environ.get("FORETELL_CHROMIUM")
    found = own or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not found:
        pytest.skip("there is no Chromium: run make page, or set FORETELL_CHROMIUM")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = chromium()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens the page of a server. At the end nothing may have failed in it, or been asked of anybody else."""
    contexts, faults = [], []

    def make(server: Live, width: int = 1280, height: int = 860, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda m: None if "Failed to load resource" in m.text else faults.append(m.text))
        page.on("request", lambda r: None if r.url.startswith((server.url, "data:")) else faults.append(r.url))
        page.goto(server.url + "/")
        return page

    yield make
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture(scope="module")
def letters() -> Iterator[Live]:
    """Heads that are always right, depth 3."""
    with live(scripted()) as server:
        yield server


@pytest.fixture(scope="module")
def slow() -> Iterator[Live]:
    """The same, at most forty steps a second."""
    service = scripted()
    slow_down(service, 0.025)
    with live(service) as server:
        yield server


def ready(page: Page) -> Page:
    page.locator("#what b").wait_for(state="attached")
    return page


def ask(page: Page, text: str, num_tokens: int = 17, known: bool = True) -> Any:
    """Types and sends; returns the newest answer once it is there. ``known``: wait until the page knows the server."""
    put(ready(page) if known else page, "max-tokens", num_tokens)
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")
    return done(page)


def put(page: Page, name: str, value: Any) -> None:
    """Into a field of the settings, open or not."""
    page.evaluate("([name, value]) => { document.getElementById(name).value = value }", [name, value])


def done(page: Page) -> Any:
    page.locator("#send").wait_for()
    return page.locator(".answer").last


def origins(answer: Any) -> list[str]:
    classes = answer.locator(".token").evaluate_all("spans => spans.map(span => span.className)")
    return [name.split()[1][0] for name in classes]


def style(locator: Any, name: str) -> str:
    return str(locator.evaluate("(span, name) => getComputedStyle(span)[name]", name))


def test_type_stream_switch_and_see_the_colours(slow: Live, opened: Open) -> None:
    page = ready(opened(slow))
    expect(page.locator("#what")).to_have_text(re.compile("tiny drafted for by sequential heads.*depth 3"))
    expect(page.locator("#hello")).to_be_visible()
    page.fill("#prompt", ">")
    put(page, "max-tokens", 61)
    page.press("#prompt", "Enter")
    answer = page.locator(".answer")
    expect(answer).to_have_attribute("aria-busy", "true")
    tokens = answer.locator(".token")
    tokens.nth(3).wait_for()
    before = tokens.count()
    assert before < 61
    expect(page.locator("#stop")).to_be_visible()
    expect(answer.locator(".figures")).to_have_text(re.compile(r"^\d+ tokens, \d+\.\d tokens/s$"))
    done(page)
    assert answer.locator(".tokens").text_content() == ("abcdefghijklmnopqrstuvwxyz>" * 3)[:61]
    assert "".join(origins(answer)) == "r" + "aaab" * 15
    looks = [
        (style(span, "backgroundColor"), style(span, "textDecorationColor"), style(span, "textDecorationStyle"))
        for span in (tokens.nth(0), tokens.nth(1), tokens.nth(4))
    ]
    assert all(len(set(kind)) == 3 for kind in zip(*looks, strict=True))
    figures = answer.locator(".figures").text_content()
    assert "3.81 tokens a pass, accepted by depth 1.00 1.00 1.00, cut off" in figures  # 61 tokens in 16 passes
    expect(page.locator("#hello")).to_have_count(0)

    page.locator("#depth").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#depth-shown")).to_have_text("1")
    assert "".join(origins(ask(page, ">"))) == "r" + "ab" * 8
    page.get_by_text("off", exact=True).click()
    expect(page.locator("#depth-shown")).to_have_text("0")
    plain = ask(page, ">")
    assert "".join(origins(plain)) == "r" * 17 and "nothing drafted" in plain.locator(".figures").text_content()
    assert style(plain.locator(".token").first, "textDecorationLine") == "none"


def test_requests_say_what_is_set_and_hold_the_conversation(letters: Live, opened: Open) -> None:
    page = ready(opened(letters))
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.method == "POST" else None)
    ask(page, ">", 3)
    page.get_by_text("auto", exact=True).click()
    page.locator("#settings summary").click()
    page.fill("#temperature", "0.5")
    page.fill("#system", "be brief")
    ask(page, "more>", 5)
    first, second = bodies
    said = {"role": "user", "content": ">"}
    assert first["messages"] == [said] and first["speculative"] == {"policy": "fixed", "depth": 3, "details": True}
    assert (first["max_tokens"], first["temperature"], first["stream"]) == (3, 0, True)
    assert second["messages"] == [
        {"role": "system", "content": "be brief"},
        said,
        {"role": "assistant", "content": "abc"},
        {"role": "user", "content": "more>"},
    ]
    assert (second["speculative"], second["temperature"]) == ({"policy": "auto", "details": True}, 0.5)
    page.get_by_role("button", name="New conversation").click()
    assert page.locator(".turn").count() == 0
    page.fill("#temperature", "")
    ask(page, ">", 1)
    assert len(bodies[2]["messages"]) == 2 and bodies[2]["temperature"] is None


def test_details_by_mouse_and_keys(letters: Live, opened: Open) -> None:
    page = opened(letters)
    tokens = ask(page, ">", 6).locator(".token")
    card = page.locator("#card")
    tokens.nth(2).hover()
    expect(card).to_have_text(re.compile(r"^caccepted draft, depth 2\. .*gave it (9\d\.\d|100) %\. token \d+$"))
    page.mouse.move(5, 5)
    expect(card).to_be_hidden()
    page.keyboard.press("Shift+Tab")  # from the composer to the one stop of the answer
    expect(tokens.nth(0)).to_be_focused()
    assert style(tokens.nth(0), "outlineStyle") == "solid"
    expect(card).to_contain_text("recovered")
    page.keyboard.press("ArrowRight")
    expect(card).to_contain_text("depth 1")
    page.keyboard.press("End")
    expect(tokens.nth(5)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(5)).to_be_focused()
    assert tokens.evaluate_all("spans => spans.filter(span => span.tabIndex === 0).length") == 1
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()


def test_characters_of_several_tokens_come_whole(opened: Open) -> None:
    with live(scripted(CHARACTERS)) as server:
        page = opened(server)
        answer = ask(page, "?")
        spans = answer.locator(".token")
        assert spans.all_text_contents() == ["a", "😀", "é", "中", "!"]
        assert spans.evaluate_all("spans => spans.map(span => span.tokens.length)") == [1, 4, 2, 3, 1]
        spans.nth(1).hover()
        expect(page.locator("#card")).to_contain_text("in 4 tokens")
        assert page.locator("#card p").count() == 5
        cut = ask(page, "?", 3)
        assert cut.locator(".token").all_text_contents() == ["a", "\ufffd"]


def test_markup_stays_text(opened: Open) -> None:
    with live(scripted(MARKUP)) as server:
        page = opened(server)
        said = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\n?"
        answer = ask(page, said)
        assert answer.locator(".tokens").text_content() == "<script>!"
        assert page.locator(".said").text_content() == said
        assert page.locator("#talk script, #talk img").count() == 0 and page.evaluate("window.hacked") is None


def test_fences_are_code(letters: Live, opened: Open) -> None:
    page = ready(opened(letters))
    parts = ["a ``", "`b", "\nc``", "`", " d"]
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=canned(parts)))
    answer = ask(page, ">")
    flags = answer.locator(".token").evaluate_all("spans => spans.map(span => span.classList.contains('code'))")
    assert flags == [False, True, True, True, False]


def canned(parts: list[str], end: str = "data: [DONE]\n\n") -> str:
    """A stream with a token for each part; its id is its length."""
    tokens = [
        {"id": len(part), "bytes": list(part.encode()), "origin": "accepted", "depth": 1, "probability": 0.4}
        for part in parts
    ]
    choices = [{"delta": {"content": p}, "speculative": {"tokens": [t]}} for p, t in zip(parts, tokens, strict=True)]
    return "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices) + end


def test_race(slow: Live, opened: Open) -> None:
    page = ready(opened(slow))
    order, bodies = [], []
    page.on("request", lambda r: (order.append("asked"), bodies.append(r.post_data_json)) if r.post_data else None)
    page.on("requestfinished", lambda r: order.append("done") if r.post_data else None)
    put(page, "max-tokens", 33)
    put(page, "temperature", 1)
    page.fill("#prompt", ">")
    page.get_by_role("button", name="Race plain").click()
    plain, drafted = page.locator(".lane").all()
    plain.locator(".token").nth(3).wait_for()
    expect(plain.locator(".rate")).to_have_text(re.compile(r"^\d+\.\d tokens/s$"))
    assert drafted.locator(".token").count() == 0
    done(page)
    assert order[:3] == ["asked", "done", "asked"]
    assert [body["speculative"]["policy"] for body in bodies] == ["off", "fixed"]
    assert [body.pop("speculative") and body for body in bodies] == [bodies[0]] * 2 and bodies[0]["temperature"] == 0
    verdict = page.locator(".verdict").text_content()
    ratio = re.match(r"Drafted is (\d+\.\d\d)× as fast\. Both texts are equal, all 33 tokens\.", verdict)
    assert ratio and float(ratio[1]) > 1.2  # 4 tokens a step, of a machine that may be busy
    speeds = [float(lane.locator(".rate").text_content().split()[0]) for lane in (plain, drafted)]
    assert speeds[1] / speeds[0] == pytest.approx(float(ratio[1]), rel=0.05) and speeds[0] < 40.5
    assert style(plain.locator(".token").first, "textDecorationLine") == "none"

    page.get_by_role("button", name="Race plain").click()  # once more, in place of the last turn
    done(page)
    assert bodies[2]["messages"] == bodies[0]["messages"] and page.locator(".race").count() == 2


def test_race_of_texts_that_part(letters: Live, opened: Open) -> None:
    page = ready(opened(letters))
    streams = [["a", "bb", "c"], ["a", "xyz", "c"], ["a"], ["a", "bb"]]
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=canned(streams.pop(0))))
    for words in ("part at token 2, of which the model gave 40.00 %", "part at the end of one of them"):
        page.fill("#prompt", ">")
        page.get_by_role("button", name="Race plain").click()
        done(page)
        expect(page.locator(".verdict").last).to_contain_text(words)
        assert "equal" not in page.locator(".verdict").last.text_content()


def test_escape_stops_and_keeps_what_came(slow: Live, opened: Open) -> None:
    page = ready(opened(slow))
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.method == "POST" else None)
    put(page, "max-tokens", 500)
    page.fill("#prompt", ">")
    page.press("#prompt", "Shift+Enter")
    assert page.input_value("#prompt") == ">\n" and not bodies
    page.fill("#prompt", ">")
    page.press("#prompt", "Enter")
    page.locator(".token").nth(4).wait_for()
    expect(page.locator("#state")).to_have_text("1 of 4 running, 0 waiting")
    page.keyboard.press("Escape")
    answer = done(page)
    text = answer.locator(".tokens").text_content()
    assert 5 <= len(text) < 500 and answer.locator(".figures").text_content().endswith("stopped")
    slow.settle()
    assert page.locator(".problem").count() == 0
    ask(page, ">", 2)
    assert bodies[1]["messages"][1] == {"role": "assistant", "content": text}


def test_key(opened: Open) -> None:
    with live(scripted(api_key="secret")) as server:
        page = opened(server)
        expect(page.locator("#state")).to_have_text("needs an API key: see Settings")
        page.fill("#prompt", ">")
        page.press("#prompt", "Enter")
        expect(page.locator(".problem")).to_contain_text("no valid API key")
        expect(page.locator("#key")).to_be_focused()
        assert page.input_value("#prompt") == ">"
        for wrong, words in (("other", "no valid API key"), ("schlüssel€", "characters that no key can have")):
            put(page, "key", wrong)
            ask(page, ">", known=False)
            expect(page.locator(".problem").last).to_contain_text(words)
        page.fill("#key", " secret")
        page.keyboard.press("Tab")
        assert ask(page, ">", 3).locator(".tokens").text_content() == "abc"
        page.reload()
        ready(page)
        assert page.input_value("#key") == " secret" and "secret" not in page.url
        assert page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0


def test_errors_show_in_place(letters: Live, opened: Open) -> None:
    page = ready(opened(letters))
    problem = page.locator(".turn").last.locator(".problem")
    ask(page, ">", 100_000)
    expect(problem).to_contain_text("the window holds 512; ask for at most 511")
    assert page.input_value("#prompt") == ">" and page.locator("#state").text_content() == "ready"
    failed = 'data: {"error": {"message": "the engine failed", "code": "engine_error"}}\n\ndata: [DONE]\n\n'
    bodies = [canned(["a"], failed), canned(["a"], "")]
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=bodies.pop(0)))
    for words in ("the engine failed", "broke off"):
        assert ask(page, ">").locator(".tokens").text_content() == "a"
        expect(problem).to_contain_text(words)
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/**", lambda route: route.abort())
    ask(page, ">")
    expect(problem).to_have_text("the server cannot be reached")
    expect(page.locator("#state")).to_have_text("the server cannot be reached")
    page.unroute("**/v1/**")
    expect(page.locator("#state")).to_have_text("ready")
    assert ask(page, ">", 3).locator(".tokens").text_content() == "abc"


def test_without_a_template_it_continues_text(opened: Open) -> None:
    with live(scripted(template=None)) as server:
        page = opened(server)
        for _ in range(2):
            answer = ask(page, "xyz", 4)
            assert answer.locator(".tokens").text_content() == ">abc" and page.locator(".problem").count() == 0
        assert page.locator(".answer").count() == 2
        assert "stands alone" in page.get_attribute("#prompt", "placeholder")


def test_a_server_that_does_not_draft_says_why(opened: Open) -> None:
    from tests.fixtures import script_trunk
    from tests.serving.live import ALPHABET, service_of

    with live(service_of(script_trunk(ALPHABET, max_positions=64))) as server:
        page = ready(opened(server))
        expect(page.locator("#what")).to_contain_text("has no heads")
        for locator in (page.get_by_label("fixed"), page.get_by_label("auto"), page.locator("#depth")):
            expect(locator).to_be_disabled()
        expect(page.get_by_role("button", name="Race plain")).to_be_disabled()
        assert page.input_value("#max-tokens") == "32"
        assert ask(page, ">", 3).locator(".tokens").text_content() == "abc"
        expect(page.get_by_role("button", name="Race plain")).to_be_disabled()


def test_acceptance_over_time(opened: Open) -> None:
    """What was drafted before the page came is in the table, not in the lines."""
    with live(scripted()) as server:
        server.chat(max_tokens=90, speculative={"depth": 2}, metadata={"class": "before"})
        page = ready(opened(server))
        lines = page.locator("#by-depth path.series-line")
        expect(page.locator("#classes tbody tr")).to_have_count(1)
        expect(page.locator("#classes tbody")).to_have_text(re.compile("^before312.90"))  # 31 passes for 90 tokens
        expect(page.locator("#by-depth")).to_contain_text("nothing drafted just now")
        ask(page, ">", 80)
        expect(page.locator("#by-depth .series")).to_have_text(re.compile("depth 1 1.00depth 2 1.00depth 3 1.00"))
        expect(page.locator("#by-class .series")).to_have_text("chat 1.00")
        assert lines.count() == 6  # three, and three in the legend
        expect(page.locator("#class option")).to_have_text(["all classes", "before", "chat"])
        page.select_option("#class", "before")
        expect(page.locator("#by-depth")).to_contain_text("nothing drafted just now")


def test_points_are_differences(letters: Live, opened: Open) -> None:
    page = opened(letters)
    seen = page.evaluate(
        """() => {
          const counts = (drafts, one, two) => (
            { drafts, tokens: [2 * drafts, one + two], drafted: [drafts, drafts], accepted: [one, two] });
          const recent = new Recent();
          recent.take(counts(100, 100, 100), 0, true);
          recent.take(counts(105, 100, 100), 1, false);   // too few: they count for the next point
          recent.take(counts(120, 110, 105), 2, false);
          recent.take(counts(10, 5, 0), 3, false);        // another server
          recent.take(counts(90, 80, 70), 99, true);      // nobody looked for long
          recent.take(counts(100, 80, 70), 100, false);
          return [recent.overall, ...recent.byDepth].map((points) => points.map(({ time, share }) => [time, share]));
        }"""
    )
    assert seen == [[[2, 0.375], [3, 0.25], [100, 0]], [[2, 0.5], [3, 0.5], [100, 0]], [[2, 0.25], [3, 0], [100, 0]]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_from_a_phone_to_a_desk(letters: Live, opened: Open, scheme: Any) -> None:
    page = opened(letters, color_scheme=scheme)
    ask(page, "https://" + "w" * 300 + ">", 50)
    page.fill("#prompt", ">")
    page.get_by_role("button", name="Race plain").click()
    done(page)
    channels = [int(part) for part in re.findall(r"\d+", style(page.locator("body"), "backgroundColor"))[:3]]
    assert (min(channels) > 240) == (scheme == "light") and (max(channels) < 60) == (scheme == "dark")
    for width in (320, 390, 768, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 700})
        page.evaluate("scrollTo(0, 0)")
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, width
        for name in ("#send", "#race", "#prompt", "#depth"):
            box = page.locator(name).bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= 700, (name, width)
        tops = [lane.bounding_box()["y"] for lane in page.locator(".lane").all()]
        assert (tops[0] == tops[1]) == (width > 640)


def test_the_newest_tokens_stay_in_sight(slow: Live, opened: Open) -> None:
    page = opened(slow, 390, 700)
    for _ in range(3):
        ask(page, ">\n\n\n\n>", 60)
    end, composer = (page.locator(name).bounding_box()["y"] for name in ("#end", "#composer"))
    assert end <= composer + 1 and page.evaluate("scrollY") > 0
    put(page, "max-tokens", 60)
    page.fill("#prompt", ">")
    page.press("#prompt", "Enter")
    page.locator(".answer").nth(3).locator(".token").nth(3).wait_for()
    page.evaluate("scrollTo(0, 0)")
    done(page)
    assert page.evaluate("scrollY") == 0  # the reader's own place


def test_every_control_can_be_reached_and_seen_by_keyboard(letters: Live, opened: Open) -> None:
    page = ready(opened(letters))
    page.locator("#prompt").focus()
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if not focused.count():
            break
        seen.append(focused.evaluate("e => e.id || e.name || e.tagName"))
        shown = focused if seen[-1] != "policy" else page.locator("#policy")
        assert style(shown, "outlineStyle") != "none", seen
    assert seen[:6] == ["policy", "depth", "race", "send", "class", "SUMMARY"]
