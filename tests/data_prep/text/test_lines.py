"""Processes that rewrite lines."""

import pytest

from fairseq_memattn.data_prep.text.lines import map_lines


def upper(line: str) -> str:
    return line.upper()


def make():
    return upper


@pytest.mark.full
def test_processes_end_with_their_caller():
    """However often lines are left over: a signal may come right before a process waits."""
    lines = [f"line {number}" for number in range(9000)]
    for _ in range(20):
        results = map_lines(make, lines, 2)
        assert next(results) == "LINE 0"
        results.close()
    assert list(map_lines(make, lines, 2)) == [line.upper() for line in lines]
