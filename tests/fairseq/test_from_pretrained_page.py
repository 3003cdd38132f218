"""The Python of docs/fairseq.md, which loads models, runs in a process of its own."""

import shlex
import shutil

import sentencepiece
from harness import COMMON, ROOT, attempt, train

GMAT = (
    "--task masked_lm --criterion masked_lm --arch gmat_bert_tiny --encoder-layers 1 "
    "--encoder-embed-dim 16 --encoder-attention-heads 2 --gmat-memory 4 --gmat-chunk 8 "
    "--tokens-per-sample 32 --max-positions 64 --max-update 1"
)


def test_from_pretrained(document_model, language_model, corpus, tmp_path):
    bert = train(language_model.data, tmp_path / "bert", *COMMON, *shlex.split(GMAT))
    for folder, trained in (
        ("checkpoints", document_model),
        ("lm", language_model),
        ("bert", bert),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        shutil.copy(trained.checkpoint, tmp_path / folder / "checkpoint_best.pt")
    for folder, data in (("corpus", document_model.data), ("text", language_model.data)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "bin").symlink_to(data)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus / "train.en"),
        model_prefix=str(tmp_path / "corpus/spm"),
        vocab_size=60,
        minloglevel=2,
    )
    page = (ROOT / "docs/fairseq.md").read_text(encoding="utf-8")
    _, _, code = page.partition("```python\n")
    script = tmp_path / "script.py"
    script.write_text(code.partition("```")[0], encoding="utf-8")
    done = attempt(str(script), cwd=tmp_path, fresh=True)
    assert done.returncode == 0, done.stderr
    translations, sample, *scores, filled = done.stdout.splitlines()
    assert len(eval(translations)) == 2
    assert sample
    assert scores[0].startswith("tensor([")
    assert eval(filled)[0][0].endswith("for two.")
