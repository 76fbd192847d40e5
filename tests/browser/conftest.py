"""A headless Chromium and the servers it visits, on this machine only."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from selenium import webdriver


@pytest.fixture
def browser(tmp_path):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        if os.environ.get("CI"):
            pytest.fail("no chromium and chromedriver here; .ci/run installs them")
        pytest.skip("no chromium and chromedriver on this machine: on Debian, apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",  # CI runs as root
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1400,1000",
        f"--user-data-dir={tmp_path / 'chromium'}",
    ):
        options.add_argument(argument)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as chrome:
        yield chrome


@pytest.fixture
def jupyter():
    """Starts a Jupyter server in a folder; gives its address with the token."""
    return serving


@contextlib.contextmanager
def serving(*arguments, cwd):
    command = [sys.executable, "-m", "jupyter", *arguments, "--no-browser", "--allow-root", "--port=0"]
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}  # the kernel chooses, as for a learner
    with tempfile.NamedTemporaryFile() as log, tempfile.TemporaryDirectory() as home:  # a pipe that nobody reads would fill
        environment["JUPYTERLAB_WORKSPACES_DIR"] = home  # the user's own would be opened again, with the notebooks of last time
        server = subprocess.Popen(command, cwd=cwd, env=environment, stdout=log, stderr=log)
        try:
            deadline, found = time.monotonic() + 300, None  # far more than it takes: a busy machine is no reason to fail
            while not found:
                said = Path(log.name).read_text()
                found = re.search(r"http://(?:127\.0\.0\.1|localhost):\d+/\S*token=\w+(?=\s)", said)
                assert server.poll() is None and time.monotonic() < deadline, f"Jupyter did not start:\n{said}"
                time.sleep(0.2)
            yield found[0]
        finally:
            server.terminate()
            server.wait(30)
