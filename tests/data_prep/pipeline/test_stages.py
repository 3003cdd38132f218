"""Stages, lines, Moses' and BPE's steps, each by itself."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from full import full
from official_archives import lines, message, nist_set
from preparing import prepare
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from fairseq_memattn.data_prep.formats.sgml_segments import read_segment_rows, read_segments
from fairseq_memattn.data_prep.pipeline.stages import Stages
from fairseq_memattn.data_prep.text import bpe, moses
from fairseq_memattn.data_prep.text.lines import (
    LineFunction,
    map_lines,
    raw_lines,
    raw_pairs,
)
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing

TEXT = [
    "The US is big . The dog sleeps in the US .",
    "He sees the dog and us .",
    "&quot; The house is old , &quot; says IBM .",
    "Dog and IBM .",
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    return path


def run_stage(folder: Path, source: Path, option: int = 1, force: bool = False) -> int:
    """Run a stage that copies a file; returns how often its work was done."""
    done = []

    def work() -> Counter[str]:
        done.append(1)
        with write_all_or_nothing([folder / "copy"]) as [file]:
            file.write(source.read_text())
        return Counter(copies=1)

    counts = Stages(folder, force).run("copy", [source], [folder / "copy"], work, option=option)
    assert counts == {"copies": 1}
    assert (folder / "copy").read_text() == source.read_text()
    return len(done)


def test_a_stage_is_done_once(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run_stage(folder, text) == 1
    assert run_stage(folder, text) == 0
    record = json.loads((folder / "stages/copy.json").read_text())
    assert list(record["inputs"]) == ["text.en"] and list(record["outputs"]) == ["copy"]
    moved = folder.rename(tmp_path / "moved")
    assert run_stage(moved, text) == 0
    (moved / "copy").unlink()
    assert run_stage(moved, text) == 1


@pytest.mark.parametrize("label", ["../other/thesis", "{0}/other/thesis"])
def test_a_record_removes_nothing_outside_of_the_folder(label, text, tmp_path):
    other = tmp_path / "other/thesis"
    other.parent.mkdir()
    other.write_text("kept")
    folder = tmp_path / "out"
    run_stage(folder, text)
    record = folder / "stages/copy.json"
    record.write_text(json.dumps({"outputs": {label.format(tmp_path): "x"}}))
    for work in (lambda: Stages(folder).forget("copy"), lambda: run_stage(folder, text, 2, True)):
        with pytest.raises(MemAttnError, match="copy.json: names .*, which is not in"):
            work()
    for wrong in ([5], {"a\0b": "x"}):
        record.write_text(json.dumps({"outputs": wrong}))
        with pytest.raises(MemAttnError, match="copy.json: names .*, which is not in"):
            Stages(folder).forget("copy")
    assert other.read_text() == "kept"


@pytest.mark.parametrize("changed", ["en", "de"])
def test_inputs_of_one_name(changed: str, tmp_path: Path) -> None:
    sources = [tmp_path / name / "train.sgm" for name in ("en", "de")]
    for source in sources:
        source.parent.mkdir()
        source.write_text(source.parent.name)
    stages = partial(Stages, tmp_path / "out")
    copy = tmp_path / "out/copy"

    def work() -> None:
        copy.write_text("".join(source.read_text() for source in sources))

    stages().run("copy", sources, [copy], work)
    (tmp_path / changed / "train.sgm").write_text("new")
    with pytest.raises(MemAttnError, match="was made from other input or options"):
        stages().run("copy", sources, [copy], work)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("input", "out was made from other input or options (see "),
        ("option", "out was made from other input or options (see "),
        ("output", "copy was changed since (see "),
    ],
)
def test_what_was_made_otherwise_is_replaced_on_demand(change, told, text, tmp_path):
    folder, option = tmp_path / "out", 1
    run_stage(folder, text)
    if change == "option":
        option = 2
    else:
        path = text if change == "input" else folder / "copy"
        path.write_text("other\n")
    with pytest.raises(
        MemAttnError, match="choose another --output, or replace .* --force"
    ) as info:
        run_stage(folder, text, option)
    assert told in str(info.value)
    assert run_stage(folder, text, option, force=True) == 1
    assert run_stage(folder, text, option) == 0


def test_a_stage_refuses_to_overwrite_its_input(text: Path, tmp_path: Path) -> None:
    with pytest.raises(MemAttnError, match="would overwrite an input; change --output"):
        Stages(tmp_path).run("copy", [text], [text], dict)


def test_files_of_others_are_left_alone(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "copy").write_text("precious\n")
    with pytest.raises(MemAttnError, match="copy exists, but no stage has made it .* --force"):
        run_stage(folder, text)
    assert (folder / "copy").read_text() == "precious\n"
    assert run_stage(folder, text, force=True) == 1


def test_outputs_that_are_no_longer_made_are_removed_on_demand(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    copies = [folder / name for name in ("one", "two")]

    def work() -> None:
        with write_all_or_nothing(copies) as files:
            for file in files:
                file.write("copied\n")

    Stages(folder).run("copy", [text], copies, work, option=1)
    copies.pop()
    Stages(folder, force=True).run("copy", [text], copies, work, option=2)
    assert (folder / "one").exists() and not (folder / "two").exists()
    Stages(folder).forget("copy")
    assert not (folder / "one").exists() and not (folder / "stages/copy.json").exists()


def test_a_stage_killed_before_its_record_is_done_again(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def work() -> None:
        (folder / "copy").write_text("as killed\n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stages(folder).run("copy", [text], [folder / "copy"], work)
    assert run_stage(folder, text) == 1


def test_a_stage_that_fails_leaves_nothing(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "inner"

    def fail() -> None:
        with write_all_or_nothing([folder / "sub/copy"]):
            raise MemAttnError("wrong")

    with pytest.raises(MemAttnError, match="wrong"):
        Stages(folder).run("copy", [text], [folder / "sub/copy"], fail)
    assert [path.name for path in tmp_path.iterdir()] == [text.name]


def test_a_forced_stage_that_fails_can_be_run_again(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run_stage(folder, text)

    def fail() -> None:
        raise MemAttnError("wrong")

    stages = Stages(folder, force=True)
    with pytest.raises(MemAttnError, match="wrong"), stages.all_or_none():
        stages.run("copy", [text], [folder / "copy"], fail, option=2)
    assert run_stage(folder, text) == 1


def test_stages_that_are_undone_together(text: Path, tmp_path: Path) -> None:
    """What was done before stays, and so does a folder that was there."""
    folder = tmp_path / "out"
    copies = [folder / f"{number}/copy" for number in range(3)]

    def copy(target: Path) -> None:
        with write_all_or_nothing([target]) as [file]:
            file.write(text.read_text())

    stages = Stages(folder)
    stages.run("0", [text], copies[:1], partial(copy, copies[0]))
    with pytest.raises(MemAttnError, match="wrong"), stages.all_or_none():
        for number in (0, 1, 2):
            stages.run(str(number), [text], [copies[number]], partial(copy, copies[number]))
        raise MemAttnError("wrong")
    left = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    assert left == ["0", "0/copy", "stages", "stages/0.json"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(MemAttnError), Stages(tmp_path / "empty").all_or_none():
        raise MemAttnError("wrong")
    assert (tmp_path / "empty").is_dir()


def make_wrong() -> LineFunction:
    raise MemAttnError("wrong model")


def test_a_mistake_in_every_process_is_told_once(text: Path) -> None:
    """A pool would start its processes again and again."""
    with pytest.raises(MemAttnError, match="wrong model"):
        list(map_lines(make_wrong, TEXT, 2))


def test_leftovers_of_the_dead_are_removed(text: Path, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    folder = tmp_path / "out"
    folder.mkdir()
    dead, alive = (folder / f"copy.{process}.tmp" for process in (child.pid, os.getppid()))
    for path in (dead, alive):
        path.touch()
    run_stage(folder, text)
    assert not dead.exists() and alive.exists()
    dead.touch()
    assert run_stage(folder, text) == 0  # done before
    assert not dead.exists() and alive.exists()


def test_raw_lines_mend_what_they_count(tmp_path: Path) -> None:
    path = tmp_path / "raw.en"
    path.write_bytes("\ufeff one\r\ntwo\rhalves \0\nthree\x85\tx\n".encode())
    counts: Counter[str] = Counter()
    assert list(raw_lines(path, counts)) == ["one", "two halves", "three\x85\tx"]
    assert counts == {"control characters replaced by spaces": 2}


def test_unequal_sides_are_told_with_the_line(text: Path, tmp_path: Path) -> None:
    shorter = tmp_path / "text.de"
    shorter.write_text("Eins\nZwei\n")
    with pytest.raises(MemAttnError, match="text.de: ends before line 3, but .*text.en continues"):
        list(raw_pairs([text, shorter], Counter()))


def endless(line: str) -> str:
    print(os.getpid(), flush=True)
    while True:
        time.sleep(0.1)


def make_endless() -> LineFunction:
    return endless


def started(work: str, *folders: Path) -> subprocess.Popen[str]:
    """A process that runs a preparation. work: its code; folders: on its path before this one."""
    code = (
        # What runs in a shell's background ignores the first, and under nohup the second.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "import sys, test_stages\n"
        "from types import SimpleNamespace; from fairseq_memattn import cli\n"
        "from pathlib import Path; from fairseq_memattn.data_prep.text.lines import rewrite\n"
        f"command = SimpleNamespace(add_arguments=lambda _: None, run=lambda _: {work})\n"
        "cli._load = lambda name: command\n"
        "sys.exit(cli.main(['score']))"
    )
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, [*folders, here, *here.parents[:3]]))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit status and standard error of a process that has been told to end."""
    try:
        _, shown = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # it would run for ever
        raise
    return process.returncode, shown


STOPPED: dict[int, str] = {signal.SIGINT: "memattn score: interrupted\n"}


@pytest.mark.parametrize(
    ("send", "workers", "stop"),
    [full(os.kill, 1, signal.SIGHUP), (os.killpg, 2, signal.SIGINT), (os.kill, 2, signal.SIGTERM)],
)
def test_an_interrupt_ends_in_one_line(send, workers, stop, text, tmp_path):
    """Of this process alone or, as Ctrl-C does it, of those that it has started as well."""
    out = tmp_path / "out"
    process = started(
        f"rewrite(Path({str(text)!r}), Path({str(out)!r}), test_stages.make_endless, {workers})"
    )
    assert process.stdout is not None
    for _ in range(workers):
        assert process.stdout.readline()  # each of them is at work
    send(process.pid, stop)
    assert ended(process) == (128 + stop, STOPPED.get(stop, ""))
    assert [path.name for path in tmp_path.iterdir()] == [text.name]


def test_tokens_and_back() -> None:
    plain = 'It\'s a well-known "fact" [1]: A & B <b> cost 5,300.50 €, and/or more...'
    tokens = moses.tokeniser("en")(plain)
    assert tokens == (
        "It &apos;s a well @-@ known &quot; fact &quot; &#91; 1 &#93; : A &amp; B &lt; b &gt; "
        "cost 5,300.50 € , and / or more ..."
    )
    assert moses.tokeniser("en")("„co\u00adop“\u200b") == "&quot; co \u00ad op &quot; \u200b"
    assert moses.tokeniser("en", printable_only=True)("„co\u00adop“\u200b") == (
        "&quot; co op &quot;"
    )
    assert moses.detokeniser("en")("it &apos;s a well @-@ kn@@ own fa@@ ct .") == (
        "it's a well-known fact."
    )
    assert moses.detokeniser("en", True)("&quot; yes &quot; . it &apos;s a@@") == '"Yes". It\'s a'


def test_truecasing_follows_moses(text: Path, tmp_path: Path) -> None:
    model = tmp_path / "truecase.en"
    assert moses.learn_truecaser(text, model) == {"lines": 4}
    truecase = moses.truecaser(model)
    assert [truecase(line) for line in TEXT] == [
        # "us" is known, though "US" is more frequent; nobody has seen "He" within a sentence.
        "the US is big . the dog sleeps in the US .",
        "He sees the dog and us .",
        "&quot; the house is old , &quot; says IBM .",
        "dog and IBM .",
    ]


def subword_nmt(command: str) -> None:
    """What the library's own command does."""
    argv = [str(Path(sys.executable).with_name("subword-nmt")), *command.split()]
    subprocess.run(argv, check=True, capture_output=True)


@pytest.mark.parametrize("total", [False, True])
def test_bpe_is_that_of_subword_nmt(total: bool, text: Path, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    counts = bpe.learn([text, text], mine, 45, total)
    twice = tmp_path / "twice"
    twice.write_bytes(text.read_bytes() * 2)
    subword_nmt(f"learn-bpe -i {twice} -o {theirs} -s 45 {'-t' * total}")
    assert mine.read_bytes() == theirs.read_bytes()
    assert counts == {"merges": len(lines(mine)) - 1} and counts["merges"] > 5
    subword_nmt(f"apply-bpe -i {text} -o {tmp_path / 'applied'} -c {theirs}")
    segment = bpe.segmenter(mine)
    assert [segment(line) for line in TEXT] == lines(tmp_path / "applied")
    assert segment("  the\u2003dog\u2028 ") == segment("the dog")


def test_the_command_makes_plain_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "hyp", tmp_path / "plain"
    source.write_text("it &apos;s a do@@ g .\n\nand us ?\n", encoding="utf-8")
    argv = f"detokenise --lang en --capitalise --input {source} --output"
    assert prepare(moses, [*argv.split(), str(target)]) == 0
    assert lines(target) == ["It's a dog.", "", "And us?"]
    assert prepare(moses, [*argv.split(), str(source)]) == 1
    assert "would overwrite an input" in message(capsys.readouterr().err)


SEGMENT = '<doc docid="a"><seg id="1">one</seg>'


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("<seg id='1'>one</seg>\n", "", "src, line 1: a <seg> outside of a <doc"),
        (f"{SEGMENT}\n<seg id=2>two\n<seg>3</seg>", "", "src, line 2: a <seg> without </seg>"),
        (SEGMENT, SEGMENT.replace('"a"', '"b"'), "src, line 1: document a, but .*ref, line 1"),
        (SEGMENT, f"{SEGMENT}<seg>2</seg>", "src has 1, .*ref has 2"),
    ],
)
def test_test_sets_that_are_not_as_they_should_be(source, target, expected, tmp_path):
    paths = tmp_path / "src", tmp_path / "ref"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(MemAttnError, match=expected):
        list(read_segment_rows(paths, Counter()))


def test_segments(tmp_path: Path) -> None:
    path = tmp_path / "set.sgm"
    text = nist_set("srcset", {"x": ["One & two.", "2 &lt; 3 &quot;&#233;&quot;"], "y": ["3"]})
    path.write_text(text.replace("seg", "SEG").replace("two", "\n two"), encoding="utf-8")
    segments = list(read_segments(path, Counter()))
    assert [segment[:2] for segment in segments] == [
        (("One & two.",), "x"),
        (('2 < 3 "é"',), "x"),
        (("3",), "y"),
    ]
    assert [segment.line for segment in segments] == [6, 8, 12]


def test_segments_are_those_of_sacrebleu(tmp_path: Path) -> None:
    """sacreBLEU reads lines that begin with a <seg>, and leaves entities as they are."""
    path, texts, documents = tmp_path / "set.sgm", tmp_path / "texts", tmp_path / "documents"
    path.write_text(
        nist_set("refset", {"x": ["One,  two. ", "Three?"], "y": ["Vier – 4"]}), "utf-8"
    )
    library = FakeSGMLDataset("set")
    library._convert_format(str(path), str(texts))
    library._convert_meta(str(path), "docid", str(documents))
    found = list(read_segments(path, Counter()))
    assert (
        [*chain(*(segment.texts for segment in found))]
        == lines(texts)
        == ["One, two.", "Three?", "Vier – 4"]
    )
    assert [segment.document for segment in found] == lines(documents) == ["x", "x", "y"]
