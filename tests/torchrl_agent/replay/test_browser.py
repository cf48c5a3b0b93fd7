"""The page of a replay in a real browser; Chromium is looked for on the path, or where CHROMIUM says."""

from __future__ import annotations

import os
import shutil

import pytest

from torchrl_agent.replay import Replay, as_page, game_of, read_record, write_page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, hostile, tmp_path):
    """The page of the village, with its requests and messages."""
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    page.heard = []
    page.on("request", lambda request: page.heard.append(request.url))
    page.on("console", lambda message: page.heard.append(message.text))
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    page.path = write_page(hostile, tmp_path / "page.html").as_uri()
    visit(page, page.path)
    yield page
    page.close()


def visit(page, address):
    page.goto(address)
    page.wait_for_selector("body[data-ready]")


def wait_until(page, expression):
    """Wait up to half a minute; Playwright's own way would need a page that may evaluate strings."""
    for _ in range(300):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(expression)


def state(page, name):
    return page.evaluate(f"replay.state.{name}")


def test_one_request_and_no_message(opened):
    assert opened.evaluate("document.body.dataset.ready") == "true"
    assert opened.heard == [opened.path]
    assert opened.inner_text("h1") == "<script>alert(1)</script>"
    assert "Bed" in opened.inner_text("#things")
    assert opened.locator(".bar").first.inner_text().startswith("<b>up</b>")


def test_steps_agents_actions_and_modules_are_chosen(opened):
    opened.click("#forward")
    opened.click("#forward")
    opened.click("#back")
    assert state(opened, "step") == 1
    opened.click("[data-agent='2']")
    assert opened.get_attribute("[data-agent='2']", "aria-pressed") == "true"
    opened.click("[data-action='3']")
    assert "difference" in opened.inner_text("#mind")
    before = opened.inner_text("#mind")
    opened.click("text=without world model")
    assert state(opened, "without") == "world_model"
    assert opened.inner_text("#mind") != before
    assert opened.evaluate("location.hash") == "#step=1&agent=2&action=3&without=world_model"
    pixels = "byId('scene').toDataURL()"
    drawn = opened.evaluate(pixels)
    opened.click("[data-layer='sight']")
    assert opened.evaluate(pixels) != drawn


def test_a_moment_can_be_sent(opened):
    opened.goto("about:blank")
    visit(opened, f"{opened.path}#step=3&agent=1&action=2&without=memory")
    found = opened.evaluate("[replay.state.step, replay.state.agent, replay.state.action, replay.state.without]")
    assert found == [3, 1, 2, "memory"]
    opened.goto("about:blank")
    visit(opened, f"{opened.path}#step=999&agent=-4&without=<b>")
    assert [state(opened, name) for name in ("step", "agent", "without")] == [5, 0, None]


def test_the_keyboard_alone_suffices(opened):
    opened.keyboard.press("ArrowRight")
    assert state(opened, "step") == 1
    opened.focus("#scene")
    opened.keyboard.press("ArrowRight")
    assert "Cell" in opened.inner_text("#cell") and "see" in opened.inner_text("#cell")
    assert state(opened, "step") == 1
    opened.focus("[data-action='2']")
    opened.keyboard.press("Enter")
    assert state(opened, "action") == 2
    assert opened.evaluate("document.activeElement.dataset.action") == "2"
    opened.keyboard.press("n")
    step = state(opened, "step")
    assert step > 1 and opened.evaluate("replay.thought().surprises.length") > 0


def test_it_plays_and_stops(opened):
    opened.click("#play")
    assert opened.inner_text("#play") == "Pause"
    opened.wait_for_selector("text=step 5 of 5")
    opened.wait_for_selector("#play:text('Play')")


def test_a_newer_record_is_refused_in_a_sentence(opened, tmp_path):
    page = (tmp_path / "page.html").read_text().replace("const VERSION = 1;", "const VERSION = 0;")
    (tmp_path / "old.html").write_text(page)
    visit(opened, (tmp_path / "old.html").as_uri())
    assert "This record is of version 1 of its format, and the page reads up to 0." in opened.inner_text("h1")


def test_it_works_inside_a_notebooks_frame(opened, village):
    opened.set_content(Replay(village)._repr_html_())
    frame = opened.frames[-1]
    frame.wait_for_selector("body[data-ready]")
    assert frame.inner_text("h1") == "shipped:village"


def test_a_person_plays_hands_over_and_saves_a_game_that_is_replayed(opened, tmp_path):
    address = write_page(game_of("shipped:duel"), tmp_path / "duel.html").as_uri()
    opened.goto("about:blank")
    opened.heard.clear()
    visit(opened, address)
    assert opened.heard == [address]
    opened.evaluate("play.fresh(7)")
    before = opened.evaluate("play.game.world['state.ships.rotation'][0]")
    opened.click("[data-action='3']")  # right
    assert opened.evaluate("play.game.steps") == 1
    assert opened.evaluate("play.game.world['state.ships.rotation'][0]") != before
    opened.keyboard.down("ArrowUp")
    opened.click("#start")
    wait_until(opened, "play.game.steps > 4")
    opened.keyboard.up("ArrowUp")
    assert opened.evaluate("play.thoughts[2].map((each) => each.action[0])[0]") == 1  # thrust
    opened.keyboard.press("p")
    assert opened.get_attribute("#agent", "aria-pressed") == "true"
    steps = opened.evaluate("play.game.steps")
    wait_until(opened, f"play.game.steps > {steps + 3}")
    opened.click("#start")
    same = "play.thoughts.at(-1)[0].probabilities[0].reduce((top, x, i, all) => (x > all[top] ? i : top), 0)"
    assert opened.evaluate("play.thoughts.at(-1)[0].action[0]") == opened.evaluate(same)
    with opened.expect_download() as saved:
        opened.click("#save")
    saved.value.save_as(tmp_path / "game.json")
    record = read_record(tmp_path / "game.json")
    assert len(record["episodes"][0]["scenes"]) == opened.evaluate("play.game.steps")
    (tmp_path / "game.html").write_text(as_page(record))
    visit(opened, (tmp_path / "game.html").as_uri())
    assert "thrust" in opened.evaluate("(replay.change({ step: 2 }), byId('mind').innerText)")
