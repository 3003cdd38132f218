"""Consistency and cohesion for `memattn score`."""

import argparse
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairseq_memattn.cli.scoring.options import SOURCE_TOKENIZE, alignment_files
from fairseq_memattn.evaluation.available_memory import check_memory
from fairseq_memattn.evaluation.consistency import (
    cohesion,
    consistency,
    least_consistent,
    names,
    repeated_words,
)
from fairseq_memattn.evaluation.document_lines import Document, ScoredTexts
from fairseq_memattn.evaluation.text_columns import read_column
from fairseq_memattn.evaluation.word_alignment import (
    ALIGNER,
    Links,
    align_words,
    alignment_memory,
    read_alignments,
)
from fairseq_memattn.evaluation.words import content_word, function_words, tokenise


def word_measures(args: argparse.Namespace, texts: ScoredTexts) -> dict[str, dict[str, Any]]:
    """The results of --consistency and --cohesion, for JSON, by the name of the option."""
    if not (args.consistency or args.cohesion):
        return {}
    references = tokenise(texts.references, args.tokenize)
    systems = {name: tokenise(lines, args.tokenize) for name, lines in texts.systems.items()}
    stop_words = None
    if args.stop_words:
        lines = read_column(args.stop_words, "word")
        stop_words = {unicodedata.normalize("NFC", line.strip()).casefold() for line in lines}
    words = Words(systems, references, texts.documents, stop_words)
    results = {}
    if args.consistency:
        results["consistency"] = _consistency(args, texts.sources, words)
    if args.cohesion:
        results["cohesion"] = _cohesion(args, words)
    return results


class Words(NamedTuple):
    """The tokens of the systems and of the reference. stop_words: None without --stop-words"""

    systems: Mapping[str, list[list[str]]]
    references: list[list[str]]
    documents: list[Document]
    stop_words: set[str] | None

    def function_words(self, option: str, sentences: Sequence[Sequence[str]]) -> set[str]:
        """Those of --stop-words, or those of the sentences."""
        found = self.stop_words
        if found is None:
            found = function_words(sentences, self.documents)
        if not any(content_word(token, found) for tokens in sentences for token in tokens):
            raise ValueError(
                f"{option} finds no content words in {len(self.documents)} documents; give "
                "a list of function words with --stop-words"
            )
        return found

    @property
    def signature(self) -> str:
        return "stop-words:" + ("df50" if self.stop_words is None else "file")


def _cohesion(args: argparse.Namespace, words: Words) -> dict[str, Any]:
    stop_words = words.function_words("--cohesion", words.references)

    def results(sentences: Sequence[Sequence[str]]) -> dict[str, Any]:
        return cohesion(sentences, words.documents, stop_words).as_dict()

    return {
        "signature": f"tok:{args.tokenize}|stem:first5|{words.signature}",
        "systems": {name: results(sentences) for name, sentences in words.systems.items()},
        "reference": results(words.references),
    }


def _consistency(args: argparse.Namespace, sources: list[str], words: Words) -> dict[str, Any]:
    tokenize = args.source_tokenize or SOURCE_TOKENIZE
    tokens = tokenise(sources, tokenize)
    stop_words = words.function_words("--consistency", tokens)
    files = alignment_files(args, words.systems)
    alignments = {
        name: read_alignments("--alignments", path, tokens, words.systems[name])
        for name, path in files.items()
    }
    reference_links = None
    if args.reference_alignments:
        reference_links = read_alignments(
            "--reference-alignments", args.reference_alignments, tokens, words.references
        )
    if not files:
        alignments, reference_links = _estimate_alignments(tokens, words)
    named = names(tokens)

    def results(targets: Sequence[Sequence[str]], links: Sequence[Links]) -> dict[str, Any]:
        repeated = repeated_words(tokens, targets, links, words.documents, stop_words)
        of_names = consistency([each for each in repeated if each.word in named])
        return {
            **consistency(repeated).as_dict(),
            "names": of_names.as_dict(),
            "least_consistent": least_consistent(repeated),
        }

    return {
        "signature": f"aligner:{'file' if files else ALIGNER}|source-tok:{tokenize}|"
        f"tok:{args.tokenize}|case:folded|{words.signature}",
        "systems": {
            name: results(targets, alignments[name]) for name, targets in words.systems.items()
        },
        "reference": reference_links and results(words.references, reference_links),
    }


def _estimate_alignments(
    sources: Sequence[Sequence[str]], words: Words
) -> tuple[dict[str, list[Links]], list[Links]]:
    """The links of each system and of the reference.

    The model of a system is estimated from its translations and from the references, so a system
    has the same links whatever other systems there are.
    """
    both = [*sources, *sources]
    pairs = {name: [*lines, *words.references] for name, lines in words.systems.items()}
    check_memory(
        max(alignment_memory(both, targets) for targets in pairs.values()),
        "--consistency takes {} of memory to align the words, but {} are available; --alignments "
        "takes links of another aligner",
    )
    links = {name: align_words(both, targets)[: len(sources)] for name, targets in pairs.items()}
    return links, align_words(sources, words.references)
