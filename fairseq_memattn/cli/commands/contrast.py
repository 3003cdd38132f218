"""`memattn contrast`: the accuracy of a translation model on right and wrong translations.

On generative sets, it is that of the model's own translations. With the scores or translations that
a file has, instead of a model, it needs neither torch nor fairseq.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared import generated_text, judged_text, models, segmentation
from fairseq_memattn.cli.shared.inputs import refuse_unused, require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, check_outside, say
from fairseq_memattn.evaluation.contrastive import Group, results, results_text, scoring_lines
from fairseq_memattn.evaluation.contrastive_sets import direction_of, read_set
from fairseq_memattn.evaluation.directions import Direction, check_direction
from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.evaluation.swapped_groups import DEFAULT, HANDLINGS, handle_exchanged
from fairseq_memattn.files import write_json, write_text
from fairseq_memattn.host.installation import require_fairseq


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models.add_arguments(parser, required=False)
    add = Options(parser)
    add.file(
        "--sets",
        "JSON files in the format of Voita et al. (2019), such as those of `memattn prepare "
        "discourse`, those of DiscEvalMT, or folders in the layout of ContraPro, in any languages; "
        "with --generate or --translations, JSON files of ctxpro, or folders in the layout of "
        "ContraPro, read as GenPro",
        nargs="+",
        required=True,
        metavar="SET",
    )
    segmentation.add_arguments(parser)
    add(
        "--exchanged",
        "what to do with groups whose source and target are exchanged; ellipsis_infl has "
        "one (default: %(default)s)",
        choices=HANDLINGS,
        default=DEFAULT,
    )
    add("--json", "also write results and settings to this file", type=Path)
    add(
        "--scores",
        "the log-likelihood of every candidate, one a line: a file to write with a model, and "
        "to read without data and --path",
        type=Path,
    )
    judged_text.add_arguments(parser)
    generated_text.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    if not args.generate:
        refuse_unused(args, generated_text.OWN, "is for --generate, which is missing")
    if args.data is None and args.path is None:
        refuse_unused(args, generated_text.OF_CHECKPOINTS, "is for --path, which is missing")
    if args.translations or args.generate:
        judged_text.run(args)
        return
    if args.data is None and args.path is None:
        judge_scores(args)
        return
    if args.data is None or args.path is None:
        missing = "the data" if args.data is None else "--path"
        raise ValueError(f"{missing} is missing; a model needs both the data and --path")
    require_fairseq("the command with a model")
    inputs = [
        *args.sets,
        *models.folders(args.data),
        *models.checkpoints(args.path),
        args.sentencepiece_model,
        args.subword_nmt,
    ]
    outputs = {"--json": args.json, "--scores": args.scores}
    check_outputs(outputs, inputs)
    check_outside(outputs, {"--sets": args.sets})
    groups, reports, directions = _read(args)
    segment = segmentation.segmenter(args)
    loaded = models.load(args)
    for path, direction in directions.items():
        check_direction(path, direction, loaded.languages)
    scores = _score(groups, loaded, segment)
    summary = results(groups, scores)
    # First the files: nobody may read what is printed.
    if args.scores:
        write_text(args.scores, "".join(f"{score:.9g}\n" for score in scores))
    if args.json:
        settings = {
            "path": args.path,
            "sets": [str(path) for path in args.sets],
            **loaded.context,
            "exchanged": reports,
        }
        write_json(args.json, {"settings": settings, "results": summary})
    print(results_text(summary))
    print(
        f"{loaded.described_context}; natural log-likelihood of the last sentence, ties never right"
    )


def judge_scores(args: argparse.Namespace) -> None:
    """Prints the accuracies of the scores in a file."""
    if args.scores is None:
        raise ValueError(
            "give the data and --path of a model, or --scores or --translations without one"
        )
    check_outputs({"--json": args.json}, [*args.sets, args.scores])
    check_outside({"--json": args.json}, {"--sets": args.sets})
    groups, reports, _ = _read(args)
    scores = read_scores(args.scores)
    try:
        summary = results(groups, scores)
    except ValueError as error:
        raise ValueError(f"--scores {args.scores}: {error}") from None
    if args.json:
        settings = {
            "scores": str(args.scores),
            "sets": [str(path) for path in args.sets],
            "exchanged": reports,
        }
        write_json(args.json, {"settings": settings, "results": summary})
    print(results_text(summary))
    print(f"log-likelihoods of {args.scores}, ties never right")


def read_scores(path: Path) -> list[float]:
    """The numbers in a file, one a line. Raises ValueError for a line that is no number."""
    require_file("--scores", path)
    scores = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            scores.append(float(line))
        except ValueError:
            raise ValueError(
                f"--scores {path}, line {number}: must be a log-likelihood, but is {line!r:.60}"
            ) from None
    return scores


def _read(args: argparse.Namespace) -> tuple[list[Group], dict[str, Any], dict[Path, Direction]]:
    """The groups of all sets, what was done with exchanged ones, and the languages of each set."""
    groups: list[Group] = []
    directions: dict[Path, Direction] = {}
    reports = {}
    names = Counter(path.stem for path in args.sets)
    for path in args.sets:
        if names[path.stem] > 1:
            raise ValueError(f"--sets: {names[path.stem]} sets have the name {path.stem}")
        if not path.exists():
            raise ValueError(f"--sets {path}: there is no such file")
        read = read_set(path, args.lang)
        directions[path] = direction_of(path, read, args.lang)
        handled = handle_exchanged(read, args.exchanged)
        phenomena = {group.phenomenon for group in handled.groups}
        repeated = sorted(phenomena & {group.phenomenon for group in groups})
        if repeated:
            raise ValueError(
                f"--sets {path}: an earlier set has {repeated[0]} too, and both would be one row; "
                "judge them one after the other"
            )
        if handled.sentence:
            say(handled.sentence)
            reports[str(path)] = handled.report
        groups += handled.groups
    return groups, reports, directions


def _score(
    groups: list[Group], loaded: models.Loaded, segment: Callable[[str], str]
) -> list[float]:
    """The log-likelihood of every candidate's last sentence."""
    from tqdm import tqdm

    from fairseq_memattn.tasks.inference.scorer import Pair

    encode_source = models.Encoder(loaded.task.source_dictionary, segment)
    encode_target = models.Encoder(loaded.task.target_dictionary, segment)
    pairs = [
        Pair([encode_source(s) for s in line.source], [encode_target(s) for s in line.target])
        for line in scoring_lines(groups)
    ]
    encode_source.report("source")
    encode_target.report("target")
    scorer = loaded.scorer(loaded.source_context, loaded.target_context)
    with tqdm(total=len(pairs), unit=" candidates", disable=None) as bar:
        scores = scorer.score(pairs, bar.update)
    if scorer.dropped:
        say(f"{scorer.dropped} of {len(pairs)} windows lost context: too long")
    return [float(tokens.sum()) for tokens in scores]
