"""The Chromium of this machine, for tests of pages and for pictures of them."""

import shutil

NAMES = (
    "chromium-headless-shell",  # without windows; opens a page in half of the time
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]


def path() -> str:
    """Return where it is.

    Raises:
        FileNotFoundError: if there is none.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise FileNotFoundError(
            "there is no Chromium; on Debian: sudo apt-get install --yes chromium-headless-shell"
        )
    return found
