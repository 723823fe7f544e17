"""A real browser for the tests of pages."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websocket import WebSocket, create_connection

from tests.waiting import happens

# A script that lists text whose computed colors have less contrast than WCAG 2 AA requires (success criterion 1.4.3).
LOW_CONTRAST = r"""(() => {
  const parsed = color => [...color.match(/[\d.]+/g).map(Number), 1].slice(0, 4);
  const over = (top, below) => [0, 1, 2].map(k => top[k] * top[3] + below[k] * (1 - top[3])).concat(1);
  const ground = e =>
    e ? over(parsed(getComputedStyle(e).backgroundColor), ground(e.parentElement)) : [255, 255, 255, 1];
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const found = new Set(), texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !e.getClientRects().length || e.closest('svg')) continue;
    const style = getComputedStyle(e), paper = ground(e), size = parseFloat(style.fontSize);
    const [low, high] = [light(paper), light(over(parsed(style.color), paper))].sort((a, b) => a - b);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if ((high + 0.05) / (low + 0.05) < (large ? 3 : 4.5)) found.add(`${e.tagName} ${e.className}: ${style.color}`);
  }
  return [...found];
})()"""


class Browser:
    """Control a headless Chromium through the Chrome DevTools Protocol."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._count = 0
        self.events: list[dict[str, Any]] = []
        self._session: dict[str, str] = {}
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return the response of Chromium, which has a "result" or an "error"."""
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters, **self._session}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._count:
            self.events.append(answer)
        return dict(answer)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        answer = self._ask(method, **parameters)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def run(self, script: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true. The page may navigate in the meantime."""

        def holds() -> bool:
            answer = self._ask("Runtime.evaluate", expression=condition, returnByValue=True)
            return bool(answer.get("result", {}).get("result", {}).get("value"))

        assert happens(holds), condition

    def open(self, path: Path, width: int, scheme: str) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Page.navigate", url=path.as_uri())
        self.run("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key as a user does. code: the virtual key code. text: the text that the key types."""
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def click(self, selector: str) -> None:
        """Click the center of an element as a user does."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return {x: r.x + r.width / 2, y: r.y + r.height / 2} })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def pages(self) -> int:
        """Return the number of pages that the document takes in print."""
        printed = self.send("Page.printToPDF", preferCSSPageSize=True)["data"]
        return len(re.findall(rb"/Type\s*/Page\b(?!s)", base64.b64decode(printed)))

    def screenshot(self) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium: sudo apt install chromium")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0")
    profile = f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"
    with subprocess.Popen([chromium, *flags, profile], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = next((line.split()[-1] for line in process.stderr if line.startswith("DevTools listening")), None)
        if address is None:
            pytest.skip("Chromium does not start here")
        with contextlib.closing(create_connection(address, suppress_origin=True, timeout=60)) as socket:
            yield Browser(socket)
        process.terminate()
