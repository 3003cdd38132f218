"""Lengths of each sentence of a batch, in fairseq's search.

fairseq computes one limit for a batch from --max-len-a, --max-len-b and the padded width of the
sources. A sentence that reaches its limit has another translation in another batch. It also leaves
--min-len out for all sentences while the longest prefix of the batch lasts. Here each sentence has
the limits that it has in a batch of its own.
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from fairseq.search import DiverseBeamSearch, Search
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

from fairseq_memattn.errors import MemAttnError

Generate = Callable[..., list[list[dict[str, Tensor]]]]


def limit_each_sentence(
    generate: Generate, self: Any, models: Any, sample: Any, **options: Any
) -> Any:
    """`generate` of fairseq's generators, in which each sentence has a limit of its own."""
    if isinstance(self.search, LimitedSearch):
        return generate(self, models, sample, **options)
    limits = own_limits(self, sample)
    limited = with_limits(self, limits)
    if options.get("prefix_tokens") is not None:
        prefixes = cut_prefixes(options["prefix_tokens"], limits, self.pad)
        options["prefix_tokens"] = prefixes
        limited.search.require(self.min_len, prefixes.ne(self.pad).sum(dim=1).cpu())
    return generate(limited, models, sample, **options)


def forbid_repeated_ngrams(
    _: Callable[..., Tensor], self: Any, tokens: Tensor, lprobs: Tensor, *args: Any
) -> Tensor:
    """In place of `_no_repeat_ngram`, which is called with the number of the step as last of args.

    It gets tokens (rows, T), a buffer for the longest translation after eos. fairseq takes the
    buffer's padding for the last tokens, and so forbids no n-gram before the last steps.
    """
    size = self.no_repeat_ngram_size - 1
    for row, words in enumerate(tokens[:, 1 : args[-1] + 1].tolist()):
        last = words[len(words) - size :]
        again = range(len(words) - size)
        if repeated := [words[i + size] for i in again if words[i : i + size] == last]:
            lprobs[row, repeated] = -math.inf
    return lprobs


def own_limits(generator: SequenceGenerator, sample: Mapping[str, Any]) -> Tensor:
    """(B,), the largest number of tokens, without eos, of the translation of each sentence.

    sample: the batch. Its source_lengths (B,) are those of the sources, if it has them: sequences
        of a source can repeat tokens

    It is `max_len_a` times the tokens of the source plus `max_len_b`, but at least `min_len` and at
    most what the models allow. With `match_source_len` it is the number of tokens of the source.

    Raises MemAttnError if the models allow fewer tokens than `min_len`.
    """
    lengths = sample.get("source_lengths")
    if lengths is None:
        lengths = source_lengths(sample["net_input"], generator.pad)
    lengths = lengths.cpu()
    if generator.match_source_len:
        return lengths
    most = generator.max_len - 1
    if most < generator.min_len:
        raise MemAttnError(
            f"--min-len must be at most {most}, the model's largest number of tokens without eos, "
            f"but is {generator.min_len}"
        )
    wanted = (int(generator.max_len_a * n + generator.max_len_b) for n in lengths.tolist())
    return torch.tensor([min(max(n, generator.min_len), most) for n in wanted])


def source_lengths(net_input: Mapping[str, Tensor], pad: int) -> Tensor:
    """(B,), the number of tokens of each source without padding; of audio, of frames.

    A source in several sequences (`context_tokens`) counts as a whole.
    """
    lengths = net_input.get("src_lengths")
    if lengths is not None:
        if "context_padding_mask" in net_input:
            lengths = lengths + (~net_input["context_padding_mask"]).sum(dim=(1, 2))
        return lengths
    if "src_tokens" in net_input:
        return net_input["src_tokens"].ne(pad).sum(dim=1)
    audio = net_input["source"] if "source" in net_input else net_input["features"]
    padding = net_input["padding_mask"]
    if padding is None:
        return torch.full(audio.shape[:1], audio.shape[1])
    return (~padding).sum(dim=1)


def with_limits(
    generator: SequenceGenerator, limits: Tensor, strategy: Search | None = None
) -> SequenceGenerator:
    """A copy of a generator for one batch, whose sentences have at most `limits` (B,) tokens.

    strategy: in place of the generator's own

    As in fairseq, eos is the only token that can follow the last one, and a sentence is finished
    then even if fewer hypotheses than `beam_size` have ended.

    Raises MemAttnError for diverse beams with several hypotheses a group: fairseq goes on with
    those that have ended.
    """
    groups, beam = getattr(generator.search, "num_groups", None), generator.beam_size
    if groups not in (None, beam):
        raise MemAttnError(f"--diverse-beam-groups must be --beam {beam}, but is {groups}")
    search = LimitedSearch(strategy or generator.search, limits.cpu(), generator.eos)
    limited = copy.copy(generator)
    limited._modules = generator._modules | {"search": search}
    limited.max_len_a, limited.max_len_b = 0, int(limits.max())
    limited.is_finished = search.is_finished
    return limited


class LimitedSearch(nn.Module):
    """A search strategy of fairseq for one batch, in which each sentence has a largest length.

    search: the strategy; limits: (B,), on the CPU; eos: index of the symbol

    Raises MemAttnError if no hypothesis of a sentence can end at its limit.
    """

    def __init__(self, search: Search, limits: Tensor, eos: int) -> None:
        super().__init__()
        self.search, self.limits, self.eos = search, limits, eos
        self.init_constraints = search.init_constraints
        self.update_constraints = search.update_constraints
        self.set_src_lengths = search.set_src_lengths
        self.supports_constraints = search.supports_constraints
        self.stop_on_max_len = search.stop_on_max_len
        self.rows = torch.arange(len(limits))
        self.least, self.prefixes = torch.zeros_like(limits), torch.zeros_like(limits)

    def require(self, least: int | Tensor, prefixes: Tensor) -> None:
        """At least `least` tokens, those of the prefix included, which may end earlier itself.

        least: of all sentences, or (B,); prefixes: (B,), the lengths of the prefixes, on the CPU
        """
        self.least, self.prefixes = torch.as_tensor(least).expand_as(prefixes), prefixes

    def prune_sentences(self, kept: Tensor) -> None:
        self.search.prune_sentences(kept)
        kept = kept.cpu()
        self.limits, self.rows = self.limits[kept], self.rows[kept]
        self.least, self.prefixes = self.least[kept], self.prefixes[kept]

    def step(
        self, step: int, log_probs: Tensor, scores: Tensor, tokens: Tensor, ids: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The step of the strategy, with eos alone for sentences at their limit.

        Sentences with a prefix have no eos between it and the smallest length.

        log_probs: (B, K, V) for K hypotheses of each sentence; changed in place
        """
        short = (self.prefixes <= step) & (step < self.least)
        if short.any():
            log_probs[short, :, self.eos] = -math.inf
        full = self.limits <= step
        if full.any():
            log_probs[full, :, : self.eos] = -math.inf
            log_probs[full, :, self.eos + 1 :] = -math.inf
        if isinstance(self.search, DiverseBeamSearch):
            ids = self.rows.to(ids)  # which it uses as rows of the batch
        found: tuple[Tensor, Tensor, Tensor] = self.search.step(
            step, log_probs, scores, tokens, ids
        )
        if full.any() and not self.stop_on_max_len:
            self._check_ends(found[0][full], full)
        return found

    def _check_ends(self, candidates: Tensor, full: Tensor) -> None:
        dead = candidates.eq(-math.inf).all(dim=1).cpu()
        if dead.any():
            limit = int(self.limits[full][dead][0])
            raise MemAttnError(
                f"a hypothesis cannot end after {limit} tokens, the limit that --max-len-a and "
                "--max-len-b give its sentence, because its constraints are not met or "
                "--no-repeat-ngram-size forbids it; raise the limit"
            )

    def is_finished(
        self, step: int, row: int, max_len: int, finalized: int, beam_size: int
    ) -> bool:
        """fairseq's `is_finished` with the limit of the row in place of `max_len`."""
        return finalized == beam_size or step >= int(self.limits[row])


def cut_prefixes(prefixes: Tensor, limits: Tensor, pad: int) -> Tensor:
    """Prefixes (B, P) with padding after each sentence's limit, where only eos can follow."""
    places = torch.arange(prefixes.shape[1], device=prefixes.device)
    return prefixes.masked_fill(places >= limits.to(prefixes.device).unsqueeze(1), pad)
