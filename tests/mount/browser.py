"""Drives Debian's chromium, headless, through selenium. Without chromium the tests fail and say so."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

DEADLINE_S = 60.0
AXE = Path(__file__).parent.parent.parent / ".venv/axe/node_modules/axe-core/axe.min.js"
_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")


class Browser:
    """One tab."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, anchor: str = "") -> None:
        """Open a file, with its script finished."""
        self.leave()
        self.driver.get(path.as_uri() + anchor)
        if self.count("script"):
            self.wait("return document.documentElement.dataset.ready === 'yes'")

    def leave(self) -> None:
        """Open an empty page: the browser keeps no file open."""
        self.driver.get("about:blank")

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> Any:
        """Run a script until it returns something true."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.02)
        return found

    def text(self, selector: str) -> str:
        """The text of an element; of one far from the window, which is not laid out, without line breaks."""
        script = "const found = document.querySelector(arguments[0]); return found.innerText || found.textContent"
        return str(self.run(script, selector))

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def press(self, keys: str) -> None:
        """Type as a person would: where the focus is."""
        self.driver.switch_to.active_element.send_keys(keys)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def use_scheme(self, scheme: str) -> None:
        """The colour scheme that the system prefers: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def use_paper(self, *, used: bool) -> None:
        """Show pages as they are printed where the system prefers dark."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if used else "light"}]
        media = {"media": "print" if used else "", "features": features}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def allow_scripts(self, *, allowed: bool) -> None:
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    def problems(self) -> list[str]:
        """Errors on the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """The addresses requested since the last call."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [url for url in found if url != "about:blank"]

    def accessibility(self) -> list[str]:
        """Serious and critical findings of axe-core."""
        self.run(AXE.read_text())
        report = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then(done, (error) => done({ error: String(error) }))"
        )
        assert "error" not in report, report["error"]
        assert len(report["passes"]) > 10  # axe has looked at the page
        return [
            f"{found['id']}: {found['help']}: {[node['target'] for node in found['nodes'][:3]]}"
            for found in report["violations"]
            if found["impact"] in ("serious", "critical")
        ]


@contextmanager
def start_browser() -> Iterator[Browser]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium, "chromium is missing; run scripts/setup"
    assert driver, "chromedriver is missing; run scripts/setup"
    options = Options()
    options.binary_location = chromium
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running: Any = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(running)
    finally:
        running.quit()
