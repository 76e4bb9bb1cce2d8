"""Take the screenshots of the README: pages of the demo home in Debian's chromium, headless.

Emoji need a font (fonts-noto-color-emoji); without one the picture has boxes.

Usage: pages.py DIRECTORY
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.mount.browser import start_browser  # noqa: E402

PICTURES = {"conversation": ("fix-login.html", "light"), "statistics": ("stats.html", "dark")}
SIZE = 1000, 720


def main(directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="grovefs-picture-") as name, start_browser() as browser:
        home, site = Path(name) / "home", Path(name) / "site"
        subprocess.run([sys.executable, ROOT / "scripts/demo.py", home], check=True, stdout=subprocess.DEVNULL)
        command = [sys.executable, "-m", "fusefs.cli", "export", "--home", str(home), "--format", "html", str(site)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        browser.resize(*SIZE)
        for picture, (page, scheme) in PICTURES.items():
            browser.use_scheme(scheme)
            browser.open(site / page)
            browser.run("document.querySelector('#m5 summary')?.click()")
            browser.driver.save_screenshot(str(directory / f"{picture}.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
