"""Loads trained models for the subcommands."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_memattn.cli.shared.inputs import check_given
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import say
from fairseq_memattn.errors import LARGEST, MemAttnError, check_least
from fairseq_memattn.host.checkpoints import architecture, check_registered
from fairseq_memattn.host.correctness.trained_options import other_dictionaries, saved_options

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fairseq_memattn.data.documents.collation import WindowOptions
    from fairseq_memattn.documents.ids import Documents
    from fairseq_memattn.tasks.inference.scorer import Scorer
    from fairseq_memattn.tasks.inference.session import ContextTranslator
    from fairseq_memattn.transformers.document_translator import DocumentTranslator

MAX_CONTEXT = 1000  # sentences
# Above this share of unknown tokens, the text was probably not segmented as in training.
MANY_UNKNOWN = 0.02
SEGMENTED = (
    "; --sentencepiece-model or --subword-nmt must segment the sentences as in training, unless "
    "they are segmented already"
)
LANGUAGE_MODEL, TRANSLATION_MODEL = "a language model", "a translation model"


def add_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """The flags of `load`. required: whether data and --path must be given"""
    add = Options(parser)
    add(
        "data",
        "folder made by fairseq-preprocess; its dictionaries are the model's",
        nargs=None if required else "?",
    )
    add("--path", "checkpoint; several of an ensemble separated by colons", required=required)
    for side in ("source", "target"):
        add.number(
            f"--{side}-context",
            f"number of previous {side} sentences that the model sees (default: that of "
            "training with --task document_translation, else 0)",
        )
    add("--separator", "symbol between two sentences of a window (default: that of training)")
    add("--max-tokens", "tokens of a padded batch (default: %(default)s)", type=int, default=4096)
    add.switch("--cpu", "score on the CPU even if there is a GPU")


def checkpoints(path: str) -> list[Path]:
    return [Path(part) for part in path.split(":")]


def folders(data: str) -> list[Path]:
    return [Path(part) for part in data.split(":")]


def check_paths(data: str, path: str, one_model: bool = False, one_folder: bool = False) -> None:
    """Raises ValueError for a folder of data or a checkpoint that does not exist.

    one_model, one_folder: whether several are an error
    """
    if one_model and ":" in path:
        raise ValueError(f"--path must be one checkpoint, but is {path}")
    if one_folder and ":" in data:
        raise ValueError(f"the data must be one folder, but are {data}")
    for checkpoint in checkpoints(path):
        if checkpoint.is_dir():
            raise ValueError(f"--path must be a checkpoint, but {checkpoint} is a folder")
        if not checkpoint.is_file():
            raise ValueError(f"--path {checkpoint}: there is no such file")
    for folder in data.split(":"):
        if not Path(folder).is_dir():
            raise ValueError(f"{folder}: no such folder of binary data")


def open_checkpoint(
    path: str,
    data: str,
    *,
    languages: str = "",
    only: str | None = None,
    kind: str | None = None,
    compresses: bool = False,
    **overrides: Any,
) -> tuple[dict[str, Any], Any]:
    """A checkpoint, brought up to date, and its task with the dictionaries of `data`.

    Dictionaries of `data` that differ from those of the training are a warning.

    languages: "SOURCE TARGET", used if the checkpoint has no languages
    only: the task that the model must have been trained with
    kind: what the model must be, as `kind_of` names it
    compresses: whether the encoder must compress, as with --gmat-compress-after
    overrides: options that replace those of the checkpoint, by name
    """
    from fairseq.checkpoint_utils import load_checkpoint_to_cpu
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks import setup_task

    from fairseq_memattn.tasks.document_translation import DocumentTranslationTask

    state = load_checkpoint_to_cpu(path, {"data": data, **overrides})
    check_configuration(path, state)
    check_registered(path, state)
    check_finite(f"--path {path}", state["model"])
    arch = str(architecture(state))
    if kind and kind_of(arch) != kind:
        raise ValueError(f"--path {path}: {arch} is {kind_of(arch)}, but this needs {kind}")
    if compresses and not _model_options(state).get("gmat_compress_after"):
        raise ValueError(
            f"--path {path} (architecture {arch}) has no compressing encoder; it must be a GMAT "
            "that was trained with --gmat-compress-after"
        )
    settings = state["cfg"]["task"]
    if only and settings["_name"] != only:
        raise ValueError(
            f"--path {path}: trained with --task {settings['_name']}, but this needs --task {only}"
        )
    if languages and "source_lang" in settings and not settings["source_lang"]:
        settings["source_lang"], settings["target_lang"] = languages.split()
    task = setup_task(settings, from_checkpoint=True)
    if isinstance(task, DocumentTranslationTask):
        task.adapt_to(ARCH_MODEL_REGISTRY.get(arch))
    for text in other_dictionaries(path, saved_options(path).get("task"), data):
        say(f"warning: {text}")
    return state, task


def kind_of(arch: str) -> str:
    """What a registered architecture is: "a translation model", or another kind of model."""
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel, FairseqEncoderModel

    model = ARCH_MODEL_REGISTRY[arch]
    if issubclass(model, FairseqEncoderDecoderModel):
        return TRANSLATION_MODEL
    return "a masked language model" if issubclass(model, FairseqEncoderModel) else LANGUAGE_MODEL


def check_configuration(path: str, state: dict[str, Any]) -> None:
    """Raises ValueError for a checkpoint without a configuration or with sizes beyond its weights.

    A model of such sizes would fill the memory before its weights are compared.
    """
    for part in ("task", "model"):
        if not state.get("cfg") or part not in state["cfg"] or not state["cfg"][part]:
            raise ValueError(f"--path {path}: its configuration has no `{part}`")
    fields = _model_options(state)
    weights = [weight for weight in state["model"].values() if hasattr(weight, "numel")]
    largest = {"layers": len(weights), "embed_dim": max((w.numel() for w in weights), default=0)}
    for side in ("encoder", "decoder"):
        for name, limit in largest.items():
            value = fields.get(f"{side}_{name}")
            if isinstance(value, int) and value > limit:
                raise ValueError(
                    f"--path {path}: its configuration has {side}_{name} {value}, but must have at "
                    f"most {limit} by its weights"
                )


def _model_options(state: dict[str, Any]) -> Mapping[str, Any]:
    options = state["cfg"]["model"]
    return vars(options) if isinstance(options, argparse.Namespace) else options


def check_plain_inputs(path: str, task: Any) -> None:
    """Raises ValueError for one of fairseq's tasks that may put more around sentences than eos.

    Such are the tokens of languages of `translation_multi_simple_epoch`.
    """
    from fairseq.tasks import FairseqTask, LegacyFairseqTask
    from fairseq.tasks.translation import TranslationTask

    base = next(cls for cls in type(task).__mro__ if cls.__module__.startswith("fairseq."))
    if base not in (TranslationTask, FairseqTask, LegacyFairseqTask):
        settings = getattr(task, "cfg", None) or task.args
        name = getattr(settings, "_name", None) or getattr(settings, "task", base.__name__)
        raise ValueError(
            f"--path {path}: trained with --task {name}, which may put tokens of its own around "
            "sentences, such as those of their languages, and this would leave them out; it needs "
            "a model of --task translation or of one of the plugin's tasks"
        )


def check_finite(what: str, weights: Mapping[str, "Tensor"]) -> None:
    """Raises MemAttnError for a weight that has values that are infinite or NaN.

    what: begins the message
    """
    for name, weight in weights.items():
        # The sum is not finite if a value is not, and quicker; finite values can overflow in it.
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise MemAttnError(f"{what}: the weight `{name}` has values that are infinite or NaN")


def load_model(path: str, data: str, state: dict[str, Any], task: Any) -> Any:
    """The model of a checkpoint from `open_checkpoint`."""
    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    try:
        (model,), _, _ = load_model_ensemble_and_task([path], task=task, state=state)
    except RuntimeError as error:
        if "size mismatch" not in str(error):
            raise
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(
            f"--path {path}: the model does not fit the dictionaries of {data} ({reason})"
        ) from None
    return model


def find_device(name: str | None) -> "torch.device":
    """The device of --device, or else a GPU if there is one.

    Raises MemAttnError for a name that PyTorch does not know, and for a device that is missing.
    """
    import torch

    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (AssertionError, RuntimeError) as error:
        sentence, _, _ = str(error).partition("\n")
        raise MemAttnError(f"--device {name}: {sentence}") from None


def load_translator(folder: Path, device: str | None) -> "DocumentTranslator":
    """The translator of an exported folder. device: its name; None is a GPU if there is one"""
    from transformers.utils.logging import disable_progress_bar

    from fairseq_memattn.transformers.document_translator import DocumentTranslator

    if not sys.stderr.isatty():
        disable_progress_bar()
    return DocumentTranslator.from_pretrained(folder, device=find_device(device))


class Loaded(NamedTuple):
    """A task with its dictionaries, its numbers of context sentences, and its models.

    separator: the symbol between two sentences of a window
    device: of the models' work, "cpu" or "cuda"; max_tokens: of a padded batch
    windows, scorer: called with the numbers of source and target context sentences
    streams: whether the models carry memories, and so see all sentences before
    """

    task: Any
    source_context: int
    target_context: int
    models: list[Any]
    separator: str
    device: str
    max_tokens: int
    windows: "Callable[[int, int], WindowOptions]"
    scorer: "Callable[[int, int], Scorer]"
    streams: bool

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The names of source and target, if the task has them."""
        cfg = self.task.cfg
        return getattr(cfg, "source_lang", None), getattr(cfg, "target_lang", None)

    @property
    def context(self) -> dict[str, Any]:
        """The context that the models see, for a record."""
        if self.streams:
            return {"stream": True}
        return {"source_context": self.source_context, "target_context": self.target_context}

    def translator(self, search: Mapping[str, Any]) -> "ContextTranslator":
        """search: values of beam, lenpen, max_len_a and max_len_b"""
        from fairseq_memattn.tasks.inference.session import ContextTranslator

        dictionary = self.task.target_dictionary
        return ContextTranslator(
            self.models,
            self.windows(self.source_context, self.target_context),
            dictionary,
            dictionary.index(self.separator) if self.separator in dictionary else None,
            max_tokens=self.max_tokens,
            device=self.device,
            stream=self.streams,
            beam_size=search["beam"],
            len_penalty=search["lenpen"],
            max_len_a=search["max_len_a"],
            max_len_b=search["max_len_b"],
        )

    @property
    def described_context(self) -> str:
        """The context that the models see, in words."""
        if self.streams:
            return "context: all sentences before"
        return (
            f"source context {self.source_context}, target context {self.target_context} sentences"
        )


def load(args: argparse.Namespace) -> Loaded:
    """Loads the models of `--path`."""
    import fairseq_memattn

    fairseq_memattn.register()
    import torch

    from fairseq_memattn.data.documents.collation import WindowOptions
    from fairseq_memattn.tasks.document_translation import window_tokens
    from fairseq_memattn.tasks.inference.scorer import MemoryScorer, Scorer

    check_paths(args.data, args.path)
    check_least(args, "max_tokens", 1, LARGEST)
    check_given(args, ("source_context", "target_context"), 0, MAX_CONTEXT)
    models: list[Any] = []
    task: Any = None
    for path in args.path.split(":"):
        state, own = open_checkpoint(path, args.data, kind=TRANSLATION_MODEL)
        check_plain_inputs(path, own)
        task = task or own
        models.append(load_model(path, args.data, state, task))
    contexts: list[int] = []
    streams = bool(getattr(task.cfg, "stream", False))
    if streams and (args.source_context is not None or args.target_context is not None):
        raise MemAttnError(
            f"--path {args.path}: trained with --stream, and so sees all sentences before; leave "
            "out --source-context and --target-context"
        )
    for side in ("source", "target"):
        trained = getattr(task.cfg, f"{side}_context", 0)
        wanted = getattr(args, f"{side}_context")
        wanted = trained if wanted is None else wanted
        sampled = getattr(task.cfg, "sample_context", False)
        known = hasattr(task.cfg, f"{side}_context")
        if known and (wanted > trained or (wanted < trained and not sampled)):
            say(
                f"warning: the model was trained with {trained} sentences of {side} context, but "
                f"--{side}-context is {wanted}"
            )
        contexts.append(wanted)
    separator = args.separator or getattr(task.cfg, "context_separator", "_eos")
    piece = f"\u2581{separator}"  # the separator in windows that SentencePiece has segmented
    if separator not in task.source_dictionary and piece in task.source_dictionary:
        separator = piece
    device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
    dictionaries = (task.source_dictionary, task.target_dictionary)
    if any(contexts) and any(separator not in dictionary for dictionary in dictionaries):
        raise MemAttnError(
            f"--separator {separator} is not in the model's dictionaries, so the model was not "
            "trained on windows of several sentences"
        )
    source_context, target_context = contexts
    limits = zip(task.max_positions(), *(m.max_positions() for m in models), strict=True)
    tokens = window_tokens(task.cfg, *dictionaries)
    max_source, max_target = map(min, limits)
    max_source -= tokens["source_token"] is not None
    max_target -= tokens["target_token"] is not None

    def windows(source_context: int, target_context: int) -> WindowOptions:
        return WindowOptions(
            source_context,
            target_context,
            max_source,
            max_target,
            source_separator=task.source_dictionary.index(separator),
            target_separator=task.target_dictionary.index(separator),
            pad=task.source_dictionary.pad(),
            eos=task.source_dictionary.eos(),
            left_pad_source=task.cfg.left_pad_source,
            as_sequences=any(getattr(model, "takes_sequences", False) for model in models),
            source_token=tokens["source_token"],
            target_token=tokens["target_token"],
        )

    def scorer(source_context: int, target_context: int) -> Scorer:
        options = windows(source_context, target_context)
        kind = MemoryScorer if streams else Scorer
        return kind(models, options, max_tokens=args.max_tokens, device=device)

    return Loaded(
        task=task,
        source_context=source_context,
        target_context=target_context,
        models=models,
        separator=separator,
        device=device,
        max_tokens=args.max_tokens,
        windows=windows,
        scorer=scorer,
        streams=streams,
    )


def parallel_split(data: str, subset: str, task: Any) -> "tuple[list[Any], Documents]":
    """The sentences of both sides of a split, and its documents."""
    from fairseq.data.data_utils import load_indexed_dataset

    from fairseq_memattn.data.documents.splits import split_prefix
    from fairseq_memattn.documents.ids import read_docids

    languages = (task.cfg.source_lang, task.cfg.target_lang)
    prefix = split_prefix(Path(data), subset, *languages, task.cfg.dataset_impl)
    sides = []
    dictionaries = (task.source_dictionary, task.target_dictionary)
    for language, dictionary in zip(languages, dictionaries, strict=True):
        side = load_indexed_dataset(f"{prefix}.{language}", dictionary, task.cfg.dataset_impl)
        if side is None:
            raise ValueError(f"--subset {subset}: there is no {prefix}.{language}.bin")
        sides.append(side)
    return sides, read_docids(Path(f"{prefix}.docids"), len(sides[1]))


class Encoder:
    """Encodes sentences with a dictionary and counts unknown tokens.

    segment: segments a sentence into pieces of the dictionary
    """

    def __init__(self, dictionary: Any, segment: Callable[[str], str]) -> None:
        self.dictionary, self.segment = dictionary, segment
        self.tokens = self.unknown = 0
        self._known: dict[str, Tensor] = {}

    def __call__(self, sentence: str) -> "Tensor":
        """The tokens of a sentence, eos at the end."""
        if sentence not in self._known:
            tokens = self.dictionary.encode_line(
                self.segment(sentence), add_if_not_exist=False, append_eos=True
            ).long()
            self.tokens += len(tokens)
            self.unknown += int(tokens.eq(self.dictionary.unk()).sum())
            self._known[sentence] = tokens
        return self._known[sentence]

    def report(self, name: str) -> None:
        """Prints the share of unknown tokens, if there are any. name: of the side"""
        share = self.unknown / self.tokens
        if share > 0:
            hint = SEGMENTED if share > MANY_UNKNOWN else ""
            say(f"warning: {share:.1%} of the {name} tokens are unknown to the model{hint}")
