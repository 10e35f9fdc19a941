"""What only Linux has is not needed on the main path: macOS runs the same commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import sparta_process, sparta_processes

pytestmark = pytest.mark.jvm
WITHOUT_LINUX = """
import os, resource, select, signal, socket, sys

for module, names in {
    os: "sched_getaffinity sched_setaffinity posix_fadvise posix_fallocate memfd_create copy_file_range"
    " splice eventfd pidfd_open getrandom setns unshare O_TMPFILE O_DIRECT getxattr setxattr listxattr",
    resource: "prlimit RLIMIT_SIGPENDING RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO",
    select: "epoll",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "SO_PEERCRED AF_NETLINK AF_PACKET SO_BINDTODEVICE TCP_USER_TIMEOUT",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

without_limit, unlimited_here, limits_here = 2**63 - 1, resource.RLIM_INFINITY, resource.getrlimit
resource.RLIM_INFINITY = without_limit  # on macOS, it is a large number
resource.getrlimit = lambda kind: tuple(
    without_limit if limit == unlimited_here else limit for limit in limits_here(kind)
)
refused = []

def audit(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc/", "/sys/")):
        refused.append(arguments[0])
        raise FileNotFoundError(2, "not on this system", str(arguments[0]))

sys.addaudithook(audit)
"""


def test_the_test_takes_away_what_only_linux_has() -> None:
    code = (
        f"{WITHOUT_LINUX}\nassert not hasattr(os, 'sched_getaffinity')\ntry:\n    open('/proc/self/status')\n"
    )
    code += "except FileNotFoundError:\n    os._exit(7)\n"
    assert sparta_process("--version", before=code).returncode == 7


@pytest.mark.slow
def test_the_main_path(tmp_path: Path, tiny_model_folder: Path) -> None:
    corpus, index = tmp_path / "c.jsonl", tmp_path / "ix"
    corpus.write_text('{"id": "1", "text": "the moon of the earth"}\n{"id": "2", "text": "the sun"}\n')
    commands = [
        ["index", "--corpus", corpus, "--model", tiny_model_folder],
        ["search", "moon", "--channel", "impact", "--json"],
        ["search", "moon", "--channel", "bm25", "--json"],
        ["answer", "what is the moon of", "--threshold", "0"],
        ["doctor", "--quick"],
        ["delete", "2"],
    ]
    commands = [[*command, "--index", index] for command in commands]
    results = sparta_processes(*commands, before=WITHOUT_LINUX)
    assert [result.returncode for result in results] == [0] * 6, [result.stderr for result in results]
    _, impact, bm25, answer, doctor, _ = [result.stdout for result in results]
    for hits in (impact, bm25):
        assert json.loads(hits.splitlines()[0])["id"] == "1"
    assert answer
    assert "summary: works" in doctor
    assert "memory and threads suffice for Java" in doctor
