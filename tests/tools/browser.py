"""A headless Chromium, steered over its pipe of the DevTools protocol."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from multiberts.tests.tools.patience import PATIENCE

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Browser:
    """One tab; what it asked the network for and what it complained about is kept."""

    def __init__(self, profile: Path):
        # The protocol wants descriptors 3 and 4: it reads commands there and answers, NUL between them.
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        shell = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", shell, str(CHROMIUM), *OPTIONS, f"--user-data-dir={profile}"],
            pass_fds=(commands, answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._session: str | None = None
        self._buffer = b""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result; events that come before it are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "navigated or closed" in answer.get("error", {}).get("message", ""):
                    # The page read itself again meanwhile: the same of the new page.
                    return self.call(method, **parameters)
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._answers, 1 << 16)
            assert data, "Chromium has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        method = message.get("method")
        if method == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        elif method == "Log.entryAdded" and message["params"]["entry"]["level"] in (
            "error",
            "warning",
        ):
            self.complaints.append(message["params"]["entry"]["text"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(message["params"]))
        return message

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Shows a file at a width in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.requests.clear()
        self.complaints.clear()
        address = page.resolve().as_uri()
        self.call("Page.navigate", url=address)
        end = time.monotonic() + PATIENCE
        while (state := self.run("document.readyState + location.href")) != f"complete{address}":
            assert time.monotonic() < end, "the page did not load"
            if state.startswith("complete"):  # a page that reads itself again did so just then
                self.call("Page.navigate", url=address)
            time.sleep(0.02)

    def wait_for(self, script: str) -> None:
        """Waits until an expression in the page is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.02)

    def picture(self, path: Path) -> None:
        """Writes what the tab shows as a PNG file."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def violations(self) -> list[str]:
        """What axe-core finds that keeps people from reading the page."""
        place = importlib.util.find_spec("axe_core_python")
        assert place is not None and place.origin is not None
        self.run(Path(place.origin).with_name("axe.min.js").read_text() + "; 0")
        self.run("axe.run().then(found => { window.found = found.violations; }); 0")
        self.wait_for("window.found !== undefined")
        return self.run("found.map(f => f.id + ': ' + f.nodes.map(n => n.html).slice(0, 3))")

    def close(self) -> None:
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)


# Of every text its contrast with the ground it stands on, as WCAG defines it.
CONTRASTS = """
(() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const luminance = color => {
    const [r, g, b] = numbers(color).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if ((numbers(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("main *")]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.checkVisibility())
    .map(e => {
      const [a, b] = [luminance(getComputedStyle(e).color), luminance(ground(e))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    });
})()
"""
