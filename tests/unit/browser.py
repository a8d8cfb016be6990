# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Chromium without a window, by its DevTools protocol over a pipe (chromedevtools.github.io/devtools-protocol).

It has no network: each request that is neither for a file nor for this machine fails.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Debian's name, and those that other systems have. A file in PATH may be a stub that tells to install a snap."""

LIMIT = 40
"""Seconds for an answer, on a busy machine."""

OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # Chromium refuses to run as root with its sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
)


def find_program() -> str | None:
    """A Chromium that starts; None without one."""
    for name in PROGRAMS:
        program = shutil.which(name)
        if program:
            found = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=LIMIT, check=False)
            if found.returncode == 0 and found.stdout.startswith(("Chromium", "Google Chrome")):
                return program
    return None


class Browser:
    """A browser with one page. complaints: what the console of the page has said, errors and violations included."""

    def __init__(self, program: str, profile: Path) -> None:
        self.program, self.profile = program, profile
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._rest = b""
        self._session = ""

    def __enter__(self) -> Browser:
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        script = f'exec "$@" 3<&{commands} 4>&{answers}'  # the browser reads 3 and writes 4
        options = [*OPTIONS, f"--user-data-dir={self.profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", self.program, *options],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        (target,) = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"][:1]
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = ""
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self._process.kill()
        self._process.wait(LIMIT)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        number, end = self._number, time.monotonic() + LIMIT
        while True:
            answer = self._read(end)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            self._note(answer)

    def _read(self, end: float) -> dict[str, Any]:
        """The next message of the browser."""
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise OSError("the browser has ended")
            self._rest += part
        message, _end, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        """Keep an event."""
        method, said = event.get("method", ""), event.get("params", {})
        self.events.append(event)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(said["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{said['type']}")
        elif method == "Log.entryAdded":
            self.complaints.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {said['message']}")
            self._number += 1
            answer = {"id": self._number, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            os.write(self._to, json.dumps({**answer, "sessionId": self._session}).encode() + b"\0")

    def look(
        self, width: int = 1280, height: int = 800, dark: bool = False, scripts: bool = True, touch: bool = False
    ) -> None:
        """How the next pages are looked at."""
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if touch else 1, "mobile": touch}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def zone(self, name: str) -> None:
        """The reader's time zone."""
        self.call("Emulation.setTimezoneOverride", timezoneId=name)

    def open(self, page: Path | str) -> None:
        """Open a file or an address, and wait until it has been loaded."""
        self.complaints.clear()
        self.requests.clear()
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        end = time.monotonic() + LIMIT
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self._note(self._read(end))

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript, as the page's own policy does not judge it."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        code = {"Tab": 9, "End": 35, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, file: Path) -> None:
        """Write a picture of the window as PNG."""
        found = self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(found["data"]))
