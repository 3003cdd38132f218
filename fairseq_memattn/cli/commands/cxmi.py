"""`memattn cxmi`: how much better a model predicts the references with their context."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_memattn.cli.shared import models
from fairseq_memattn.cli.shared.inputs import refuse_unused
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, say
from fairseq_memattn.evaluation.plots import check_format
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.files import replacing, write_json

if TYPE_CHECKING:
    from torch import Tensor

Contexts = tuple[int, int]  # source and target sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser)
    add = Options(parser)
    add("--subset", "split with document ids beside it (default: %(default)s)", default="test")
    add("--json", "also write the table to this file", type=Path)
    add(
        "--tokens",
        "also write a line for each token to this file: sentence (from 0), document (from 0), "
        "token, log-probability without and with all of the context, separated by tabs",
        type=Path,
    )
    add("--picture", "draw a document to this .png file", type=Path)
    add(
        "--document",
        "number of the document to draw, from 0 (default: the one with the largest gain)",
        type=int,
    )


def run(args: argparse.Namespace) -> None:
    outputs = {f"--{name}": getattr(args, name) for name in ("json", "tokens", "picture")}
    check_outputs(outputs, [*models.folders(args.data), *models.checkpoints(args.path)])
    if args.picture:
        check_format("--picture", args.picture)
    else:
        refuse_unused(args, ["document"], "is for --picture, which is not given")
    loaded = models.load(args)
    if loaded.streams:
        raise ValueError(
            f"--path {args.path}: trained with --stream; its source and target context, which CXMI "
            "compares, cannot be left out one by one"
        )
    if not loaded.source_context and not loaded.target_context:
        raise ValueError("the model sees no context; give --source-context or --target-context")
    if not getattr(loaded.task.cfg, "sample_context", False):
        say(
            "warning: the model was not trained with --sample-context, so input without context is "
            "out of distribution, which raises the values"
        )
    from fairseq_memattn.documents.context_gain import cxmi

    corpus = _Corpus(args, loaded)
    kinds = _kinds(loaded.source_context, loaded.target_context)
    scores = {contexts: corpus.score(*contexts) for contexts in [(0, 0), *kinds]}
    rows = []
    for kind in kinds:
        values = cxmi(scores[0, 0], scores[kind], corpus.in_context[kind])
        rows.append({"source_context": kind[0], "target_context": kind[1], **values._asdict()})
    everything = (loaded.source_context, loaded.target_context)
    if args.json:
        settings = {"data": args.data, "path": args.path, "subset": args.subset}
        write_json(args.json, {"settings": settings, "cxmi": rows})
    if args.tokens:
        corpus.write_tokens(args.tokens, scores[0, 0], scores[everything])
    if args.picture:
        corpus.draw(args.picture, args.document, scores[0, 0], scores[everything])
    header = ["source", "target", "nats a sentence", "nats a token", "sentences helped"]
    shown = [[str(x) if isinstance(x, int) else f"{x:.4f}" for x in row.values()] for row in rows]
    print(table([header, *shown]))


def _kinds(source: int, target: int) -> list[Contexts]:
    """Source context alone, target context alone, and both, with 1 to all of the sentences."""
    kinds = [(n, 0) for n in range(1, source + 1)] + [(0, n) for n in range(1, target + 1)]
    both = [(min(n, source), min(n, target)) for n in range(1, max(source, target) + 1)]
    return list(dict.fromkeys(kinds + both))


class _Corpus:
    """The sentences of a split, their documents, and their scores."""

    def __init__(self, args: argparse.Namespace, loaded: models.Loaded) -> None:
        self.loaded = loaded
        # Of each context, which sentences have any: not the first ones of documents, nor those
        # whose window has no room for it.
        self.in_context: dict[Contexts, list[bool]] = {}
        self.sides, self.documents = models.parallel_split(args.data, args.subset, loaded.task)
        if args.document is not None and not 0 <= args.document < len(self.documents):
            raise ValueError(
                f"--document must be from 0 to {len(self.documents) - 1}, but is {args.document}"
            )

    def score(self, source_context: int, target_context: int) -> "list[Tensor]":
        """The log-probabilities of the tokens of each reference sentence, (T,) each."""
        from tqdm import tqdm

        from fairseq_memattn.tasks.inference.scorer import Pair

        first = self.documents.first_sentences()
        source, target = self.sides
        most = max(source_context, target_context)
        pairs = []
        for sentence in range(len(target)):
            window = range(max(int(first[sentence]), sentence - most), sentence + 1)
            pairs.append(
                Pair([source[i].long() for i in window], [target[i].long() for i in window])
            )
        scorer = self.loaded.scorer(source_context, target_context)
        label = f"context {source_context}, {target_context}"
        with tqdm(total=len(pairs), unit=" sentences", desc=label, disable=None) as bar:
            scores = scorer.score(pairs, bar.update)
        self.in_context[source_context, target_context] = scorer.in_context
        if scorer.dropped:
            say(f"{scorer.dropped} windows lost context: too long")
        return scores

    def words(self, sentence: int) -> list[str]:
        """The tokens of a reference, eos included."""
        dictionary = self.loaded.task.target_dictionary
        return [dictionary[token] for token in self.sides[1][sentence].tolist()]

    def write_tokens(
        self, path: Path, without: "list[Tensor]", with_context: "list[Tensor]"
    ) -> None:
        with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
            for sentence in range(len(without)):
                document = self.documents.of(sentence)
                pairs = (without[sentence].tolist(), with_context[sentence].tolist())
                for word, *values in zip(self.words(sentence), *pairs, strict=True):
                    numbers = "\t".join(f"{value:.6g}" for value in values)
                    file.write(f"{sentence}\t{document}\t{word}\t{numbers}\n")

    def draw(
        self,
        path: Path,
        document: int | None,
        without: "list[Tensor]",
        with_context: "list[Tensor]",
    ) -> None:
        from fairseq_memattn.documents.context_gain import draw_gains, gains
        from fairseq_memattn.evaluation.fonts import fonts_for

        values = gains(without, with_context)
        if document is None:
            totals = [
                sum(float(values[i].sum()) for i in self.documents.sentences_of(number))
                for number in range(len(self.documents))
            ]
            document = totals.index(max(totals))
        sentences = self.documents.sentences_of(document)
        words = [self.words(i) for i in sentences]
        title = f"What the context adds, document {document}"
        shown = fonts_for(word for sentence in words for word in sentence)
        with shown, replacing(path) as unfinished:
            draw_gains(words, [values[i] for i in sentences], unfinished, title)
        print(f"drew document {document} into {path}")
