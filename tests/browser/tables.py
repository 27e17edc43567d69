"""The data tables below a widget, as a reader opens and reads them."""

from playwright.sync_api import Page


def table(page: Page, caption: str) -> list[list[str]]:
    """Open the table of this caption; return its rows, header cells included.

    A widget may fill its table only once it is open, an event later: the first row is awaited.
    """
    page.locator("summary", has_text=caption).click()
    box = page.locator("details[open]", has_text=caption)
    box.locator("tbody tr").first.wait_for()
    return [row.locator("th, td").all_text_contents() for row in box.locator("tbody tr").all()]
