"""The course's site on a phone: every page that a link leads to, in both languages, in the light and in the dark."""

import functools
import html
import http.server
import re
import shutil
import threading
import time
import warnings
from urllib.parse import unquote, urldefrag, urljoin

import nbformat
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from grader.course.metadata import identity
from grader.course.source import ROOT, SOLUTION, read_course
from grader.course.translation import read_catalogue
from tests.conftest import missing

if why := missing("furo", "make extras"):
    pytest.skip(why, allow_module_level=True)
from axe_core_python.selenium import Axe

KEPT = ROOT / "build" / "website"  # what the notebooks' cells show, as `make site` keeps it


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of the notebooks; of the Chinese ones those that do not train, since each runs before it is shown."""
    from website.__main__ import build

    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for path in (folder / "notebooks" / "zh").glob("0[3-5]*"):
        path.unlink()
    with warnings.catch_warnings():  # Sphinx's extensions use what a later Sphinx will not have
        warnings.simplefilter("ignore")
        build(folder / "notebooks", folder / "site", KEPT)
    return folder / "site"


@pytest.fixture(scope="module")
def address(site):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def phone(browser):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True})
    return browser


def test_every_link_leads_somewhere_on_a_phone_without_the_network(phone, address, site):
    todo = [address + page for page in ("index.html", "search.html", "zh/search.html")]  # a form leads to the search
    seen, fragments = {}, set()
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        visit(phone, page)
        wide = phone.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 400, f"{page} is {wide} px wide"
        asked = phone.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")
        assert not [url for url in asked if not url.startswith((address, "data:"))], page
        assert not phone.find_elements(By.CSS_SELECTOR, "mjx-merror, .math:not(:has(mjx-container)), img:not([alt]), img[alt='']"), page
        assert not [each for each in phone.get_log("browser") if "favicon" not in each["message"]], page
        seen[page] = set(phone.execute_script("return [...document.querySelectorAll('[id]')].map(each => each.id)"))
        for link in phone.execute_script("return [...document.querySelectorAll('a[href]')].map(each => each.getAttribute('href'))"):
            target, fragment = urldefrag(urljoin(page, link))
            if not target.startswith(address):
                continue
            file = site / unquote(target.removeprefix(address).partition("?")[0])
            assert file.is_file(), f"{page} links to {link}"
            if file.suffix == ".html":
                todo.append(target)
                fragments |= {(target, unquote(fragment))} if fragment else set()
    assert {path.relative_to(site).as_posix() for path in site.rglob("*.html")} <= {
        page.removeprefix(address).partition("?")[0] for page in seen
    }
    assert not {(page, fragment) for page, fragment in fragments if fragment not in seen[page]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["index", "03_kl", "zh/01_advantage", "search", "replay/index"])
def test_axe_finds_nothing_serious(phone, address, page, scheme):
    phone.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    visit(phone, f"{address}{page}.html")
    phone.execute_script("[...document.querySelectorAll('.highlight')].slice(12).forEach(each => each.remove())")  # the same colours again
    phone.execute_script(Axe().axe_script)
    phone.set_script_timeout(300)  # far more than it takes, on a busy machine, too
    run = "axe.run({exclude: [['mjx-container']]}, {resultTypes: ['violations']}).then(arguments[0])"
    found = [each for each in phone.execute_async_script(run)["violations"] if each["impact"] in ("serious", "critical")]
    assert not found, [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found]


def test_no_page_holds_an_answer_or_a_hidden_test(site):
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".js") and "_static" not in path.parts]
    pages = {path: squeezed(html.unescape(re.sub(r"<[^<>]*>", "", path.read_text(encoding="utf-8")))) for path in files}
    notebooks = [nbformat.read(path, 4) for path in (ROOT / "notebooks").glob("*.ipynb")]
    open_to_all = squeezed("\n".join(cell.source for nb in notebooks for cell in nb.cells))
    for nb in read_course(ROOT / "solutions"):
        for cell in nb.of_kind("solution", "bring", "check"):
            secret = cell.hidden if cell.kind == "check" else cell.source.partition(SOLUTION[0])[2].partition(SOLUTION[1])[0]
            for line in map(squeezed, secret.splitlines()):
                if len(line) > 25 and line not in open_to_all:
                    assert not [path for path, text in pages.items() if line in text], f"{nb.name}: {cell.name}: {line}"


def squeezed(text):
    """A text without white space, so that a line of code is found however it is laid out."""
    return re.sub(r"\s", "", text)


def test_a_page_shows_what_the_key_shows_and_what_a_learner_reads(site):
    for path in sorted((ROOT / "notebooks").glob("0[1-4]*.ipynb")):
        page = (site / f"{path.stem}.html").read_text(encoding="utf-8")
        cells = [identity(cell) for cell in nbformat.read(path, 4).cells]
        assert page.count('<details class="code"><summary>Check: ') == sum(cell.kind == "check" for cell in cells)
        assert page.count("<img") >= 5
        assert "feedback.score()" not in page and "b85decode" not in page
        assert (site / "notebooks" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("page", "query"), [("search.html", "importance weight"), ("zh/search.html", "优势"), ("zh/search.html", "重要性采样比")]
)
def test_the_search_finds(phone, address, page, query):
    visit(phone, f"{address}{page}?q={query}")
    until(lambda: phone.find_elements(By.CSS_SELECTOR, "#search-results li a"), "nothing was found")


def test_another_language_is_a_link_away(phone, address):
    visit(phone, address + "01_advantage.html")
    links = {each.get_attribute("lang"): each.get_attribute("href") for each in phone.find_elements(By.CSS_SELECTOR, ".languages a")}
    assert links == {"en": address + "01_advantage.html", "zh-CN": address + "zh/01_advantage.html"}
    visit(phone, links["zh-CN"])
    assert phone.find_element(By.TAG_NAME, "html").get_attribute("lang") == "zh-CN"
    assert phone.find_element(By.CSS_SELECTOR, '.languages [aria-current="true"]').get_attribute("lang") == "zh-CN"


def test_what_the_theme_says_is_in_the_language_of_the_page(site):
    page = (site / "zh" / "01_advantage.html").read_text(encoding="utf-8")
    told = [each for each in read_catalogue(ROOT / "website/locale/zh_CN/LC_MESSAGES/sphinx.po") if each.id]
    assert len(told) > 10 and not [each.id for each in told if each.string not in page]
    assert not [each.id for each in told if re.search(rf'[>"]\s*{re.escape(each.id.strip())}\s*[<"]', page)]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_replay_goes_by_keyboard_from_haste_to_thought(phone, address, lang):
    visit(phone, f"{address}replay/index.html?lang={lang}")
    slider, told = phone.find_element(By.ID, "step"), phone.find_element(By.ID, "now")
    said, before = {told.text}, phone.find_element(By.ID, "answers").text
    for _ in range(3):
        slider.send_keys(Keys.ARROW_RIGHT)
        said.add(told.text)
    assert len(said) == 4 and slider.get_attribute("aria-valuetext") == told.text
    slider.send_keys(Keys.END)
    after = phone.find_element(By.ID, "answers").text
    assert before.count("<think>") < 3 and after.count("<think>") == 12
    phone.find_element(By.ID, "play").send_keys(Keys.ENTER)
    until(lambda: phone.find_element(By.ID, "answers").text.count("<think>") < 12, "it did not play from the start")


def visit(phone, page):
    """Opens a page and waits for all of it, its formulas typeset."""
    phone.get(page)
    until(lambda: phone.execute_script("return document.readyState === 'complete' && !!document.querySelector('article, main')"), page)
    phone.execute_script("return window.MathJax && MathJax.startup.promise.then(() => null)")


def until(true, otherwise, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)
