"""fairseq's BLEU of a language that its tokenizer does not split."""

import pytest
from harness import PLUGGED, TRANSLATOR, preprocess, run, train

CHINESE = "我们 昨天 在 学校 看 了 一 本 新 书"
WARNING = "the tokenizer 13a does not split Chinese into words, so BLEU is of little meaning; give "


@pytest.fixture(scope="module")
def chinese_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chinese")
    for split in ("train", "valid", "test"):
        (folder / f"{split}.en").write_text("we read a new book\n" * 4)
        (folder / f"{split}.zh").write_text(f"{CHINESE}\n" * 4, encoding="utf-8")
    return preprocess(folder, "--source-lang", "en", "--target-lang", "zh", "--joined-dictionary")


def test_validation_and_scoring_name_another_tokenizer(chinese_data, tmp_path):
    flags = ["--eval-bleu", "--eval-bleu-args", '{"max_len_b": 5}', "--max-update", 2]
    trained = train(chinese_data, tmp_path, *TRANSLATOR, *flags, "--validate-interval-updates", 1)
    advice = f"--eval-bleu: {WARNING}`memattn score` the option --tokenize zh"
    assert trained.log.count(advice) == 1
    flags = ["--path", trained.checkpoint, "--required-batch-size-multiple", 1, "--max-len-b", 5]
    for tokenizer, advised in (("13a", True), ("zh", False)):
        scoring = ["--scoring", "sacrebleu", "--sacrebleu-tokenizer", tokenizer]
        done = run("fairseq-generate", chinese_data, *PLUGGED, *flags, *scoring)
        advice = f"--scoring sacrebleu: {WARNING}--sacrebleu-tokenizer zh"
        assert (advice in done.stdout + done.stderr) == advised


def test_validation_of_documents(chinese_data, tmp_path):
    for split in ("train", "valid", "test"):
        (chinese_data / f"{split}.en-zh.docids").write_text("0\n1\n2\n3\n")
    flags = ["--eval-bleu", "--eval-bleu-args", '{"max_len_b": 5}', "--max-update", 1]
    windows = ["--task", "document_translation", "--source-context", 0, "--target-context", 0]
    log = train(chinese_data, tmp_path, *TRANSLATOR, *windows, *flags).log
    assert log.count(f"--eval-bleu: {WARNING}") == 1
