"""IWSLT14: from an archive in WIT3's layout to fairseq's data, and a run that is killed."""

import multiprocessing
import os
import signal
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from official_archives import TALKS, iwslt14_files, lines, message, talk, tree, write_tar
from preparing import prepare

from fairseq_memattn.data_prep.commands import iwslt14

TRAIN = "es-en/train.tags.es-en"


def argv(archive: Path, output: Path, *options: str) -> list[str]:
    return f"--archive {archive} --output {output} --bpe-merges 40".split() + list(options)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tar(tmp_path_factory.mktemp("wit3") / "es-en.tgz", iwslt14_files())


@pytest.fixture(scope="module")
def corpus(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("iwslt14") / "out"
    assert prepare(iwslt14, argv(archive, output)) == 0
    return output


def test_text_is_what_was_released(corpus: Path) -> None:
    es, en = ([pair[side] for pair in TALKS] for side in (0, 1))
    assert lines(corpus / "text/train.es") == es[:2] + es[2:] * 3
    assert lines(corpus / "text/train.en") == en[:2] + en[2:] * 3
    assert lines(corpus / "text/train.docid") == ["7"] * 2 + ["3"] * 6
    assert lines(corpus / "text/valid.en") == [en[0], *en]  # and none without text
    assert lines(corpus / "text/valid.docid") == ["dev2010.12"] + ["dev2010.7"] * 4
    assert lines(corpus / "text/test.es") == [
        line for number in (1, 2, 3) for line in (es[number], "<Risas>", *es)
    ]
    assert lines(corpus / "text/test.docid") == [
        f"tst201{number}.{talk}" for number in (0, 1, 2) for talk in ("12", *["7"] * 5)
    ]


def test_every_talk_has_an_id_of_its_own(tmp_path: Path) -> None:
    """Wherever its number stands, without one, and where a talk comes twice."""
    talks = [talk("7", ["a", "b"]), talk("9", ["c"], "title talkid"), talk("", ["d"], "url title")]
    for path in (paths := [tmp_path / "es", tmp_path / "en"]):
        path.write_text("\n".join(sum([*talks, talks[0]], [])) + "\n")
    ids = [document for *_, document in iwslt14.train_rows(paths, Counter())]
    assert ids == ["7", "7", "9", "3", "7-2", "7-2"]


def test_tokens_truecase_and_pieces(corpus: Path) -> None:
    assert lines(corpus / "tokens/valid.en")[3] == (
        "A well @-@ known dog &amp; friend , isn &apos;t it ?"
    )
    # "the" and "dog" are lower case within sentences, so they are where one begins.
    assert lines(corpus / "truecased/valid.en")[0] == "Thank you . the dog sleeps ."
    for kind in ("train.es", "train.en", "valid.es", "test.en"):
        pieces = lines(corpus / "pieces" / kind)
        assert [line.replace("@@ ", "") for line in pieces] == lines(corpus / "truecased" / kind)
        assert any("@@" in line for line in pieces)


def test_binary_data_has_document_ids(corpus: Path) -> None:
    for split in ("train", "valid", "test"):
        sidecar = corpus / f"bin/{split}.es-en.docids"
        assert sidecar.read_bytes() == (corpus / f"text/{split}.docid").read_bytes()
    assert (corpus / "bin/dict.es.txt").read_bytes() == (corpus / "bin/dict.en.txt").read_bytes()


def killed(arguments: list[str], replacements: int) -> int:
    """The exit code of a run that is killed when so many files have taken their places."""

    def run() -> None:
        real, count = os.replace, 0

        def replace(source: Path, target: Path) -> None:
            nonlocal count
            count += 1
            if count > replacements:
                os.kill(os.getpid(), signal.SIGKILL)
            real(source, target)

        os.replace = replace
        sys.exit(prepare(iwslt14, arguments))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


@pytest.mark.full
def test_killed_runs_end_with_the_same_bytes(archive: Path, corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    codes = []
    while not codes or codes[-1] != 0:
        codes.append(killed(argv(archive, output), len(codes)))
        assert codes[-1] in (0, -signal.SIGKILL)
    assert len(codes) > 8
    assert tree(output) == tree(corpus)


@pytest.mark.parametrize("unpacked", [False, True])
def test_the_whole_release_holds_the_same(unpacked: bool, archive: Path, tmp_path: Path) -> None:
    files = {f"2014-01/texts/{x}/en/{x}-en.tgz": archive.read_bytes() for x in ("es", "de")}
    release = write_tar(tmp_path / "2014-01.tgz", files)
    if unpacked:
        with tarfile.open(release) as content:
            content.extractall(tmp_path / "release", filter="data")
        release = tmp_path / "release"
    pipeline = iwslt14.Pipeline(tmp_path / "out", iwslt14.LANGUAGES)
    inner = iwslt14.inner_archive(pipeline, release)
    assert inner != archive and inner.read_bytes() == archive.read_bytes()
    assert iwslt14.inner_archive(pipeline, archive) == archive


def changed(**files: str | bytes) -> dict[str, str | bytes]:
    """The archive's files with others in place of training files es or en."""
    return iwslt14_files() | {f"{TRAIN}.{side}": text for side, text in files.items()}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            changed(es="<title>T</title>\nUno.\nDos.\n", en="<title>T</title>\nOne.\n"),
            "train.tags.es-en.en: ends before line 3",
        ),
        (
            changed(es="<title>T</title>\nUno.\n", en="<title>T</title>\n<url>u</url>\n"),
            "train.tags.es-en.es, line 2: 'Uno.', but ",
        ),
        (
            changed(es="<title>T</title>\nUno.\n", en=b"<title>T</title>\nf\xfcr\n"),
            "train.tags.es-en.en, line 2: not UTF-8 at byte 2",
        ),
        (
            {name: text for name, text in iwslt14_files().items() if "tst2011" not in name},
            "has no file IWSLT14.TED.tst2011.es-en.es.xml",
        ),
    ],
)
def test_archives_that_are_not_as_they_should_be(files, expected, tmp_path, capsys):
    broken = write_tar(tmp_path / "es-en.tgz", files)
    assert prepare(iwslt14, argv(broken, tmp_path / "out")) == 1
    assert expected in message(capsys.readouterr().err)
