"""What counts as a fault, on programs that have one."""

import pytest
import sandbox
from bad_inputs import Case
from command_lines import CommandLine
from verdicts import end_of, fault_of

SAID = "import sys; print('program: error: --x must be 1, but is 2', file=sys.stderr); sys.exit(1)"
PROGRAMS = {
    "raise ValueError('x')": "traceback",
    "import time; time.sleep(60)": "did not end",
    "import os; os.kill(os.getpid(), 9)": "killed by signal 9",
    "import sys; sys.exit(1)": "no sentence",
    "import sys; sys.exit('something')": "no sentence",
    SAID: "",
    f"import sys; print('1\\n2\\n3', file=sys.stderr); {SAID}": "",
    "import sys; sys.exit('program: error: x\\n1\\n2\\n3')": "a long message",
    f"open('out.pt', 'w').close(); {SAID}": "left behind: out.pt",
    f"open('given', 'w').write('x'); {SAID}": "left behind: given",
    "open('out.json', 'w').write('[NaN]')": "out.json: has the number NaN",
    "open('out.json', 'w').write('[1')": "out.json: Expecting ',' delimiter: line 1 column 3",
    "print(1)": "",
}


@pytest.mark.parametrize(("program", "fault"), PROGRAMS.items(), ids=range(len(PROGRAMS)))
def test_faults(program, fault, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    script, folder = tmp_path / "script.py", tmp_path / "folder"
    script.write_text(program)
    folder.mkdir()
    (folder / "given").touch()
    done = sandbox.run(str(script), [], folder)
    found = fault_of(Case(CommandLine(str(script), []), folder, ["a mistake"]), done)
    assert found.startswith(fault) and bool(found) == bool(fault)


def test_too_much_memory(tmp_path):
    (tmp_path / "script.py").write_text("x = bytes(10**10)")
    assert "MemoryError" in sandbox.run(str(tmp_path / "script.py"), [], tmp_path).err


def generated(scores, tmp_path):
    printed = "\n".join(f"H-{n}\t{score}\tw1" for n, score in enumerate(scores))
    case = Case(CommandLine("fairseq-generate", [], name="generate"), tmp_path)
    return fault_of(case, sandbox.Done(0, printed, "", []))


def test_hypotheses_are_counted(tmp_path):
    assert generated([-1.0] * 7, tmp_path) == ""
    assert generated([-1.0] * 6, tmp_path) == "6 hypotheses of 7 sentences"
    assert generated(["nan"] * 7, tmp_path) == "a score of nan"


def test_the_handler():
    err = "memattn plot: error: KeyError: 'x'; set MEMATTN_TRACEBACK=1 to see the traceback\n"
    assert end_of(sandbox.Done(1, "", err, [])) == "in a sentence of the handler"
    assert end_of(sandbox.Done(1, "", "memattn plot: error: x\n", [])) == "in a sentence"
    assert end_of(sandbox.Done(0, "", "", [])) == "in success"
