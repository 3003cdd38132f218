"""Decoding with the ONNX graphs of a model. Needs numpy and onnxruntime, and neither torch nor
transformers.

  decoder = OnnxDecoder("FOLDER")
  rows = decoder.generate(source=[[5, 8, 9, 2]])
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_memattn.errors import MemAttnError

ENCODER, STEP, DESCRIPTION = "encoder.onnx", "step.onnx", "onnx.json"
Array = NDArray[Any]
State = dict[str, Array]


class OnnxDecoder:
    """An encoder-decoder, or a language model, from a folder with step.onnx and onnx.json.

    threads: of onnxruntime; None is its default

    A state is a dict of arrays (B, ...), the inputs of step.onnx by name. With bounded memories
    its size is constant; softmax attention adds every key and value.

    Raises MemAttnError for a folder without the files, for damaged ones, and if onnxruntime is
    missing.
    """

    def __init__(self, folder: str | Path, threads: int | None = None) -> None:
        path = Path(folder) / DESCRIPTION
        if not path.is_file():
            raise MemAttnError(f"{path}: there is no such file; `memattn export --onnx` writes it")
        self.about = _described(path)
        self.pad: int | None = self.about["pad_token_id"]
        self.eos: int | list[int] | None = self.about["eos_token_id"]
        self.encoder = None
        if self.about["is_encoder_decoder"]:
            self.encoder = _session(Path(folder) / ENCODER, threads)
        self.step_session = _session(Path(folder) / STEP, threads)
        self.outputs = [output.name for output in self.step_session.get_outputs()]

    def start(self, rows: int) -> State:
        """The state before the first token, without memories of a source."""
        sizes = {"batch": rows, "past": 0}
        state = {
            entry["name"]: np.full(
                [sizes.get(size, size) for size in entry["shape"]], entry["start"], entry["dtype"]
            )
            for entry in self.about["states"]
        }
        return state | {"read": np.zeros(rows, np.int64)}

    def encode(self, source: Sequence[Sequence[int]]) -> State:
        """The state before the first token, with the memories of the sources.

        source: rows of tokens, of any lengths

        Raises ValueError for a language model, for no rows, and for a row that has no tokens or too
        many.
        """
        if self.encoder is None:
            raise ValueError("`source` must be left out: the model is a language model.")
        if not len(source) or not all(map(len, source)):
            raise ValueError("`source` must have rows of at least one token.")
        _check_length(
            "the tokens of a row of `source`", max(map(len, source)), self.about["longest_source"]
        )
        tokens = _padded(source, self.pad or 0)
        mask = _padded([[1] * len(row) for row in source], 0)
        names = [output.name for output in self.encoder.get_outputs()]
        memories = self.encoder.run(names, {"tokens": tokens, "mask": mask})
        return self.start(len(source)) | dict(zip(names, memories, strict=True))

    def step(self, state: State, tokens: Array) -> tuple[Array, State]:
        """Reads one token of each row, (B,): log probabilities of the next, (B, V), and the state.

        The given state is not changed.

        Raises ValueError for more tokens than the model has positions.
        """
        count = int(state["read"].max()) + 1
        _check_length("the tokens of a row", count, self.about["longest_target"])
        inputs = state | {"token": tokens.reshape(-1, 1).astype(np.int64, copy=False)}
        log_probs, *after = self.step_session.run(self.outputs, inputs)
        names = [name.removeprefix("next_") for name in self.outputs[1:]]
        return log_probs, state | dict(zip(names, after, strict=True))

    def read(self, state: State, prompt: Sequence[Sequence[int]]) -> tuple[Array, State]:
        """Reads the tokens of rows of one length. Returns as `step` does, after the last one.

        Raises ValueError for rows of several lengths, or without tokens, and for more tokens than
        the model has positions.
        """
        lengths = sorted({len(row) for row in prompt})
        if len(lengths) != 1 or not lengths[0]:
            raise ValueError(f"`prompt` must have rows of one length above 0, but has {lengths}.")
        tokens = np.asarray(prompt, np.int64)
        for column in tokens.T:
            log_probs, state = self.step(state, column)
        return log_probs, state

    def generate(
        self,
        source: Sequence[Sequence[int]] | None = None,
        prompt: Sequence[Sequence[int]] | None = None,
        *,
        max_new_tokens: int | None = None,
    ) -> list[list[int]]:
        """The most likely token after each other, up to eos, which is left out.

        source: of an encoder-decoder; rows may differ in length
        prompt: what the decoder reads first, in rows of one length; by default the start token of
            an encoder-decoder
        max_new_tokens: without eos; None is max_len_a * tokens of the source + max_len_b, as in
            `generate` of the model

        Raises ValueError for arguments that do not fit the model or each other, and for more tokens
        than the model has positions.
        """
        self._check_arguments(source, prompt, max_new_tokens)
        state = self.start(len(prompt or ())) if source is None else self.encode(source)
        prompt = prompt or [[self.about["decoder_start_token_id"]]] * len(state["read"])
        limits = self._limits(source, len(prompt), max_new_tokens)
        last = len(prompt[0]) + int(limits.max()) - 1
        _check_length("the tokens of `prompt` and the new ones", last, self.about["longest_target"])
        log_probs, state = self.read(state, prompt)
        rows: list[list[int]] = [[] for _ in prompt]
        ended = np.zeros(len(prompt), bool)
        for count in range(int(limits.max())):
            if self.pad is not None:
                log_probs[:, self.pad] = -np.inf
            if count < self.about["min_new_tokens"]:
                log_probs[:, self.eos] = -np.inf
            chosen = log_probs.argmax(axis=1)
            ended |= np.isin(chosen, self.eos or []) | (count >= limits)
            for row in np.flatnonzero(~ended):
                rows[row].append(int(chosen[row]))
            if ended.all() or count + 1 == limits.max():
                break
            log_probs, state = self.step(state, np.where(ended, self.pad or 0, chosen))
        return rows

    def _check_arguments(self, source: Any, prompt: Any, max_new_tokens: int | None) -> None:
        if source is None and (self.encoder is not None or prompt is None):
            wanted = "prompt" if self.encoder is None else "source"
            raise ValueError(f"`{wanted}` must be given.")
        if source is not None and prompt is not None and len(source) != len(prompt):
            raise ValueError(
                f"`prompt` must have the {len(source)} rows of `source`, but has {len(prompt)}."
            )
        if max_new_tokens is not None and max_new_tokens < 1:
            raise ValueError(f"`max_new_tokens` must be at least 1, but is {max_new_tokens}.")

    def _limits(self, source: Any, rows: int, max_new_tokens: int | None) -> Array:
        """(B,): the most new tokens of each row, without eos."""
        a, b = self.about["max_len_a"], self.about["max_len_b"]
        if max_new_tokens is not None:
            return np.full(rows, max_new_tokens)
        if source is None or (a is None and b is None):
            raise ValueError("`max_new_tokens` must be given: the model has no limits of its own.")
        lengths = np.array([len(row) for row in source])
        limits = ((a or 0) * lengths + (b or 0)).astype(np.int64)
        limits = np.maximum(limits, self.about["min_new_tokens"])
        most = self.about["max_target_positions"]
        return limits if most is None else np.minimum(limits, most - 1)


def _session(path: Path, threads: int | None) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MemAttnError(
            "OnnxDecoder needs onnxruntime, which is missing: run `pip install onnxruntime`"
        ) from error
    if not path.is_file():
        raise MemAttnError(f"{path}: there is no such file; `memattn export --onnx` writes it")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's classes have no common base but this
        raise MemAttnError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _described(path: Path) -> dict[str, Any]:
    """The content of onnx.json."""
    try:
        about: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise MemAttnError(f"{path} is not what `memattn export --onnx` writes: {error}") from None
    if not isinstance(about, dict):
        raise MemAttnError(f"{path} is not what `memattn export --onnx` writes: no object")
    return about


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Array:
    length = max(map(len, rows))
    return np.array([[*row, *[fill] * (length - len(row))] for row in rows], np.int64)


def _check_length(name: str, length: int, most: int | None) -> None:
    if most is not None and length > most:
        raise ValueError(f"{name} must be at most {most}, but are {length}.")
