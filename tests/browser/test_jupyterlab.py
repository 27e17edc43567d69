"""Chapters in JupyterLab, as a reader opens them there: what is shown, and that it runs.

A server of its own on a loopback port, with folders of its own, over copies of the notebooks.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from llmcourse.backward.autodiff import topological_order
from llmcourse_classroom.listing import listing
from tools.build import build_book

QUICK = "18_backpropagation"
OPENED = (QUICK, "02_step_by_hand", "19_llama_backward")
"""Between them: terms, citations, equations, boxes, figures, listings and a widget."""
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # every cell is in the page
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
RAW = re.compile(r"\{(?:term|cite|eq|numref|ref|doc)\b|```|:::|^\([\w-]+\)=|\\tag\{", re.MULTILINE)
PROSE = """cells => cells.map(cell => {
  const text = cell.cloneNode(true);
  for (const code of text.querySelectorAll("code, mjx-container")) code.remove();
  return text.textContent;
})"""
RUN_ALL = """async () => {
  const { sessionContext } = jupyterapp.shell.currentWidget;
  await sessionContext.ready;
  await sessionContext.session.kernel.info;
  return jupyterapp.commands.execute("notebook:run-all-cells");
}"""
ENDED = """() => document.querySelector("[data-mime-type='application/vnd.jupyter.error']")
  || jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model)
    .every(model => model.type !== "code" || model.executionCount)"""


def chapter(name):
    return Path(build_book.ROOT, "chapters", f"{name}.ipynb")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a notebook in a running JupyterLab, without the notebook's name."""
    folder = tmp_path_factory.mktemp("lab")
    for name in OPENED:
        shutil.copy(chapter(name), folder)
    for name, settings in SETTINGS.items():
        path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    kinds = ("CONFIG", "DATA", "RUNTIME")
    own = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in kinds}
    kinds = ("SETTINGS", "WORKSPACES")
    own |= {f"JUPYTERLAB_{kind}_DIR": str(folder / kind.lower()) for kind in kinds}
    own |= {
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_PLATFORM_DIRS": "1",
        "TQDM_DISABLE": "1",
    }
    own["PYTHONPATH"] = os.pathsep.join([str(build_book.ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--expose-app-in-browser"]
    command += ["--ip=127.0.0.1", "--port=0", f"--notebook-dir={folder}", "--allow-root"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
    about = folder / "runtime" / f"jpserver-{server.pid}.json"
    try:
        while not about.exists() and server.poll() is None:
            time.sleep(0.1)
        if server.poll() is not None:
            pytest.fail(f"JupyterLab did not start: {(folder / 'log').read_text()[-2_000:]}")
        said = json.loads(about.read_text())
        yield lambda name: f"{said['url']}doc/tree/{name}.ipynb?token={said['token']}"
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def opened(chromium, lab):
    page = chromium.new_page(viewport={"width": 1300, "height": 900})
    page.set_default_timeout(60_000)

    def open_chapter(name):
        page.goto(lab(name))
        cells = page.locator(".jp-Notebook .jp-Cell")
        expect(cells).to_have_count(len(cells_of(name)), timeout=60_000)
        page.locator(".jp-MarkdownCell mjx-container").first.wait_for()
        return page

    yield open_chapter
    page.close()


def cells_of(name):
    return nbformat.read(chapter(name), as_version=4).cells


@pytest.mark.parametrize("name", OPENED)
def test_a_chapter_is_shown_without_raw_markup(opened, name):
    page = opened(name)
    prose = page.locator(".jp-MarkdownCell .jp-RenderedMarkdown").evaluate_all(PROSE)
    assert len(prose) > 20
    assert [found[0] for text in prose if (found := RAW.search(text))] == []
    cells = [cell.metadata.get("jupyter", {}) for cell in cells_of(name)]
    folded = sum(each.get("source_hidden", False) for each in cells)
    expect(page.locator(".jp-CodeCell .jp-InputPlaceholder")).to_have_count(folded)


def test_a_chapter_runs_shows_listings_and_its_widget_moves(opened):
    page = opened(QUICK)
    assert page.evaluate(RUN_ALL)
    page.wait_for_function(ENDED, timeout=60_000)
    assert (
        page.locator("[data-mime-type='application/vnd.jupyter.error']").all_text_contents() == []
    )
    source, name = listing(topological_order, plain=True)
    shown = page.locator(".jp-OutputArea .jp-RenderedMarkdown").filter(has_text=name)
    assert shown.locator("pre").text_content().strip() == source
    assert shown.locator("pre span").count() > 20, "coloured"
    widget = page.locator(".jp-OutputArea .lc")
    status = widget.get_by_role("status")
    before = status.text_content()
    widget.get_by_role("button", name="Step", exact=True).click()
    expect(status).not_to_have_text(before)
