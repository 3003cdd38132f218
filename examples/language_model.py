"""A byte-level language model with a bounded memory, in plain PyTorch.

python examples/language_model.py FILE trains on a text file, reports the validation loss in bits
per character, and generates text from a state whose size does not depend on the length.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from fairseq_memattn.attention.nn import ABCAttention, Rotary


class Block(nn.Module):
    def __init__(
        self, size: int, heads: int, slots: int, control: str, rotary: Rotary | None
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention = ABCAttention(
            size, heads, slots=slots, control=control, causal=True, rotary=rotary
        )
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: Tensor) -> Tensor:  # (B, T, E), all positions at once
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))

    def step(  # further positions
        self, x: Tensor, state: Any, positions: Tensor | None
    ) -> tuple[Tensor, Any]:
        update, state = self.attention.step(self.norm1(x), state, positions=positions)
        x = x + update
        return x + self.mlp(self.norm2(x)), state


class LanguageModel(nn.Module):
    """Predicts the next byte. The layers take the controls in turn.

    A convolution over each byte and the ones before it gives the layers the order of the bytes.

    rotary: rotary positions besides; None is the convolution alone
    """

    def __init__(
        self,
        size: int,
        heads: int,
        layers: int,
        slots: int,
        controls: Sequence[str],
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        self.rotary = rotary
        self.bytes, self.order = nn.Embedding(256, size), nn.Conv1d(size, size, kernel_size=8)
        self.blocks = nn.ModuleList(
            Block(size, heads, slots, controls[n % len(controls)], rotary) for n in range(layers)
        )
        self.out = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 256))

    def embed(self, text: Tensor, before: Tensor) -> Tensor:
        """(B, T, E) of text (B, T) and the 7 bytes before it (B, 7)."""
        x = self.bytes(torch.cat([before, text], dim=1)).transpose(1, 2)
        return self.order(x).transpose(1, 2)

    def forward(self, text: Tensor) -> Tensor:
        """Logits (B, T, 256) of the byte after each byte of text (B, T)."""
        x = self.embed(text, text.new_zeros(len(text), 7))
        for block in self.blocks:
            x = block(x)
        return self.out(x)

    def step(self, text: Tensor, state: list[Any] | None = None) -> tuple[Tensor, list[Any]]:
        """As `forward`, for T >= 1 further bytes. state: of the bytes before, None at the start."""
        start = [text.new_zeros(len(text), 7), text.new_zeros(1)]
        before, read, *states = state or [*start, *[None] * len(self.blocks)]
        after = [torch.cat([before, text], dim=1)[:, -7:], read + text.shape[1]]
        x, positions = self.embed(text, before), None
        if self.rotary is not None:
            positions = read + torch.arange(text.shape[1])
        for block, state_of_block in zip(self.blocks, states, strict=True):
            x, new_state = block.step(x, state_of_block, positions)
            after.append(new_state)
        return self.out(x), after


def read(path: Path, length: int) -> tuple[Tensor, Tensor, float]:
    """The training text, the last tenth for validation, and the bytes per character there."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SystemExit(f"error: cannot read {path}: {error.strerror}") from None
    if len(raw) // 10 <= length:
        raise SystemExit(
            f"error: {path} must have at least {10 * length + 10} bytes for --length {length}, "
            f"but has {len(raw)}; choose a longer file or a smaller --length"
        )
    text = torch.tensor(bytearray(raw), dtype=torch.uint8).long()
    valid = raw[-(len(raw) // 10) :]
    width = len(valid) / len(valid.decode("utf-8", errors="replace"))
    return text[: -len(valid)], text[-len(valid) :], width


def loss_of(model: nn.Module, blocks: Tensor) -> Tensor:
    """The mean cross entropy of blocks of text (B, T + 1), in bits per byte."""
    return cross_entropy(model(blocks[:, :-1]).flatten(0, 1), blocks[:, 1:].flatten()) / math.log(2)


@torch.no_grad()
def validate(model: nn.Module, text: Tensor, length: int) -> float:
    """Bits per byte in the first 200 blocks of `length` bytes."""
    blocks = text.unfold(0, length + 1, length)[:200]
    return sum(loss_of(model, block[None]).item() for block in blocks) / len(blocks)


def train(
    model: nn.Module, text: Tensor, *, updates: int, batch: int, length: int, lr: float
) -> None:
    """Trains on random blocks with Adam. The learning rate rises to `lr`, then falls to 0."""
    optimizer = torch.optim.Adam(model.parameters(), lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=updates + 1)
    progress = tqdm(range(updates), "training", unit=" updates")
    for _ in progress:
        starts = torch.randint(len(text) - length, (batch, 1))
        loss = loss_of(model, text[starts + torch.arange(length + 1)])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress.set_postfix(bits=f"{loss.item():.2f}")


@torch.no_grad()
def generate(
    model: LanguageModel, prompt: bytes, count: int, temperature: float
) -> Iterator[tuple[int, Any]]:
    """Reads the prompt at once, then yields `count` bytes, each with the state before it."""
    text, state = torch.tensor([list(prompt)]), None
    for _ in range(count):
        logits, state = model.step(text, state)
        text = (logits[:, -1] / temperature).softmax(dim=1).multinomial(1)
        yield int(text), state


def state_size(state: list[Any]) -> int:
    """How many numbers a state holds."""
    before, _, *layers = state
    return before.numel() + sum(tensor.numel() for layer in layers for tensor in layer)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = arguments.add_argument
    add("file", type=Path, help="the text file; its last tenth is for validation")
    add("--controls", nargs="+", default=["window", "mlp"], help="controls of the layers, in turn")
    add("--slots", type=int, default=32, help="memory slots of each head")
    add("--rotary", action="store_true", help="rotary positions of queries and keys")
    add("--layers", type=int, default=4, help="number of layers")
    add("--size", type=int, default=128, help="size of the states")
    add("--heads", type=int, default=4, help="heads of each layer; must divide --size")
    add("--length", type=int, default=256, help="bytes of a block, in training and validation")
    add("--batch", type=int, default=8, help="blocks of an update")
    add("--updates", type=int, default=600, help="training updates")
    add("--lr", type=float, default=4e-3, help="highest learning rate")
    add("--seed", type=int, default=1, help="seed of the weights, the batches and the samples")
    add("--prompt", default="The ", help="the beginning of the generated text")
    add("--generate", type=int, default=400, help="bytes to generate")
    add("--temperature", type=float, default=0.7, help="divides the logits; lower is less random")
    add("--device", default="cpu", help="the device, for example cuda")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if not args.prompt or args.temperature <= 0:
        raise SystemExit("error: --prompt must not be empty, and --temperature must be above 0")
    with torch.device(args.device):
        run(args)


def run(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    text, valid, width = read(args.file, args.length)
    try:
        sizes = (args.size, args.heads, args.layers, args.slots)
        model = LanguageModel(*sizes, args.controls, Rotary() if args.rotary else None)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
    before = width * validate(model, valid, args.length)
    print(f"validation before training: {before:.3f} bits per character")
    options = {"updates": args.updates, "batch": args.batch, "length": args.length, "lr": args.lr}
    train(model, text, **options)
    after = width * validate(model, valid, args.length)
    print(f"validation after {args.updates} updates: {after:.3f} bits per character")
    steps = list(generate(model, args.prompt.encode(), args.generate, args.temperature))
    generated = bytes(byte for byte, _ in steps).decode("utf-8", errors="replace")
    print(f"\n{args.prompt}{generated}")
    if steps:
        first, last = state_size(steps[0][1]), state_size(steps[-1][1])
        print(f"\nstate: {first:,} numbers after the prompt, {last:,} at the end")


if __name__ == "__main__":
    main()
