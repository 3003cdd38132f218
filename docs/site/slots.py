r"""Writes the data of docs/slots.html: the memory of language models after each token of a text.

    python docs/site/slots.py DATA TEXT --sentencepiece-model spm.model --models mlp=mlp.pt

The models of the page have two layers of 64 and eight slots. They are trained for 500 updates on
the English side of the generated corpus; the same for `gated` and `clustering` in place of `mlp`:

    memattn prepare discourse --output corpus --train-docs 4000 --valid-docs 50 \
      --test-docs 50 --seed 1
    memattn prepare own-corpus --text train=corpus/train valid=corpus/valid test=corpus/test \
      --langs en --output lm --vocab-size 870
    fairseq-train lm/bin --user-dir fairseq_memattn --task language_modeling \
      --arch abc_mlp_transformer_lm --abc-causal-slots 8 --decoder-layers 2 --decoder-embed-dim 64 \
      --decoder-input-dim 64 --decoder-output-dim 64 --decoder-ffn-embed-dim 256 \
      --decoder-attention-heads 2 --share-decoder-input-output-embed --dropout 0.0 \
      --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --lr 5e-3 --lr-scheduler cosine \
      --warmup-updates 100 --max-update 500 --tokens-per-sample 64 --max-tokens 2048 --seed 1 \
      --save-dir mlp

TEXT is: Ivan grew up in the country. Ivan will move a swing on Wednesday. Thank God! It surprised
everyone.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared.inputs import named_file

PAGE = Path(__file__).parents[1] / "slots.html"
UNIT = 1000  # weights are written in thousandths


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="folder of the binarised text")
    parser.add_argument("text", help="one sentence or several")
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=CHECKPOINT")
    parser.add_argument("--sentencepiece-model", type=Path, required=True)
    parser.add_argument("--layer", type=int, default=-1)
    parser.add_argument("--head", type=int, default=0)
    args = parser.parse_args()
    args.subword_nmt = None
    content: dict[str, Any] = {"controls": {}}
    for given in args.models:
        name, checkpoint = named_file("--models", given)
        content["tokens"], states = after_each_token(args, str(checkpoint))
        content["controls"][name] = states
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    page = PAGE.read_text("utf-8")
    line = f"const data = {data};"
    PAGE.write_text(re.sub(r"^const data = .*;$", lambda _: line, page, flags=re.M), "utf-8")


def after_each_token(
    args: argparse.Namespace, checkpoint: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """The tokens and, for each prefix, what the slots hold (M, S) and its last token reads (M)."""
    import fairseq_memattn

    fairseq_memattn.register()
    from fairseq_memattn.cli.shared import models, segmentation, texts
    from fairseq_memattn.modules.memories import attentions, memories_of

    state, task = models.open_checkpoint(checkpoint, args.data)
    model = models.load_model(checkpoint, args.data, state, task)
    segment = segmentation.segmenter(args)
    line = texts.Line(args.text, None)
    given = texts.of_line(line, task, state["cfg"].task, {"decoder"}, segment)["src_tokens"]
    tokens, _ = texts.labels(task, {"src_tokens": given}, "causal")
    layer = attentions(model)["causal"][args.layer]
    states = []
    for length in range(1, len(tokens) + 1):
        prefix = {"src_tokens": given[:, :length]}
        (memory,) = memories_of(model, prefix, [layer])
        writing, reading = memory.writing[args.head].T, memory.reading[args.head, -1]
        states.append({"writing": whole(writing), "reading": whole(reading)})
    return tokens, states


def whole(weights: Any) -> Any:
    return (weights * UNIT).round().int().tolist()


if __name__ == "__main__":
    main()
