"""Preprocessing with Moses' rules, as sacremoses implements them, and its inverse."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fairseq_memattn.data_prep.text.lines import LineFunction, progress, read_lines
from fairseq_memattn.files import write_all_or_nothing


def version() -> str:
    """The version of sacremoses; the text depends on it."""
    import sacremoses

    return str(sacremoses.__version__)


def tokeniser(language: str, printable_only: bool = False) -> LineFunction:
    """Moses' normalize-punctuation, then `tokenizer -a`, which escapes & | < > ' " [ ].

    printable_only: apply remove-non-printing-char in between, which replaces every character of
        Unicode's categories C by a space
    """
    import regex  # a requirement of sacremoses
    import sacremoses as library

    normaliser = library.MosesPunctNormalizer(lang=language)
    tokens = library.MosesTokenizer(lang=language)
    unprintable = regex.compile(r"\p{C}")

    def function(line: str) -> str:
        line = normaliser.normalize(line)
        if printable_only:
            line = unprintable.sub(" ", line)
        return str(tokens.tokenize(line, aggressive_dash_splits=True, return_str=True))

    return function


def learn_truecaser(source: Path, model: Path) -> Counter[str]:
    """Count the cases of words within sentences; returns the number of lines.

    source: tokenised text; model: where to write Moses' format
    """
    import sacremoses

    truecaser = sacremoses.MosesTruecaser()
    counts: Counter[str] = Counter()

    def sentences() -> Iterator[list[str]]:
        for line in progress(read_lines(source), str(model), source):
            counts["lines"] += 1
            yield line.split()

    truecaser.train(sentences())
    with TemporaryDirectory() as folder, write_all_or_nothing([model]) as [file]:
        truecaser.save_model(str(Path(folder, "model")))
        file.write(Path(folder, "model").read_text(encoding="utf-8"))
    return counts


def truecaser(model: Path) -> LineFunction:
    """Moses' truecase: the first word of a sentence is spelt as within sentences.

    model: what `learn_truecaser` wrote
    """
    import sacremoses

    cases = sacremoses.MosesTruecaser(str(model))
    # As in Moses, known spellings within a sentence remain; sacremoses' default differs.
    return lambda line: str(cases.truecase(line, return_str=True, use_known=True))


def detokeniser(language: str, capitalise: bool = False) -> LineFunction:
    """Plain text from tokens: subwords joined at "@@ ", words at "@-@", entities unescaped.

    capitalise: begin sentences with a capital, for text that was truecased
    """
    import sacremoses as library

    cases = library.MosesDetruecaser()
    tokens = library.MosesDetokenizer(lang=language)

    def function(line: str) -> str:
        line = f"{line} ".replace("@@ ", "").rstrip(" ")
        if capitalise:
            line = cases.detruecase(line, return_str=True)
        return str(tokens.detokenize(line.split()))

    return function
