"""The page of a replay in a real browser; Chromium is looked for on the path, or where CHROMIUM says."""

from __future__ import annotations

import os
import shutil
import threading

import pytest

from envs.growth.rules import OPERATIONS
from torchrl_agent import load_agent
from torchrl_agent.core.run_names import SHIPPED
from torchrl_agent.labs.lab import record_lab
from torchrl_agent.pretrain.recording import read_recording
from torchrl_agent.replay import RecordConfig, Replay, as_page, game_of, read_record, write_page
from torchrl_agent.replay.games import write_games
from torchrl_agent.replay.watch import Watcher, make_server

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
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
def page(browser):
    """An empty page, with its requests and messages."""
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    page.heard = []
    page.on("request", lambda request: page.heard.append(request.url))
    page.on("console", lambda message: page.heard.append(message.text))
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    yield page
    page.close()


@pytest.fixture
def opened(page, hostile, tmp_path):
    """The page of the village."""
    return show(page, hostile, tmp_path / "page.html")


def show(page, record, path):
    """Open the page of a record."""
    page.path = write_page(record, path).as_uri()
    page.goto("about:blank")
    page.heard.clear()
    visit(page, page.path)
    return page


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


def accessible(page):
    """Hold the page in both themes against the rules of axe."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = axe.Axe().run(page).response["violations"]
        assert not found, [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


def test_names_are_text(opened):
    assert opened.inner_text("h1") == "<script>alert(1)</script>"
    assert "Bed" in opened.inner_text("#things")
    assert opened.locator(".bar").first.inner_text().startswith("<b>up</b>")


@pytest.mark.parametrize(
    "name", ["hostile", "cartpole", *(pytest.param(name, marks=pytest.mark.slow) for name in ("growth", "lab"))]
)
def test_every_page_makes_one_request_fits_and_is_accessible(name, page, request, tmp_path):
    record = record_lab(4) if name == "lab" else request.getfixturevalue(name)
    show(page, record, tmp_path / "page.html")
    assert page.evaluate("document.body.dataset.ready") == "true"
    page.click("#forward")
    accessible(page)
    for width in (1400, 800, 500):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.heard == [page.path]


def drawing(page, canvas):
    return page.evaluate(f"byId('{canvas}').toDataURL()")


def test_steps_agents_and_actions_are_chosen(opened):
    opened.click("#forward")
    opened.click("#forward")
    opened.click("#back")
    assert state(opened, "step") == 1
    opened.click("[data-agent='2']")
    assert opened.get_attribute("[data-agent='2']", "aria-pressed") == "true"
    opened.click("[data-action='3']")
    assert "difference" in opened.inner_text("#mind")
    opened.click("[aria-label='mind of agent 0']")
    assert state(opened, "agent") == 0
    box = opened.locator("#timeline").bounding_box()
    opened.click("#timeline", position={"x": 0.6 * box["width"], "y": box["height"] - 10})  # in the band of goals
    assert state(opened, "step") == 3
    assert opened.evaluate("location.hash") == "#step=3&agent=0"


def test_the_choice_without_a_module_is_shown(opened):
    bars, marks = opened.inner_text("#mind"), drawing(opened, "timeline")
    opened.click("text=without world model")
    assert state(opened, "without") == "world_model"
    assert opened.inner_text("#mind") != bars
    opened.evaluate("replay.thought(2).without.world_model.action = -1")
    opened.click("text=without social model")
    opened.click("text=without world model")
    assert drawing(opened, "timeline") != marks
    assert "another choice without world model" in opened.inner_text("#legend")
    opened.click("text=whole mind")
    assert opened.inner_text("#mind") == bars and drawing(opened, "timeline") == marks


def test_cells_and_layers_are_shown_and_hidden(opened):
    x, y = opened.evaluate("cellCenter(replay.episode.scenes[0].grid, replay.episode.scenes[0].agents[0])")
    scale = opened.locator("#scene").bounding_box()["height"] / opened.evaluate("replay.episode.scenes[0].size[1]")
    left = opened.locator("#scene").bounding_box()["width"] / scale - opened.evaluate(
        "replay.episode.scenes[0].size[0]"
    )
    opened.click("#scene", position={"x": scale * (x + left / 2), "y": scale * y})
    assert "agent 0" in opened.inner_text("#cell") and "sees it now" in opened.inner_text("#cell")
    layers = opened.locator("[data-layer]")
    assert layers.count() == 4
    for layer in layers.all():
        before = drawing(opened, "scene")
        layer.click()
        assert layer.get_attribute("aria-pressed") == "false"
        assert drawing(opened, "scene") != before


def test_further_choices_of_an_action_are_shown(page, growth, tmp_path):
    show(page, growth, tmp_path / "page.html")
    assert page.locator("table").first.inner_text().startswith("further choices")
    assert page.locator("table").first.locator("tr").last.locator("td").all_inner_texts()[1] in OPERATIONS
    assert page.locator("#things span").first.inner_text() == "germinated"


def test_a_second_slider_shows_the_game_at_an_earlier_checkpoint(page, cartpole, tmp_path):
    show(page, cartpole, tmp_path / "page.html")
    frames = page.inner_text("#frames")
    page.focus("#checkpoint")
    page.keyboard.press("ArrowLeft")
    assert state(page, "checkpoint") == 0
    assert page.inner_text("#frames") != frames
    assert page.evaluate("location.hash") == "#step=0&agent=0&checkpoint=0"


def test_a_moment_can_be_sent(opened):
    opened.goto("about:blank")
    visit(opened, f"{opened.path}#step=3&agent=1&action=2&without=memory")
    found = opened.evaluate("[replay.state.step, replay.state.agent, replay.state.action, replay.state.without]")
    assert found == [3, 1, 2, "memory"]
    opened.goto("about:blank")
    visit(opened, f"{opened.path}#step=999&agent=-4&without=<b>")
    assert [state(opened, name) for name in ("step", "agent", "without")] == [5, 0, None]


def test_the_keyboard_reaches_every_control(opened):
    controls = (
        "[...document.querySelectorAll('button, input, canvas[tabindex], summary')].filter((x) => x.checkVisibility())"
    )
    count = opened.evaluate(f"{controls}.length")
    for _ in range(count + 10):  # tables that scroll have the focus too
        opened.keyboard.press("Tab")
        opened.evaluate("document.activeElement.dataset.reached = 1")
    assert opened.evaluate(f"{controls}.filter((x) => !x.dataset.reached).map((x) => x.outerHTML)") == []


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
    opened.focus("#step")
    opened.keyboard.press("End")
    assert state(opened, "step") == 5


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


def test_a_person_plays_hands_over_and_saves_a_game_that_is_replayed(page, tmp_path):
    opened = show(page, game_of("shipped:duel"), tmp_path / "duel.html")
    accessible(opened)
    assert opened.heard == [opened.path]
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
    experiment = load_agent("shipped:duel", "cpu")[0]
    experiment.algorithm.rollout_steps = 1
    frames, _ = read_recording(write_games([tmp_path / "game.json"], experiment, tmp_path / "games"))
    assert sorted(frames["action"][0].tolist()) == sorted(
        opened.evaluate("play.thoughts.filter((_, step) => play.seats[step] === 0).map((each) => each[0].action[0])")
    )
    (tmp_path / "game.html").write_text(as_page(record))
    visit(opened, (tmp_path / "game.html").as_uri())
    assert "thrust" in opened.evaluate("(replay.change({ step: 2 }), byId('mind').innerText)")


@pytest.mark.slow
def test_a_town_waits_for_its_player_and_hides_what_it_cannot_see(page, tmp_path):
    show(page, game_of("small_town"), tmp_path / "town.html")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("[play.game.steps, play.clock]") == [1, None]
    for button in ("#hide", "[data-agent='1']"):
        before = drawing(page, "scene")
        page.click(button)
        assert drawing(page, "scene") != before
    assert page.evaluate("play.seat") == 1
    page.click("#fresh")
    assert page.evaluate("play.game.steps") == 0
    assert page.heard == [page.path]


def test_a_page_follows_a_run(page):
    watcher = Watcher(SHIPPED / "duel", RecordConfig(ahead=0, steps=3))
    server = make_server(watcher, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    try:
        visit(page, address)
        assert page.is_hidden("#replay")
        watcher.record_newest()
        wait_until(page, "byId('replays').children.length === 1")
        frame = page.frame_locator("#replay")
        frame.locator("body[data-ready]").wait_for()
        assert frame.locator("h1").inner_text() == "shipped:duel"
        accessible(page)
        assert not [heard for heard in page.heard if not heard.startswith(address)]
    finally:
        server.shutdown()
        server.server_close()
