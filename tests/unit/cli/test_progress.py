"""How far a validation is."""

from __future__ import annotations

import threading

from airflow_provider_checkpoint.cli.progress import Lines, Watch


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_comes_now_and_then_and_not_for_every_object():
    clock, lines = Clock(), []
    watch = Watch(4, Lines(4, lines.append, every=10, clock=clock))
    for number in watch.each(range(4)):
        watch.start(total=20)
        for _ in range(20):
            clock.now += 0.25
            watch.advance(1, f"state-{number}.bin")
    assert lines == [
        "2.0 of 4 checkpoints proven (50%), at state-1.bin",
        "4.0 of 4 checkpoints proven (100%), at state-3.bin",
    ]


def test_a_short_run_says_nothing():
    lines = []
    watch = Watch(2, Lines(2, lines.append, clock=Clock()))
    for _ in watch.each(range(2)):
        watch.start(1)
        watch.advance(1, "x")
    assert lines == []


def test_progress_never_passes_the_end_of_a_checkpoint_and_may_come_from_many_threads():
    told = []
    watch = Watch(1, lambda done, _subject: told.append(done))
    for _ in watch.each(["only"]):
        watch.start(100)
        threads = [threading.Thread(target=lambda: [watch.advance(1, "x") for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) == 201


def test_checkpoints_without_work_count_too():
    told = []
    watch = Watch(3, lambda done, _subject: told.append(done))
    assert list(watch.each("abc")) == ["a", "b", "c"]
    assert told == [0, 1, 2]
