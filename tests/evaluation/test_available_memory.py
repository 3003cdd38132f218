"""The memory that is available, as Linux says it."""

from fairseq_memattn.evaluation import available_memory as module


def test_the_machine_and_the_container(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(module, "LIMIT", tmp_path / "memory.max")
    assert module.available_memory() is None
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   5 kB\n")
    assert module.available_memory() == 5 * 1024
    for limit, expected in (("max\n", 5 * 1024), ("100\n", 100)):
        (tmp_path / "memory.max").write_text(limit)
        assert module.available_memory() == expected
