"""Ctrl-C in a block that must not stop in the middle."""

import signal
import threading

import pytest

from sparta.base.interrupts import interrupt_held


@pytest.fixture(autouse=True)
def _default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_block_ends_before_the_interrupt():
    done = []
    with interrupt_held() as held:
        signal.raise_signal(signal.SIGINT)
        done.append("whole")
    assert (done, held) == (["whole"], [signal.SIGINT])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_stops_the_block():
    def block() -> None:
        with interrupt_held():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        block()


def test_without_an_interrupt_nothing_is_held():
    with interrupt_held() as held:
        pass
    assert held == []


def test_another_handler_stays():
    signals = []
    signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    with interrupt_held() as held:
        signal.raise_signal(signal.SIGINT)
    assert (signals, held) == ([signal.SIGINT], [])


def test_another_thread_runs_the_block():
    held_lists = []

    def work() -> None:
        with interrupt_held() as held:
            held_lists.append(held)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert held_lists == [[]]
