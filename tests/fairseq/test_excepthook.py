"""A fairseq command that fails ends in one sentence; MEMATTN_TRACEBACK=1 shows the traceback."""

import shlex
import sys

import pytest
from harness import PLUGGED, attempt

from fairseq_memattn.excepthook import install_excepthook, sentence


def assert_sentence(done, *words):
    *_, last = done.stderr.splitlines()
    assert done.returncode == 1
    assert all(word in last for word in words)
    assert "Traceback" not in done.stdout + done.stderr


def raised(function):
    with pytest.raises(BaseException) as info:
        function()
    return info.value


def test_an_unforeseen_exception_is_named(translator, monkeypatch):
    def fail(*args, **kwargs):
        return {}["no such key"]

    monkeypatch.setattr("fairseq.scoring.build_scorer", fail)
    flags = ["--path", translator.checkpoint]
    hint = "fairseq-generate: error: KeyError: 'no such key'; set MEMATTN_TRACEBACK=1 to see"
    assert_sentence(attempt("fairseq-generate", translator.data, *PLUGGED, *flags), hint)

    monkeypatch.setenv("MEMATTN_TRACEBACK", "1")
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *flags)
    assert "Traceback (most recent call last)" in done.stderr
    assert 'return {}["no such key"]' in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--sampling-topk 5", "--sampling-topk requires --sampling"),
        ("--bpe sentencepiece", "--sentencepiece-model must be given"),
        ("--scoring bleu --diverse-beam-groups 3", "--beam to be divisible by the number of group"),
    ],
)
def test_what_fairseq_says_itself_is_told_without_the_name_of_an_exception(
    flags, words, translator
):
    given = ["--path", translator.checkpoint, *shlex.split(flags)]
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *given)
    assert_sentence(done, f"{words}")
    assert "MEMATTN_TRACEBACK" not in done.stderr


def test_an_option_that_training_needs(bilingual, tmp_path):
    flags = [*PLUGGED, "--arch", "abc_mlp_transformer", "--save-dir", tmp_path]
    done = attempt("fairseq-train", bilingual, *flags, "--optimizer", "adam")
    words = "fairseq-train: error: Must specify batch size either with --max-tokens or --batch-size"
    assert_sentence(done, words)


def test_a_user_dir_that_is_no_package(translator, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    flags = ["--user-dir", tmp_path / "file", "--path", translator.checkpoint]
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *flags)
    assert_sentence(done, "error: --user-dir cannot be imported: No module named 'file'")
    flags[1] = tmp_path / "missing"
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *flags)
    assert_sentence(done, f"error: --user-dir {tmp_path}/missing does not exist")


def test_a_name_that_is_not_utf8(translator, tmp_path):
    """It is printed with escapes, without an error of Python's logging."""
    flags = ["--path", b"\xff.pt".decode("utf-8", "surrogateescape")]
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *flags, fresh=True)
    assert "Logging error" not in done.stderr and "loading model(s) from \\udcff.pt" in done.stdout
    assert "Model file not found: " in done.stderr.splitlines()[-1]


def test_an_operation_that_fails_is_no_check():
    """A ValueError of Python's own says nothing to a user, even where fairseq's source fails."""
    from fairseq.utils import eval_str_list
    from fairseq_cli.preprocess import main

    unpacked = raised(lambda: main(None))
    assert "MEMATTN_TRACEBACK=1" in sentence(unpacked)
    assert "not a literal" in sentence(raised(lambda: eval_str_list("x")))


def test_an_error_in_a_worker_has_no_traceback_in_its_text():
    from torch._utils import ExceptionWrapper

    from fairseq_memattn.errors import MemAttnError

    def work():
        raise MemAttnError("line 3 must have two columns, but has 1")

    failed = raised(work)
    wrapper = ExceptionWrapper((type(failed), failed, failed.__traceback__), "in worker 0")
    assert sentence(raised(wrapper.reraise)) == "line 3 must have two columns, but has 1"


def test_an_interrupted_command(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["/bin/fairseq-train"])
    monkeypatch.setattr("sys.excepthook", None)
    install_excepthook()

    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "fairseq-train: interrupted\n"


def test_other_programs_keep_their_tracebacks(monkeypatch):

    monkeypatch.setattr("sys.argv", ["/home/me/analysis.py"])
    monkeypatch.setattr("sys.excepthook", sys.__excepthook__)
    install_excepthook()
    assert sys.excepthook is sys.__excepthook__
