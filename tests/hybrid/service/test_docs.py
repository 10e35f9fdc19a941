"""Every curl line of docs/service.md does what it says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess

import pytest

from tests.hybrid.service.services import ROOT

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl"),
]


@pytest.mark.slow
def test_the_curl_lines_work(running, index) -> None:
    text = (ROOT / "docs" / "service.md").read_text()
    commands = [line for block in re.findall(r"```bash\n(.*?)```", text, re.S) for line in block.splitlines()]
    assert len(commands) >= 13
    assert "proxy_set_header Host $host;" in text  # no name of this machine, which would open a service
    one = running(index, "--writable")
    for command in commands:
        if "/answer" in command:  # the reader that ships reads for seconds: test_answers has it
            continue
        words = shlex.split(command.replace("localhost:8080", f"localhost:{one.port}"))
        done = subprocess.run([*words, "-sS", "--fail-with-body"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        answer = json.loads(done.stdout)
        assert not answer.get("errors"), command
        assert answer.get("hits", True), command
    assert one.ask("GET", "/passages/n1").status == one.ask("GET", "/passages/n2").status == 404
