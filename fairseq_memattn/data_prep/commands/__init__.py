"""The preparations, one a module with `parser(prog)` and `main(argv, prog)`.

`memattn prepare NAME` runs one.
"""

from importlib import import_module
from types import ModuleType

# Name of the module in this package (with `-` for `_`) -> its line in `memattn prepare --help`.
# Only the module of the preparation that runs is imported.
PREPARATIONS = {
    "iwslt14": "IWSLT14 Spanish-English (TED talks), with documents",
    "wmt14": "WMT14 English-German, sentence by sentence",
    "opensubtitles-en-ru": "OpenSubtitles English-Russian (Voita et al., 2019), with documents",
    "wikitext": "WikiText-103 and WikiText-2 for language modelling",
    "glue": "MNLI, QNLI, QQP and SST-2 from GLUE for sentence classification",
    "hotpotqa": "HotpotQA for question answering",
    "squad": "SQuAD 1.1 for question answering",
    "discourse": "a generated English-Russian corpus that requires context, with contrastive sets",
    "numeric-reasoning": "generated questions whose answers must be computed from a passage",
    "stories": "generated stories with questions that need up to three of their sentences",
    "sacrebleu": "a test set of sacreBLEU, with documents and all references",
    "own-corpus": "your own text, in one language or two",
    "mlm-text": "your own text for masked language models, in shards",
    "documents": "check and split text with document ids; convert it from and to other formats",
    "windows": "join sentences with the sentences before them; extract the last sentence",
    "subword": "train a SentencePiece model and segment text with it",
    "moses": "convert tokenised and segmented text back to plain text",
    "binarise": "make fairseq's binary data and keep the document ids",
}


def load(name: str) -> ModuleType:
    """The module of a preparation."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")
