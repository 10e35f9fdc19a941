"""Java starts within the limits of the process, or an error names the limit. It never ends the process."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparta.base.errors import JavaError
from sparta.lucene import limits

ROOT = Path(__file__).parents[3]
MB = 2**20
START_JAVA = """
import json, resource, sys
for name, size in json.loads(sys.argv[1]).items():
    resource.setrlimit(getattr(resource, name), (size, size))
from sparta.base.errors import JavaError
from sparta.lucene.jvm import start_jvm
try:
    start_jvm()
    import jnius
    print("heap", jnius.autoclass("java.lang.Runtime").getRuntime().maxMemory())
except JavaError as error:
    print("refused", error.message)
"""


def start_within(**sizes: int) -> tuple[str, str]:
    """Start Java within limits (bytes); return "heap" and its size, or "refused" and the message."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARTA_JVM_ARCHIVE": "off"}
    environment.pop("SPARTA_JVM_HEAP", None)
    done = subprocess.run(
        [sys.executable, "-c", START_JAVA, json.dumps(sizes)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict, _, rest = done.stdout.strip().partition(" ")
    return verdict, rest


@pytest.mark.jvm
@pytest.mark.parametrize("megabytes", [2000, 3000, 4000])
def test_java_fits_into_a_small_address_space(megabytes):
    verdict, heap = start_within(RLIMIT_AS=megabytes * MB)
    assert verdict == "heap"
    assert 64 * MB <= int(heap) < megabytes * MB


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("limit", "size", "name"),
    [
        ("RLIMIT_AS", 1000 * MB, "address space"),
        ("RLIMIT_DATA", 200 * MB, "data size"),
        ("RLIMIT_STACK", 128 * 1024, "stack size"),
    ],
)
def test_a_limit_that_is_too_low_is_named(limit, size, name):
    verdict, message = start_within(**{limit: size})
    assert verdict == "refused"
    assert name in message


@contextmanager
def soft_limit(which: int, size: int) -> Iterator[None]:
    """Limit this process for a block."""
    old = resource.getrlimit(which)
    resource.setrlimit(which, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, old)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_a_heap_that_does_not_fit_is_refused():
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with soft_limit(resource.RLIMIT_AS, in_use + 4000 * MB):
        assert limits.options_within_limits(2000 * MB)
        with pytest.raises(JavaError, match=r"address space [\s\S]* or lower \$SPARTA_JVM_HEAP"):
            limits.options_within_limits(3000 * MB)


def test_a_stack_that_is_too_small_comes_with_its_own_remedy(monkeypatch):
    infinite = resource.RLIM_INFINITY
    sizes = {resource.RLIMIT_STACK: 128 * 1024}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (sizes.get(which, infinite), infinite))
    with pytest.raises(JavaError) as caught:
        limits.options_within_limits(64 * MB)
    assert (
        caught.value.message == "the limit on the stack size is too low for Java: 128 KB; Java needs 512 KB"
    )
    assert str(caught.value.remedy) == "raise the limit (ulimit -s unlimited)"


def test_without_limits_java_decides():
    if all(resource.getrlimit(which)[0] < 0 for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA)):
        assert limits.options_within_limits(None) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the threads of a user")
def test_a_user_with_too_few_threads_is_told_so():
    """The superuser, for whom the limit does not hold, becomes another user for this test."""
    user, effective, saved = os.getresuid()
    os.setresuid(user or 1000, -1, -1)
    try:
        with (
            soft_limit(resource.RLIMIT_NPROC, 20),
            pytest.raises(JavaError, match=r"threads \(ulimit -u\) is too low for Java: 20, "),
        ):
            limits.options_within_limits(None)
    finally:
        os.setresuid(user, effective, saved)


@pytest.mark.jvm
def test_the_main_thread_keeps_its_stack_for_python():
    """Deeply nested JSON raises an error. Python 3.13 crashed, because Java guarded most of the stack."""
    code = (
        "import json; from sparta.lucene.jvm import start_jvm; start_jvm()\n"
        "try: json.loads('[' * 200_000)\n"
        "except RecursionError: print('too deep')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "too deep\n"), ended.stderr
