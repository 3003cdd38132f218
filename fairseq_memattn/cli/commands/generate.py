"""Continue prompts with a causal model of transformers.

  memattn generate FOLDER < prompts.txt

FOLDER has a model that `convert-transformers` or `export` has written, or any other one that
AutoModelForCausalLM loads, and its tokenizer. The input has a prompt a line, and the output the
text that follows it, a line each, in which \\n is a line break. FILE.jsonl and FILE.tsv are tables
with the columns src and hyp. On a terminal the text appears as it is generated. Without
--temperature, each token is the most likely one.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared.inputs import check_given, refuse_unused, require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, columns_text
from fairseq_memattn.errors import LARGEST
from fairseq_memattn.evaluation.text_columns import file_of, format_of, read_column
from fairseq_memattn.files import write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add.file("folder", "folder with the model and its tokenizer", metavar="FOLDER")
    add.file(
        "--input",
        "prompts, or - for standard input; FILE.jsonl:KEY or FILE.tsv:COLUMN is a column of a "
        "table (default: standard input; the column src)",
    )
    add.file("--output", "file to write, when all is generated (default: standard output)")
    add.switch("--chat", "each prompt is what a user says, in the model's chat template")
    add.number("--max-new-tokens", "tokens of a text at most (default: %(default)s)", default=100)
    add("--temperature", "samples, from the distribution at this temperature", type=float)
    add.number("--top-k", "with --temperature: sample from the N most likely tokens")
    add("--top-p", "with --temperature: from the most likely ones of this mass", type=float)
    add.number("--beam", "beam size (default: %(default)s)", default=1)
    add.number("--batch-size", "prompts side by side (default: %(default)s)", default=8)
    add.number("--seed", "of samples (default: %(default)s)", default=1)
    add("--device", "such as cpu or cuda (default: cuda if there is a GPU)")


def run(args: argparse.Namespace) -> None:
    check(args)
    source = None if args.input in (None, Path("-")) else args.input
    prompts = read_column(source or Path("/dev/stdin"), "src")
    for number, prompt in enumerate(prompts, start=1):
        if not prompt.strip():
            raise ValueError(f"{source or 'standard input'}, line {number}: must have a prompt")
    from fairseq_memattn.cli.shared.causal_models import load_causal

    model, tokenizer = load_causal(args.folder, args.device)
    texts = continued(args, model, tokenizer, prompts)
    kind = format_of(args.output)
    shown = [text.replace("\n", "\\n") for text in texts] if kind == "text" else texts
    text = columns_text({"src": prompts, "hyp": shown}, "hyp", kind)
    if args.output:
        write_text(args.output, text)
    elif not streams(args):
        sys.stdout.write(text)


def check(args: argparse.Namespace) -> None:
    if not args.folder.is_dir():
        raise ValueError(f"{args.folder}: there is no such folder")
    if args.input not in (None, Path("-")):
        require_file("--input", args.input, file_of(args.input))
    check_outputs({"--output": args.output}, [args.folder, args.input])
    check_given(args, ("max_new_tokens", "top_k", "beam", "batch_size"), 1, LARGEST)
    if args.temperature is None:
        refuse_unused(args, ("top_k", "top_p"), "is for --temperature, which is not given")
    elif not args.temperature > 0:
        raise ValueError(f"--temperature must be above 0, but is {args.temperature}")
    if args.top_p is not None and not 0 < args.top_p <= 1:
        raise ValueError(f"--top-p must be above 0 and at most 1, but is {args.top_p}")


def streams(args: argparse.Namespace) -> bool:
    """Whether tokens are printed one by one, which needs a single beam."""
    return args.output is None and args.beam == 1 and sys.stdout.isatty()


def continued(
    args: argparse.Namespace, model: Any, tokenizer: Any, prompts: list[str]
) -> list[str]:
    """The text after each prompt, without the prompt."""
    import torch
    from tqdm import tqdm
    from transformers import TextStreamer

    torch.manual_seed(args.seed)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    given, size = settings(args, tokenizer), args.batch_size
    if streams(args):
        given["streamer"] = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    if streams(args) or tokenizer.pad_token is None:
        size = 1
    texts: list[str] = []
    hidden = streams(args) or None
    with tqdm(total=len(prompts), unit="prompt", disable=hidden, leave=False) as bar:
        for start in range(0, len(prompts), size):
            batch = encoded(args, tokenizer, prompts[start : start + size]).to(model.device)
            tokens = model.generate(**batch, **given)[:, batch["input_ids"].shape[1] :]
            texts += tokenizer.batch_decode(tokens, skip_special_tokens=True)
            bar.update(len(tokens))
    return texts


def settings(args: argparse.Namespace, tokenizer: Any) -> dict[str, Any]:
    """The arguments of `generate`, in the place of what the folder's generation_config says."""
    samples = args.temperature is not None
    return {
        "max_new_tokens": args.max_new_tokens,
        "do_sample": samples,
        "temperature": args.temperature,
        "top_k": args.top_k or (0 if samples else None),
        "top_p": args.top_p,
        "num_beams": args.beam,
        "pad_token_id": tokenizer.pad_token_id,
    }


def encoded(args: argparse.Namespace, tokenizer: Any, prompts: list[str]) -> Any:
    """The tokens of a batch of prompts, padded on the left."""
    given: dict[str, Any] = {"return_tensors": "pt", "padding": len(prompts) > 1}
    if not args.chat:
        return tokenizer(prompts, return_token_type_ids=False, **given)
    if tokenizer.chat_template is None:
        raise ValueError(f"--chat: the tokenizer of {args.folder} has no chat template")
    said = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return tokenizer.apply_chat_template(
        said, add_generation_prompt=True, return_dict=True, **given
    )
