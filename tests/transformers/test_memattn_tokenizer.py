"""The tokenizer by itself: transformers' calls, files, added tokens."""

import copy
import pickle
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedConfig

from fairseq_memattn.data_prep.text.subword import Training, train
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers import register
from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer
from fairseq_memattn.transformers.vocabulary import SPECIAL, Vocabulary

TEXT = ["the old house is red", "a red house", "the dog sees the old dog", "is the dog old or red"]


class TokenizedConfig(PreTrainedConfig):
    model_type = "memattn_tokenized"


register(TokenizedConfig, {})


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "text").write_text("\n".join(TEXT * 3), encoding="utf-8")
    train([folder / "text"], folder / "spm", Training(22))
    pieces = [line.split("\t")[0] for line in (folder / "spm.vocab").read_text("utf-8").split("\n")]
    symbols = [piece for piece in pieces[3:] if piece and piece != "\u2581_eos"]
    source = [*SPECIAL, *symbols, "_eos", "<extra_id_0>", "<mask>"]
    target = [*SPECIAL, "one more", *reversed(symbols), "_eos"]
    for name, words in {"source": source, "target": target}.items():
        Vocabulary(words, list(range(len(words)))).save(folder / f"dict.{name}.txt")
    return folder


def made(files: Path, **options) -> MemAttnTokenizer:
    tokenizer = MemAttnTokenizer(
        str(files / "dict.source.txt"),
        str(files / "dict.target.txt"),
        src_pieces_file=str(files / "spm.model"),
        mask_token="<mask>",
        padding_side="left",
        **options,
    )
    tokenizer.add_tokens("<extra_id_0>")
    return tokenizer


def test_a_dictionary_is_written_as_it_was_read(files, tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("a 3\nb c 2\na 1 #fairseq:overwrite\n", encoding="utf-8")
    vocabulary = Vocabulary.load(path)
    assert vocabulary.symbols == [*SPECIAL, "a", "b c", "a"]
    assert (vocabulary.id("a"), vocabulary.id("x"), vocabulary.symbol(99)) == (6, 3, "<unk>")
    vocabulary.save(tmp_path / "again")
    assert (tmp_path / "again").read_text("utf-8") == path.read_text("utf-8")
    path.write_text("a 3\nb\n", encoding="utf-8")
    with pytest.raises(MemAttnError, match="dict.txt, line 2: must be a symbol, a space and a"):
        Vocabulary.load(path)


def test_it_is_loaded_by_auto_tokenizer(files, tmp_path):
    first = made(files, special_tokens_pattern="bos_eos", model_max_length=77)
    first.save_pretrained(tmp_path / "one")
    TokenizedConfig().save_pretrained(tmp_path / "one")
    again = AutoTokenizer.from_pretrained(tmp_path / "one")
    again.save_pretrained(tmp_path / "one")  # onto its own files
    again = AutoTokenizer.from_pretrained(tmp_path / "one")
    assert type(again) is MemAttnTokenizer
    texts = ["<mask> the red <extra_id_0> dog", "old"]
    expected = first(texts, text_target=texts, padding=True)
    for other in (again, pickle.loads(pickle.dumps(first)), copy.deepcopy(first)):
        assert other(texts, text_target=texts, padding=True) == expected
    assert again.model_max_length == 77
    assert again.get_vocab() == first.get_vocab() and len(again) == len(first)
    assert again.special_tokens_map == first.special_tokens_map


def test_source_and_target_differ(files):
    tokenizer = made(files)
    batch = tokenizer(TEXT[:2], text_target=TEXT[:2], padding=True, return_tensors="pt")
    assert batch.input_ids[1, 0] == batch.labels[1, -1] == tokenizer.pad_token_id
    rows = tokenizer(text_target=TEXT)["input_ids"]
    assert tokenizer.batch_decode(rows, skip_special_tokens=True) == TEXT
    assert rows != tokenizer(TEXT)["input_ids"]
    assert tokenizer.padding_side == "left"
    ids = [tokenizer.get_vocab()["_eos"], tokenizer.get_tgt_vocab()["_eos"]]
    assert ids[0] != ids[1]


def test_special_tokens_in_text_are_text(files):
    tokenizer = made(files)
    for text in ("</s>", "the </s> dog", "<pad>"):
        ids = tokenizer(text)["input_ids"]
        assert set(ids[:-1]).isdisjoint({0, 1, 2})
        assert ids[-1] == tokenizer.eos_token_id


def test_unknown_symbols_are_kept_in_text(files):
    tokenizer = made(files)
    ids = tokenizer(text_target="the Ω dog")["input_ids"]
    assert tokenizer.unk_token_id in ids
    assert tokenizer.decode([0, *ids, 1, 1], skip_special_tokens=True) == "the <unk> dog"
    assert tokenizer.decode(ids) == "the <unk> dog </s>"
    assert tokenizer.decode([9999, -100], skip_special_tokens=True) == "<unk><unk>"


def test_added_tokens_are_found_in_text(files):
    tokenizer = made(files)
    source = tokenizer.source.ids
    plain = tokenizer("the dog", add_special_tokens=False)["input_ids"]
    ids = tokenizer("<mask> the dog<extra_id_0>", add_special_tokens=False)["input_ids"]
    assert ids == [source["<mask>"], *plain, source["<extra_id_0>"]]
    tokenizer.add_tokens("<new>")
    assert tokenizer("<new>", add_special_tokens=False)["input_ids"] == [len(source)]
    assert tokenizer.decode([len(source)]) == "<new>"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pieces": "x"}, "`pieces` of a tokenizer must be one of sentencepiece, subword-nmt, "),
        ({"pieces": "gpt2"}, "the tokenizer lacks the file of its segmentation, gpt2"),
        ({"pieces": "subword-nmt"}, "spm.model, line 1: not a merge"),
    ],
)
def test_bad_options(options, said, files):
    with pytest.raises(MemAttnError, match=said):
        made(files, **options)


def test_a_folder_without_a_dictionary(files, tmp_path):
    made(files).save_pretrained(tmp_path)
    (tmp_path / "dict.source.txt").unlink()
    with pytest.raises(MemAttnError, match="the folder of the tokenizer has no dict.source.txt"):
        MemAttnTokenizer.from_pretrained(tmp_path)
