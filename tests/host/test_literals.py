"""Literals are read as Python evaluates them, and everything else is refused."""

import ast
import sys
import warnings
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest

from fairseq_memattn.host.safety.literals import MAX_LENGTH, MAX_VALUES, LiteralError, read_literal

# The options that fairseq evaluates; those of its architectures are set with getattr.
OPTIONS = {
    *"adam_betas adamax_betas adafactor_eps lamb_betas wer_args character_filters".split(),
    *"encoder_layers decoder_layers encoder_attention decoder_attention self_attention".split(),
    *"project_input gated_attention downsample pretrained conv_feature_layers".split(),
    *"conv_aggregator_layers adaptive_softmax_cutoff adaptive_input_cutoff".split(),
    *"weight_softmax encoder_glu decoder_glu model_overrides optimizer_overrides".split(),
    *"encoder_kernel_size_list decoder_kernel_size_list pipeline_balance".split(),
}
WRITTEN = [
    *"1 -2 +3 1.5 -1e-30 1_000 0x10 True False None 'a' \"b\" () [] {} (1,) 1,2 {1,2}".split(),
    "{'a': [1, (2, 3)], 4: {'b': None}}",
    " 1",
    "\t[1,\n 2]",
    "[1] * 0",
    "[1] * -3",
    "3 * (1, 2)",
    "2 + 3 * 4",
    "(1,) + (2,) * 2",
    "-(1 + 2)",
    "'a' 'b'",
    "'\u0431\\n'",
    "True + 1",
    "1e999",
]


def defaults():
    """The strings that fairseq's own source gives to these options."""
    folder = Path(find_spec("fairseq").submodule_search_locations[0])
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        named = any(name in text.replace("-", "_") for name in OPTIONS)
        if "examples" in path.relative_to(folder).parts or not named:
            continue
        with warnings.catch_warnings(action="ignore"):  # about fairseq's escape sequences
            tree = ast.parse(text)
        for node in ast.walk(tree):
            yield from strings_given(node)


def strings_given(node):
    """The string constants in `option: type = VALUE`, `args.option = VALUE` and `add_argument`."""
    if isinstance(node, ast.AnnAssign | ast.Assign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {getattr(target, "id", getattr(target, "attr", None)) for target in targets}
        values = [] if node.value is None else [node.value]
        if isinstance(node.value, ast.Call):  # field(default=VALUE), getattr(args, NAME, VALUE)
            default = [key.value for key in node.value.keywords if key.arg == "default"]
            values = default + node.value.args[2:]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
        flags = [part.value for part in node.args if isinstance(part, ast.Constant)]
        names = {str(flag).removeprefix("--").replace("-", "_") for flag in flags}
        values = [key.value for key in node.keywords if key.arg == "default"]
    else:
        return
    if names & OPTIONS:
        found = chain.from_iterable(map(ast.walk, values))
        yield from (
            n.value for n in found if isinstance(n, ast.Constant) and isinstance(n.value, str)
        )


DEFAULTS = sorted(set(defaults()))


def test_the_defaults_are_found():
    assert {"[(512, 3)] * 20", "(0.9, 0.999)", "False", "{}"} <= set(DEFAULTS)
    assert len(DEFAULTS) > 20


@pytest.mark.parametrize("text", [*DEFAULTS, *WRITTEN])
def test_equal_to_eval(text):
    expected = eval(text)
    found = read_literal(text)
    assert found == expected and type(found) is type(expected)
    assert repr(found) == repr(expected)


REFUSED = """
__import__('os').system('x')|open('/tmp/x', 'w')|[1, print(2)]|{'a': exit()}|x|eval|a.b|(1).real
[1][0]|lambda: 1|[x for x in (1, 2)]|f'{1}'|f'{print(1)}'|[*(1, 2)]|{**{}}|(x := 1)|1 if 2 else 3
1 < 2|not 1|~1|2 ** 9|7 / 2|1 - 2|'a' * 3|'a' + 'b'|[1] * 1.5|[1] + (2,)|[] * []|{} * 2|-'a'|-[1]
...|b'a'|1j|{[]: 1}|{[]}|await x|yield
"""


def test_what_is_refused():
    for text in REFUSED.strip().replace("\n", "|").split("|"):
        with pytest.raises(LiteralError) as error:
            read_literal(text)
        assert str(error.value).startswith(f"{text!r} is not a literal: ")
        assert str(error.value).endswith("; nothing of it was run")


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 2", "import os", "x = 1", "1\n2", "(", "'", "\0", "1\0", "\ud800", "#"),
        "(" * 1000 + ")" * 1000,
        "-" * 90_000 + "1",
        "+".join(["1"] * 45_000),
        "9" * 5000,
        "9" * 4000 + " * 1.5",
        "[" * 199 + "]" * 199 + "*" * 3,
    ],
)
def test_what_is_not_one_value(text):
    with pytest.raises(LiteralError, match="it is not the text of one value|is not a literal"):
        read_literal(text)


def test_limits():
    assert len(read_literal(f"[1] * {MAX_VALUES // 2}")) == MAX_VALUES // 2
    for text in (
        f"[1] * {MAX_VALUES + 1}",
        "[1] * 10**9",
        "[[1] * 1000] * 1000",
        "[[[1] * 40] * 40] * 40 * 2",
        f"{sys.maxsize} * [1] * {sys.maxsize}",
        "[1]" + " * 9" * 40,
        "[{1: [2] * 400}] * 400",
        "[1] * 60000 + [1] * 60000",
        "[" + "[1] * 90000, " * 5000 + "]",
    ):
        with pytest.raises(LiteralError):
            read_literal(text)
    with pytest.raises(LiteralError, match=f"it has {MAX_LENGTH + 1} characters, and the limit is"):
        read_literal("1" + " " * MAX_LENGTH)


@pytest.mark.parametrize("value", [None, True, 1, [1], b"1", compile("1", "", "eval")])
def test_only_strings(value):
    """fairseq's `eval_bool` relies on the TypeError."""
    with pytest.raises(TypeError):
        read_literal(value)
