"""A page in headless Chromium, driven by ChromeDriver's HTTP interface."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MISSING = shutil.which("chromium") is None or shutil.which("chromedriver") is None


class Tab:
    """One tab: opens a page in a size and a colour scheme, evaluates scripts in it."""

    def __init__(self, address: str) -> None:
        self._address = address
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments}}
        made = self._post("", {"capabilities": {"alwaysMatch": wanted}})
        self._address = f"{address}/{made['sessionId']}"

    def _post(self, path: str, body: dict[str, Any], method: str = "POST") -> Any:
        request = urllib.request.Request(
            f"{self._address}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def _tool(self, command: str, **arguments: Any) -> Any:
        return self._post("/goog/cdp/execute", {"cmd": command, "params": arguments})

    def open(self, page: Path, width: int = 1280, *, dark: bool = False) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._tool("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tool("Emulation.setEmulatedMedia", features=[scheme])
        self._post("/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        return self._post("/execute/sync", {"script": script, "args": []})

    def picture(self) -> bytes:
        return base64.b64decode(self._tool("Page.captureScreenshot")["data"])

    def tree(self) -> set[tuple[str, str]]:
        """The accessibility tree: roles and names."""
        nodes = self._tool("Accessibility.getFullAXTree")["nodes"]
        return {
            (n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")
        }

    def close(self) -> None:
        self._post("", {}, "DELETE")


@contextmanager
def tab() -> Iterator[Tab]:
    """Start a browser and close it."""
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert driver.stdout is not None
        port = ""
        for line in driver.stdout:
            if b"successfully on port" in line:
                port = line.decode().rpartition("port ")[2].strip(" .\n")
                break
        found = Tab(f"http://127.0.0.1:{port}/session")
        try:
            yield found
        finally:
            found.close()
    finally:
        driver.terminate()
        driver.wait()
        if driver.stdout is not None:
            driver.stdout.close()
