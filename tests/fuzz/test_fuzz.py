"""Bad inputs of all commands: each ends in one sentence, or in all of its output.

`pytest tests/fuzz --fuzz-cases 1000 --fuzz-seed 7` draws others, and more of them.
"""

import shutil

import pytest
from bad_inputs import draw_case
from known_faults import reason_for
from sandbox import run
from verdicts import end_of, fault_of


def test_bad_input(number, seed, inputs, tmp_path, record_property):
    case = draw_case(seed, number, inputs, tmp_path / "tried")
    done = run(case.line.command, case.line.argv, case.folder, case.line.stdin)
    fault = fault_of(case, done)
    known = reason_for(case.line.name, fault, done.out + done.err) if fault else ""
    shutil.rmtree(case.folder)
    if fault and not known:
        record_property("end", "at fault")
        again = draw_case(seed, number, inputs, tmp_path / "case")
        (tmp_path / "stdin").write_bytes(again.line.stdin)
        pytest.fail(report(again, fault, done), pytrace=False)
    if known:
        record_property("end", "known")
        pytest.xfail(known)
    record_property("end", end_of(done))


def report(case, fault, done):
    printed = [f"    {line[:300]}" for line in (done.err or done.out).splitlines()[-12:]]
    told = [fault, f"  {'; '.join(case.mistakes)}", f"  {case.shell()}", *printed]
    return encodable("\n".join(told))


def encodable(text):
    """pytest-xdist sends reports as UTF-8, which has no half surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
