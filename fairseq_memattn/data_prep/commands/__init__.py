"""The preparations, which `memattn prepare NAME` runs.

A preparation is a module with a DESCRIPTION, `add_arguments(parser)` and `run(args)`, as the other
commands of memattn are, and an entry in PREPARATIONS.
"""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
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
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def make_parser(name: str) -> ArgumentParser:
    module = load(name)
    parser = ArgumentParser(
        prog=f"memattn prepare {name}",
        description=module.DESCRIPTION,
        formatter_class=RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


def prepare(name: str, arguments: Sequence[str]) -> None:
    """Run a preparation. Raises MemAttnError or OSError for wrong input, files and options."""
    load(name).run(make_parser(name).parse_args(arguments))
