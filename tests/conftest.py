"""What holds for all tests."""

import gc
from contextlib import suppress

import pytest

# A command's module is imported before registration, which changes it: as in a process of its own.
# tests/attention runs without fairseq.
with suppress(ModuleNotFoundError):
    import in_process  # noqa: F401

# These files take longest. They come first, so that the workers of pytest-xdist end together.
LONGEST = [
    *("test_triton", "test_processes", "test_stream", "test_document_translation"),
    *("test_compress", "test_onnx", "test_document_translator", "test_without_fairseq"),
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="run all cases of all tests, and the Triton kernels at all lengths and sizes, and "
        "compile them in all",
    )
    parser.addoption(
        "--contract",
        action="store_true",
        help="run all of tests/contract: every architecture through every command, twenty kills, "
        "long inputs",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (config.getoption("--full") or config.getoption("--contract")):
        cases = {item for item in items if item.get_closest_marker("full")}
        config.hook.pytest_deselected(items=list(cases))
        items[:] = [item for item in items if item not in cases]

    def rank(item: pytest.Item) -> int:
        name = item.path.stem
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Thousands of tests and large modules are not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
