"""What the BLEU4 that fairseq-generate prints last is computed from."""

import functools
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

PIECES = "the tokens of the dictionary as they are, such as subword pieces"
WORDS = "the words between the spaces of the text that --post-process restores, references included"
SCORE = "; for sacreBLEU of detokenised text, run memattn score --generated FILE --reference TEXT"
COMMANDS = {
    "question_answering": "; for EM and F1, run memattn answers --generated FILE --gold FILE",
    "span_corruption": "",
}


def explain_bleu() -> None:
    """Lets fairseq-generate say after `--scoring bleu`, its default, what it has compared."""
    from fairseq_cli import generate

    generate._main = _with_note(generate._main)


def note(cfg: Any) -> str:
    """The sentence, for a configuration of fairseq-generate."""
    compared = PIECES if cfg.common_eval.post_process is None else WORDS
    name = str(getattr(cfg.task, "_name", None))
    return f"this BLEU4 compares {compared}{COMMANDS.get(name, SCORE)}"


def _with_note(main: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(main)
    def _main(cfg: Any, output_file: Any) -> Any:
        from fairseq.scoring.bleu import Scorer

        scorer = main(cfg, output_file)
        if isinstance(scorer, Scorer) and scorer.stat.reflen:
            logger.info(note(cfg))
        return scorer

    return _main
