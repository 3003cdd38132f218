"""Speed of document translation with predicted context, against batched decoding of windows.

The contenders have the same model, beam size and source windows:

    documents   --task document_translation: translates one sentence of each document at a time,
                with the translations of the previous sentences as context
    windows     fairseq's generator on windows sorted by length. It translates whole windows, and
                therefore every sentence several times

The benchmark needs a trained model, because the time depends on the length of the translations:

    document_decoding.py DATA --path checkpoint_last.pt
"""

import argparse
import json
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.tasks.translation import TranslationTask
from torch import nn

import fairseq_memattn

fairseq_memattn.register()

RESULTS = Path(__file__).parent / "results"


def parse_arguments() -> Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("data", help="folder with document ids, as `memattn prepare binarise` writes it")
    add("--path", required=True, help="checkpoint of a model trained with document_translation")
    add("--subset", default="test", help="default: %(default)s")
    add("--beam", type=int, default=5, help="default: %(default)s")
    add("--lenpen", type=float, default=0.6, help="default: %(default)s")
    add("--max-tokens", type=int, default=4096, help="of a batch (default: %(default)s)")
    add("--repeats", type=int, default=3, help="rounds (default: %(default)s)")
    add("--threads", type=int, help="CPU threads (torch's default)")
    add("--out", type=Path, default=RESULTS / "document_decoding.json")
    return parser.parse_args()


def generation(args: Namespace) -> Namespace:
    return Namespace(beam=args.beam, lenpen=args.lenpen, max_len_a=1.5, max_len_b=20)


def by_document(args: Namespace, task: Any, model: nn.Module) -> list[Any]:
    dataset = task.datasets[args.subset]
    batches = task.get_batch_iterator(
        dataset, max_tokens=args.max_tokens, max_positions=task.max_positions()
    ).next_epoch_itr(shuffle=False)
    task.begin_valid_epoch(1, model)
    generator = task.build_generator([model], generation(args))
    hypotheses: list[Any] = []
    for batch in batches:
        hypotheses += task.inference_step(generator, [model], batch)
    return hypotheses


def by_window(args: Namespace, task: Any, model: nn.Module) -> list[Any]:
    dataset = task.datasets[args.subset]
    generator = TranslationTask.build_generator(task, [model], generation(args))
    order = np.argsort(-dataset.num_tokens_vec(np.arange(len(dataset))), kind="stable")
    hypotheses: dict[int, Any] = {}
    for numbers in dataset.batch_by_size(order, max_tokens=args.max_tokens):
        batch = dataset.collater([dataset[int(i)] for i in numbers])
        found = generator.generate([model], batch)
        hypotheses |= zip(batch["id"].tolist(), found, strict=True)
    return [hypotheses[i] for i in range(len(dataset))]


def main() -> None:
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    (model,), _, task = load_model_ensemble_and_task([args.path], arg_overrides={"data": args.data})
    model.prepare_for_inference_(Namespace(generation=Namespace(print_alignment=False)))
    task.load_dataset(args.subset)
    dataset = task.datasets[args.subset]
    count = len(dataset.documents)
    # all documents at a time
    task.cfg.parallel_documents = count
    contenders: dict[str, Callable[..., list[Any]]] = {
        "documents": by_document,
        "windows": by_window,
    }
    print(f"{len(dataset)} sentences of {count} documents, {torch.get_num_threads()} threads")
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(args.repeats):
        for name, work in contenders.items():
            start = time.perf_counter()
            hypotheses = work(args, task, model)
            seconds[name].append(time.perf_counter() - start)
            assert len(hypotheses) == len(dataset)
            print(f"{name}: {seconds[name][-1]:.1f} s", flush=True)
    speed = {name: len(dataset) / statistics.median(taken) for name, taken in seconds.items()}
    ratio = speed["documents"] / speed["windows"]
    for name, value in speed.items():
        print(f"{name:>10}  {value:.1f} sentences a second")
    print(f"documents / windows: {ratio:.2f}")
    setting = {
        "sentences": len(dataset),
        "documents": count,
        "beam": args.beam,
        "max_tokens": args.max_tokens,
        "threads": torch.get_num_threads(),
    }
    report = {"setting": setting, "seconds": seconds, "sentences_a_second": speed, "ratio": ratio}
    args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
