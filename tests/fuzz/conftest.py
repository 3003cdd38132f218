"""Options of the generator, its inputs, and the counts of the outcomes."""

import sys
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "checkpoints"), str(TESTS / "fairseq")]  # families, questions

from sandbox import preload  # noqa: E402
from small_inputs import Inputs  # noqa: E402

CASES, SEED = 12, 1


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz", "bad inputs (tests/fuzz)")
    group.addoption("--fuzz-cases", type=int, default=CASES, metavar="N", help="number of cases")
    group.addoption("--fuzz-seed", type=int, default=SEED, metavar="N", help="of all draws")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        count = metafunc.config.getoption("--fuzz-cases", CASES)
        metafunc.parametrize("number", range(count))


@pytest.fixture(scope="session")
def seed(request) -> int:
    return request.config.getoption("--fuzz-seed", SEED)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory) -> Inputs:
    preload()
    return Inputs(tmp_path_factory.mktemp("inputs"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many cases ended in which way."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    calls = [report for report in reports if getattr(report, "when", "") == "call"]
    ends = Counter(value for call in calls for key, value in call.user_properties if key == "end")
    if ends:
        counts = ", ".join(f"{count} {end}" for end, count in ends.most_common())
        terminalreporter.write_line(f"fuzz: {ends.total()} bad inputs: {counts}")
