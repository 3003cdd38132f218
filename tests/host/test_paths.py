"""Files and folders that a command cannot use are told with the option that names them."""

import shlex

import pytest
from harness import PLUGGED, TRANSLATOR, attempt

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness.data_files import _missing_dictionary
from fairseq_memattn.host.correctness.paths import infer_language_pair


def assert_refused(done, words):
    *_, last = done.stderr.splitlines()
    assert done.returncode == 1
    assert words in last, last


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        ("generate", "nowhere", "the data folder nowhere does not exist"),
        ("generate", "file", "the data folder must be a folder, but file is a file"),
        (
            "generate",
            "empty",
            "empty must have files with a pair of languages in their",
        ),
        (
            "generate",
            "empty -s en -t ru",
            "the dictionary empty/dict.en.txt of the language",
        ),
        (
            "generate",
            "bin -s fr -t en",
            "does not exist; the dictionaries there are dict.en.txt",
        ),
        (
            "generate",
            "bin --gen-subset tset",
            "bin has test, train, valid; --gen-subset must name one of them",
        ),
        (
            "generate",
            "bin --path empty",
            "--path must be a checkpoint, but empty is a folder",
        ),
        (
            "generate",
            "bin --results-path file",
            "--results-path: file must be a folder, but is a file",
        ),
        ("generate", "bin --path no.pt", "--path: no.pt does not exist"),
        ("generate", "bin --path=no.pt:file", "--path: no.pt does not exist"),
        (
            "interactive",
            "bin --bpe sentencepiece --sentencepiece-model=no.model",
            "--sentencepiece-model: no.model does not exist",
        ),
        ("interactive", "bin --input no", "--input no does not exist"),
        (
            "interactive",
            "bin --input empty",
            "--input must be a file, but empty is a folder",
        ),
        ("train", "bin --valid-subset tset", "; --valid-subset must name one of them"),
        ("train", "bin --save-dir file", "--save-dir must be a folder, but file is a file"),
        (
            "train",
            "bin --log-file no/log",
            "--log-file: [Errno 2] No such file or directory",
        ),
    ],
)
def test_refused(command, flags, words, bilingual, translator, tmp_path):
    (tmp_path / "bin").symlink_to(bilingual)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    model = ["--path", translator.checkpoint, *PLUGGED]
    given = [*(TRANSLATOR if command == "train" else model), *shlex.split(flags)]
    assert_refused(attempt(f"fairseq-{command}", *given, cwd=tmp_path), words)


@pytest.mark.parametrize(
    ("files", "ending"),
    [
        (["bin/train.de-en.de.idx", "pieces/x"], "but has bin, pieces; {0}/bin has them"),
        (["dict.txt"], "but has dict.txt; {0} has dict.txt: its data is of one language"),
        (["bin/dict.txt"], "but has bin; {0}/bin has dict.txt: its data is of one language"),
        (["bin/x"], "but has bin; fairseq-preprocess -s SOURCE -t TARGET writes them"),
    ],
)
def test_a_folder_without_pairs_of_languages(files, ending, tmp_path):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(MemAttnError) as info:
        infer_language_pair(str(tmp_path))
    assert str(info.value).endswith(ending.format(tmp_path))


def test_a_dictionary_in_the_folder_of_the_data(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dict.txt").touch()
    told = f"the dictionary {tmp_path}/dict.txt does not exist; {tmp_path}/bin has it"
    assert _missing_dictionary(f"{tmp_path}/dict.txt") == told
