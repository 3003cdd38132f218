"""The scripts of recipes/: what is wrong is told in one sentence, before any work."""

import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fairseq_memattn.attention.controls import CONTROLS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("command", "settings", "message"),
    [
        ("t5mem/discourse.sh", {}, "usage: recipes/t5mem/discourse.sh VARIANT"),
        ("t5mem/discourse.sh v5", {}, "error: the system must be t5, v1, v2, v3 or v4, but is v5"),
        ("t5mem/discourse.sh v1", {"UPDATES": "x"}, "error: UPDATES must be a whole number"),
        (
            "t5mem/documents.sh bible v1",
            {},
            "usage: recipes/t5mem/documents.sh CORPUS SYSTEM STAGE",
        ),
        (
            "t5mem/documents.sh iwslt v1 scratch",
            {},
            "error: CORPUS must be bible or chat, but is iwslt",
        ),
        (
            "t5mem/documents.sh chat ws scratch",
            {},
            "error: the system must be t5, v1, v2, v3 or v4",
        ),
        (
            "t5mem/documents.sh chat v1 aware",
            {},
            "error: STAGE must be agnostic, scratch or finetuned",
        ),
        (
            "t5mem/documents.sh chat v1 agnostic",
            {"SEED": "-1"},
            "error: SEED must be a whole number",
        ),
        ("t5mem/documents.sh chat v1 agnostic", {}, "error: no folder "),
        ("abc/multi30k.sh softmax", {"UPDATES": "0"}, "error: UPDATES must be a whole number of 1"),
        (
            "abc/wikitext2.sh softmax",
            {"UPDATES": "0"},
            "error: UPDATES must be a whole number of 1",
        ),
        (
            "t5mem/squad.sh t5 v1",
            {},
            "usage: recipes/t5mem/squad.sh [ARCH], but the number of arguments is 2",
        ),
        (
            "abc/conversion.sh abc-32-8 plain",
            {},
            "usage: recipes/abc/conversion.sh KIND SYSTEM MET",
        ),
        (
            "abc/conversion.sh x abc-8 plain",
            {},
            "error: KIND must be translation, language_model or",
        ),
        (
            "abc/conversion.sh translation abc-32 plain",
            {},
            "error: SYSTEM must be softmax or CONTROL-CROSS-CAUSAL",
        ),
        (
            "abc/conversion.sh masked_lm a-8-8 plain",
            {},
            "error: SYSTEM must be softmax or CONTROL-S",
        ),
        (
            "abc/conversion.sh masked_lm abc-8 x",
            {},
            "error: METHOD must be plain, transfer, low-rank",
        ),
        (
            "abc/conversion.sh masked_lm softmax low-rank",
            {},
            "error: METHOD must be plain for softmax",
        ),
        (
            "abc/conversion.sh masked_lm abc-8 low-rank",
            {"RANK": "0"},
            "error: RANK must be a whole",
        ),
        (
            "abc/conversion.sh masked_lm abc-8 plain",
            {"UPDATES": "9"},
            "error: UPDATES must be a whole",
        ),
        (
            "abc/conversion.sh translation abc-32-8 transfer",
            {"CONTINUED": "20", "TRANSFERRED": "20"},
            "error: TRANSFERRED must be less than CONTINUED 20, but is 20",
        ),
        (
            "abc/conversion_table.sh translation x",
            {},
            "usage: recipes/abc/conversion_table.sh [KIND], but the number of arguments is 2",
        ),
        (
            "abc/conversion_table.sh x",
            {},
            "error: KIND must be translation, language_model or masked",
        ),
        (
            "abc/conversion_table.sh",
            {"CONVERSIONS": "abc-8-8:plain abc-8-8:transfer-plain"},
            "error: METHOD must be plain, transfer, low-rank or transfer-low-rank, but is trans",
        ),
        (
            "abc/conversion_table.sh language_model",
            {"CONVERSIONS": "abc-8:transfer window-8:transfer-low-rank"},
            "error: METHOD must be plain or low-rank for window-8, whose control has no weights to",
        ),
        (
            "abc/conversion_table.sh masked_lm",
            {"CONVERSIONS": "abc-8:plain abc:plain"},
            "error: SYSTEM must be softmax or CONTROL-SLOTS, but is abc",
        ),
        (
            "abc/wikitext2.sh abc-post",
            {},
            "error: SYSTEM must be softmax or CONTROL-SLOTS, and -post may follow, but is abc-post",
        ),
        (
            "abc/conversion_table.sh language_model",
            {"CONVERSIONS": "abc-8:plain abc-8-post:plain"},
            "error: SYSTEM must be without -post, because the model that is converted has",
        ),
        (
            "abc/masked_lm.sh",
            {},
            "usage: recipes/abc/masked_lm.sh SYSTEM, but the number of arguments is 0",
        ),
        (
            "abc/masked_lm.sh abc-0",
            {},
            "error: SYSTEM must be softmax or CONTROL-SLOTS, but is abc-0",
        ),
        ("abc/masked_lm.sh abc-8", {"UPDATES": "3"}, "error: UPDATES must be a whole number of 4"),
        (
            "recall/run.sh needle workspace-8",
            {},
            "error: SYSTEM workspace-8: the control workspace",
        ),
        (
            "recall/run.sh needle local_global-1",
            {},
            "error: SYSTEM must have two slots or more for",
        ),
        (
            "recall/table.sh",
            {"NEEDLES": "workspace-8"},
            "error: SYSTEM workspace-8: the control work",
        ),
        ("abc/masked_lm.sh abc-8", {}, "error: no folder "),
        (
            "abc/masked_lm.sh local_global-1",
            {},
            "error: SYSTEM must have two slots or more for local_global, but is local_global-1",
        ),
        ("abc/wikitext2.sh abc-8", {"CONTEXTS": "0 x"}, "error: CONTEXTS must be a whole number"),
        (
            "abc/wikitext2.sh abc-8",
            {"CONTEXTS": "0 512"},
            "error: CONTEXTS must be less than the LENGTH 512 of a segment, but has 512",
        ),
        (
            "abc/conversion_table.sh masked_lm",
            {"LR": "x"},
            "error: LR must be a number above 0, but is x",
        ),
        (
            "abc/conversion.sh translation abc-8-8 plain",
            {"LR": "0.0"},
            "error: LR must be a number above 0, but is 0.0",
        ),
        (
            "t5mem/stories_table.sh",
            {"SYSTEMS": "t5-1 v4-5", "LENGTH": "96"},
            "error: the CHUNKS of SYSTEM must divide LENGTH 96, but are 5",
        ),
        (
            "gmat/majority_table.sh",
            {"CELLS": "512-1-chunks-8 510-1-chunks-8"},
            "error: LENGTH must be a multiple of 4, but is 510",
        ),
        (
            "gmat/majority_table.sh",
            {"CELLS": "512-1-chunks-8 1032-1-chunks-8"},
            "each a quarter of the next, but is 1032, and 258 is not",
        ),
        (
            "recall/table.sh",
            {"SYSTEMS": "softmax local_global-1"},
            "error: SYSTEM must have two slots or more for local_global, but is local_global-1",
        ),
        (
            "t5mem/stories.sh v4-5",
            {"SENTENCES": "2", "LENGTH": "64"},
            "error: the CHUNKS of SYSTEM must divide LENGTH 64, but are 5",
        ),
        (
            "abc/wikitext2.sh local_global-1",
            {},
            "error: SYSTEM must have two slots or more for local_global, but is local_global-1",
        ),
        (
            "abc/multi30k_table.sh x",
            {},
            "usage: recipes/abc/multi30k_table.sh, but the number of arguments is 1",
        ),
        (
            "abc/multi30k_table.sh",
            {"SYSTEMS": "softmax abc"},
            "error: SYSTEM must be softmax or CONTROL-CROSS-CAUSAL[-VARIANT], but is abc",
        ),
        ("abc/multi30k_table.sh", {"SEEDS": "1 x"}, "error: SEEDS must be a whole number of 0"),
        (
            "recall/run.sh mlp-8",
            {},
            "usage: recipes/recall/run.sh FORM SYSTEM, but the number of arguments is 1",
        ),
        ("recall/run.sh hay mlp-8", {}, "error: FORM must be multi_query or needle, but is hay"),
        (
            "recall/run.sh needle mlp",
            {},
            "error: SYSTEM must be softmax or CONTROL-SLOTS, several with + between them, one",
        ),
        ("recall/run.sh needle mlp-8+", {}, "mlp-SLOTS-relu, but is mlp-8+"),
        ("recall/run.sh needle mlp-8+softmax-only", {}, "but is mlp-8+softmax-only"),
        ("recall/run.sh needle gated-8-relu", {}, "but is gated-8-relu"),
        (
            "recall/run.sh needle global-8+mlp-8",
            {},
            "error: SYSTEM must have global and local_global alone, whose stride is of the whole",
        ),
        ("recall/run.sh needle mlp-8", {"UPDATES": "0"}, "error: UPDATES must be a whole number"),
        (
            "recall/table.sh x",
            {},
            "usage: recipes/recall/table.sh, but the number of arguments is 1",
        ),
        ("recall/table.sh", {"SEEDS": "1 x"}, "error: SEEDS must be a whole number of 0 or more"),
        (
            "recall/table.sh",
            {"NEEDLES": "mlp"},
            "error: SYSTEM must be softmax or CONTROL-SLOTS, several with + between them, one",
        ),
        (
            "recall/table.sh",
            {"SYSTEMS": "softmax foo-8"},
            "error: SYSTEM foo-8 has the control foo,",
        ),
        (
            "recall/run.sh needle foo-8",
            {},
            "error: SYSTEM foo-8 has the control foo, which is none",
        ),
        (
            "abc/multi30k.sh workspace-8-8",
            {},
            "error: SYSTEM must have no causal slots for workspace, such as workspace-32-0, but is",
        ),
        ("abc/multi30k.sh foo-8-8", {}, "error: SYSTEM foo-8-8 has the control foo, which is none"),
        (
            "abc/wikitext2.sh workspace-8",
            {},
            "error: SYSTEM workspace-8: the control workspace has no",
        ),
        ("abc/wikitext2.sh foo-8", {}, "error: SYSTEM foo-8 has the control foo, which is none of"),
        ("abc/masked_lm.sh foo-8", {}, "error: SYSTEM foo-8 has the control foo, which is none of"),
        (
            "long_documents/run.sh gmat-foo-0-64",
            {},
            "error: SYSTEM gmat-foo-0-64 has the control foo, which is none of",
        ),
        (
            "t5mem/stories.sh",
            {},
            "usage: recipes/t5mem/stories.sh SYSTEM, but the number of arguments is 0",
        ),
        (
            "t5mem/stories.sh t5-1",
            {"BIASES": "fast"},
            "error: BIASES must be scaled or plain, but is fast",
        ),
        ("t5mem/stories.sh t5-4", {}, "error: SYSTEM must be t5-1, or v1, v2, v3, v4, ws or"),
        ("t5mem/stories.sh v5-4", {}, "error: SYSTEM must be t5-1, or v1, v2, v3, v4, ws or"),
        (
            "t5mem/stories.sh v1-3",
            {"SENTENCES": "9", "LENGTH": "100"},
            "error: the CHUNKS of SYSTEM must divide LENGTH 100, but are 3",
        ),
        (
            "t5mem/stories.sh ws_wma-4",
            {"FACTS": "1,2"},
            "error: FACTS must be some of 1, 2 and 3, with spaces between them, but is 1,2",
        ),
        (
            "t5mem/stories.sh ws-4",
            {"SENTENCES": "1"},
            "error: SENTENCES must be a whole number of 2 or more, but is 1",
        ),
        (
            "t5mem/stories.sh v1-4",
            {"LENGTH": "32"},
            "error: LENGTH must be a whole number of 72 or more, but is 32",
        ),
        (
            "t5mem/stories.sh v1-4",
            {"LENGTH": "56", "QUESTION": "first"},
            "error: LENGTH must be a whole number of 57 or more, but is 56",
        ),
        (
            "t5mem/stories.sh v1-4",
            {"QUESTION": "last"},
            "error: QUESTION must be each or first, but is last",
        ),
        (
            "t5mem/stories.sh v1-2",
            {"SENTENCES": "2", "OVERLAP": "13"},
            "error: OVERLAP must be less than 13, the room for the story in a chunk, but is 13",
        ),
        (
            "t5mem/stories.sh v1-4",
            {"FROM": "no.pt"},
            "error: FROM must be a model of fairseq, but there is no file no.pt",
        ),
        ("t5mem/stories.sh v1-9", {}, "and CHUNKS from 1 to 8, like v1-4, but is v1-9"),
        ("t5mem/stories_table.sh", {"SYSTEMS": "v1-4 t5-2"}, "like v1-4, but is t5-2"),
        ("t5mem/stories_table.sh", {"FROM": "a.pt"}, "error: FROM must have the word SYSTEM, for"),
        (
            "t5mem/stories_table.sh",
            {"FROM": "SYSTEM.pt"},
            "error: FROM must have the word SEED, for which each of SEEDS is put, but is SYSTEM.pt",
        ),
        (
            "t5mem/stories_table.sh",
            {"FROM": "SYSTEM-SEED.pt", "SYSTEMS": "t5-1 v4-1", "SEEDS": "3"},
            "error: FROM must be a model of fairseq, but there is no file t5-1-3.pt",
        ),
        (
            "t5mem/stories_table.sh",
            {"FACTS": "1 4"},
            "error: FACTS must be some of 1, 2 and 3, with",
        ),
        (
            "t5mem/stories_table.sh v1-4",
            {},
            "usage: recipes/t5mem/stories_table.sh, but the number of arguments is 1",
        ),
        ("t5mem/stories.sh v1-4", {"UPDATES": "0"}, "error: UPDATES must be a whole number of 1"),
        ("t5mem/stories.sh v1-4", {}, "error: no fairseq-train in nowhere; run make env, or"),
        ("stream/run.sh 8", {}, "usage: recipes/stream/run.sh, but the number of arguments is 1"),
        ("stream/run.sh", {"SYSTEMS": "x"}, "error: SYSTEMS must be windows, none, decay or sent"),
        (
            "t5mem/documents_table.sh x",
            {},
            "usage: recipes/t5mem/documents_table.sh, but the number of arguments is 1",
        ),
        ("t5mem/documents_table.sh", {"UPDATES": "9"}, "error: UPDATES is of one stage; give it"),
        ("t5mem/documents_table.sh", {"STAGES": "x"}, "error: STAGE must be agnostic, scratch or"),
        ("t5mem/documents_table.sh", {"SYSTEMS": "t6"}, "error: the system must be t5, v1, v2, v3"),
        (
            "t5mem/documents_table.sh",
            {"CORPUS": "x"},
            "error: CORPUS must be bible or chat, but is",
        ),
        (
            "gmat/compression_table.sh x",
            {},
            "usage: recipes/gmat/compression_table.sh, but the number of arguments is 1",
        ),
        (
            "gmat/compression_table.sh",
            {"SYSTEMS": "8x1-0"},
            "error: SYSTEMS must be 64x1-0, 64x1-0-uN or 64x1",
        ),
        ("gmat/compression_table.sh", {"SEEDS": "x"}, "error: SEEDS must be a whole number of 0"),
        (
            "long_documents/run.sh",
            {},
            "usage: recipes/long_documents/run.sh SYSTEM, but the number of arguments is 0",
        ),
        ("long_documents/run.sh gmat-4", {}, "error: SYSTEM must be transformer, gmat or gmat-"),
        ("long_documents/run.sh gmat", {"UPDATES": "0"}, "error: UPDATES must be a whole number"),
        ("long_documents/run.sh gmat", {}, "error: no folder "),
        (
            "long_documents/table.sh x",
            {},
            "usage: recipes/long_documents/table.sh, but the number of arguments is 1",
        ),
        ("long_documents/table.sh", {"SYSTEMS": "x"}, "error: SYSTEMS must be of run.sh, but has"),
        ("long_documents/table.sh", {"REPEATS": "0"}, "error: REPEATS must be a whole number of 1"),
        (
            "abc/slot_grid.sh",
            {"CROSS": "8 x"},
            "error: CROSS must be a whole number of 1 or more, bu",
        ),
        (
            "abc/slot_grid.sh",
            {"SEEDS": "x"},
            "error: SEEDS must be a whole number of 0 or more, but",
        ),
        (
            "abc/slot_grid.sh 8",
            {},
            "usage: recipes/abc/slot_grid.sh, but the number of arguments is 1",
        ),
        ("abc/wikitext2.sh abc-64", {"LENGTH": "0"}, "error: LENGTH must be a whole number of 1"),
        ("abc/wikitext2.sh abc-64", {"LENGTH": "8192"}, "error: LENGTH must be at most 4096, the"),
        (
            "abc/wikitext2_table.sh 8",
            {},
            "usage: recipes/abc/wikitext2_table.sh, but the number of arguments is 1",
        ),
        ("abc/wikitext2_table.sh", {"SYSTEMS": "abc"}, "error: SYSTEM must be softmax or CONTROL"),
        ("abc/wikitext2_table.sh", {"SEEDS": "x"}, "error: SEEDS must be a whole number of 0"),
        (
            "abc/wikitext2_table.sh",
            {"CONTEXTS": "480"},
            'error: CONTEXTS must be 0 or "0 480", but is 480',
        ),
        (
            "gmat/wikitext2_table.sh 8",
            {},
            "usage: recipes/gmat/wikitext2_table.sh, but the number of arguments is 1",
        ),
        (
            "gmat/wikitext2_table.sh",
            {"SYSTEMS": "64x8-0 64x8"},
            "error: SYSTEMS must be CHUNKxCOUNT-M of wikitext2.sh, but has 64x8",
        ),
        ("gmat/wikitext2_table.sh", {"SEEDS": "x"}, "error: SEEDS must be a whole number of 0"),
        (
            "abc/wikitext2_lengths.sh 8",
            {},
            "usage: recipes/abc/wikitext2_lengths.sh, but the number of arguments is 1",
        ),
        ("abc/wikitext2_lengths.sh", {"SEEDS": "x"}, "error: SEEDS must be a whole number of 0"),
        ("abc/wikitext2_lengths.sh", {"LENGTHS": "x"}, "error: LENGTHS must be a whole number of"),
        (
            "abc/wikitext2_lengths.sh",
            {"SYSTEMS": "softmax linformer-64"},
            "error: SYSTEMS must be controls without a longest sequence",
        ),
        ("abc/wikitext2_lengths.sh", {"SYSTEMS": "a"}, "error: SYSTEM must be softmax or CONTROL"),
        ("gmat/majority.sh chunks-8", {}, "error: no fairseq-train in nowhere; run make env, or"),
        ("t5mem/wikitext2.sh", {}, "usage: recipes/t5mem/wikitext2.sh SYSTEM"),
        ("t5mem/wikitext2.sh t5-4", {}, "error: SYSTEM must be t5-1, mem-1, "),
        ("t5mem/wikitext2.sh mem-4", {}, "error: no folder "),
        ("gmat/majority.sh", {}, "usage: recipes/gmat/majority.sh SYSTEM [LENGTH] [PAIRS]"),
        ("gmat/majority.sh window-8", {}, "error: SYSTEM must be chunks-M or lsh-M, like chunks-8"),
        (
            "gmat/majority.sh lsh-8 many",
            {},
            "error: LENGTH must be a whole number of 1 or more, but is",
        ),
        ("gmat/majority.sh lsh-8 510", {}, "error: LENGTH must be a multiple of 4, but is 510"),
        (
            "gmat/majority.sh lsh-8",
            {"CHUNK": "30"},
            "error: CHUNK must be a multiple of 4, but is 30",
        ),
        (
            "gmat/majority.sh lsh-8",
            {"PROJECTIONS": "own"},
            "error: PROJECTIONS must be none, qkv or qkvo, but is own",
        ),
        ("gmat/majority.sh lsh-8", {"CHUNK": "x"}, "error: CHUNK must be a whole number"),
        ("gmat/numeric_reasoning.sh", {}, "usage: recipes/gmat/numeric_reasoning.sh SYSTEM"),
        (
            "gmat/numeric_reasoning.sh free",
            {},
            "error: SYSTEM must be full, chunks, tied or untied",
        ),
        (
            "gmat/numeric_reasoning.sh full",
            {"UPDATES": "-1"},
            "error: UPDATES must be a whole number",
        ),
        (
            "gmat/numeric_reasoning.sh full",
            {"DECODING": "5"},
            "error: DECODING must be at most LAYERS, 4, but is 5",
        ),
        ("gmat/numeric_reasoning.sh full", {"SIZE": "66"}, "error: SIZE must be a multiple of 4"),
        ("t5mem/squad.sh", {"CHUNKS": "0"}, "error: CHUNKS must be a whole number of 1 or more"),
        (
            "t5mem/discourse.sh v3",
            {"UPDATES": "0"},
            "error: UPDATES must be a whole number of 1 or more, but is 0",
        ),
        (
            "gmat/majority_table.sh x",
            {},
            "usage: recipes/gmat/majority_table.sh, but the number of arguments is 1",
        ),
        (
            "gmat/majority_table.sh",
            {"CELLS": "512-1-chunks-8 512-chunks-8"},
            "error: CELLS must be LENGTH-PAIRS-SYSTEM of majority.sh, but has 512-chunks-8",
        ),
        (
            "gmat/majority_table.sh",
            {"UPDATES": "20"},
            "error: a cell sets UPDATES; give it to recipes/gmat/majority.sh",
        ),
        (
            "gmat/numeric_table.sh x",
            {},
            "usage: recipes/gmat/numeric_table.sh, but the number of arguments is 1",
        ),
        (
            "gmat/numeric_table.sh",
            {"SYSTEMS": "full bound"},
            "error: SYSTEMS must be of full, chunks, tied and untied, but has bound",
        ),
        ("gmat/wikitext2.sh", {}, "usage: recipes/gmat/wikitext2.sh SYSTEM"),
        (
            "gmat/wikitext2.sh 64-32",
            {},
            "error: SYSTEM must be CHUNKxCOUNT-M, CHUNKxCOUNT-M-cN with N",
        ),
        (
            "gmat/wikitext2.sh 64x8-32-c4",
            {},
            "error: SYSTEM must be CHUNKxCOUNT-M, CHUNKxCOUNT-M-cN with N",
        ),
        (
            "gmat/wikitext2.sh 512x1-0-c3",
            {},
            "error: SYSTEM 512x1-0-c3 keeps a memory alone that has no vectors",
        ),
        ("gmat/wikitext2.sh 64x8-32", {}, "error: no folder "),
        ("gmat/compress.sh 64x8-32-c3", {}, "error: no trained model with compression in "),
        (
            "gmat/stories.sh",
            {},
            "usage: recipes/gmat/stories.sh SYSTEM, but the number of arguments is 0",
        ),
        ("gmat/stories.sh 31", {}, "error: SYSTEM must be CHUNK-MEMORY or CHUNK-MEMORY-LAYERS,"),
        ("gmat/stories.sh 31-0-2", {}, "error: SYSTEM 31-0-2 keeps a memory alone that has no"),
        (
            "gmat/stories.sh 31-0",
            {"SENTENCES": "2"},
            "error: SENTENCES must be a whole number of 3 or more, but is 2",
        ),
        ("gmat/stories.sh 31-0", {"BASE": "0"}, "error: BASE must be a whole number of 1 or more"),
        ("gmat/stories.sh 31-0", {}, "error: no fairseq-train in nowhere; run make env, or"),
        (
            "gmat/stories_table.sh x",
            {},
            "usage: recipes/gmat/stories_table.sh, but the number of arguments is 1",
        ),
        ("gmat/stories_table.sh", {"SYSTEMS": "31-0 full"}, "CHUNK-MEMORY-LAYERS, like 64-16, but"),
        ("gmat/squad.sh", {}, "usage: recipes/gmat/squad.sh SYSTEM"),
        (
            "gmat/squad.sh dense",
            {},
            "error: SYSTEM must be CHUNK-MEMORY or CHUNK-MEMORY-LAYERS, like",
        ),
        ("gmat/squad.sh 0-16", {}, "error: SYSTEM must be CHUNK-MEMORY"),
        ("gmat/squad.sh 64-16-4", {}, "error: SYSTEM must be CHUNK-MEMORY"),
        (
            "gmat/squad.sh 64-0-2",
            {},
            "error: SYSTEM 64-0-2 keeps a memory alone that has no vectors",
        ),
        (
            "gmat/squad.sh 64-16",
            {"FROM": "no.pt"},
            "error: FROM must be a model of fairseq, but there is no file no.pt",
        ),
        ("gmat/squad.sh 64-16", {"SEED": "-1"}, "error: SEED must be a whole number"),
        ("gmat/squad.sh 64-16", {}, "must hold dev-v1.1.json and one train-*.json; set DATA"),
        ("gpu.sh --small", {}, "error: the argument must be --tiny or none, but is --small"),
        ("gpu.sh", {"BUDGET": "8m"}, "error: BUDGET must be a whole number of 1 or more, but is"),
        ("gpu.sh", {"TOKENS": "4096"}, "error: TOKENS must be at least 8192, the longest input,"),
        ("gpu.sh", {"SIZE": "100"}, "error: SIZE must be a multiple of 8, the heads, but is 100"),
        ("gpu.sh", {}, "error: no folder "),
        (
            "wheelhouse.sh 3.12",
            {},
            "usage: recipes/wheelhouse.sh VERSION FOLDER, but the number of arguments is 1",
        ),
        ("wheelhouse.sh 3.10 out", {}, "error: VERSION must be 3.11 or 3.12, but is 3.10"),
        ("wheelhouse.sh 3.12 docs", {}, "error: docs must be a new or empty folder, but has files"),
        ("wheelhouse.sh 3.12 out", {}, "error: no python in nowhere; run make env, or set BIN"),
    ],
)
def test_refused_in_one_sentence(command, settings, message, tmp_path):
    done = script(tmp_path, command, settings)
    assert done.returncode != 0 and message in done.stderr and not done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_help_is_what_heads_the_script(tmp_path):
    done = script(tmp_path, "gmat/majority.sh --help")
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Majority tagging, the GMAT paper's table 1")
    assert "  recipes/gmat/majority.sh SYSTEM [LENGTH] [PAIRS]" in lines
    assert lines[-1] == (
        "of another SHORT, UPDATES, CHUNK, ROUNDS, BATCH or PROJECTIONS is refused, "
        "and needs another WORK."
    )


def test_a_recipe_goes_from_any_folder(tmp_path):
    done = subprocess.run(
        ["bash", f"{os.path.relpath(ROOT, tmp_path)}/recipes/gmat/majority.sh"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stderr.startswith("usage: recipes/gmat/majority.sh SYSTEM [LENGTH] [PAIRS], but")


def test_finetuning_needs_a_model_that_is_trained(tmp_path):
    """A training by sentence that was interrupted is none to go on from."""
    command = "t5mem/documents.sh chat v1 finetuned"
    agnostic = tmp_path / "work" / "chat" / "v1-agnostic-1"
    wanted = (
        f"error: no trained model in {agnostic}; run recipes/t5mem/documents.sh chat v1 agnostic"
    )
    assert wanted in script(tmp_path, command).stderr
    agnostic.mkdir(parents=True)
    (agnostic / "checkpoint_last.pt").touch()
    assert wanted in script(tmp_path, command).stderr
    (agnostic / "trained-2000").touch()
    assert (
        "error: no folder " in script(tmp_path, command).stderr
    )  # of the corpus, which comes next


def test_a_training_of_other_settings_is_not_gone_on_with(tmp_path):
    commands = (
        "source recipes/common.sh; CHUNK=64; one_setting $1 CHUNK BATCH; one_budget $1 $BATCH"
    )

    def begin(batch):
        return subprocess.run(
            ["bash", "-c", commands, "recipes/gmat/majority.sh", tmp_path / "run"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "BATCH": batch},
            capture_output=True,
            text=True,
        )

    assert begin("4").returncode == 0
    assert begin("16").returncode == 0  # the first failed before it had trained anything
    (tmp_path / "run" / "checkpoint_last.pt").touch()
    assert begin("16").returncode == 0
    assert begin("8").stderr == (
        f"error: {tmp_path}/run is a training with CHUNK=64 BATCH=16, not with BATCH=8; "
        "keep to them, or set another WORK\n"
    )
    (tmp_path / "run" / "settings").unlink()
    assert "is a training of 16 updates, not of 8; keep to them" in begin("8").stderr


@pytest.mark.parametrize("trained", ["2000", "20"])
def test_a_score_of_another_budget_is_no_row(trained, tmp_path):
    """The table's budget is 2000 unless it is set."""
    run = tmp_path / "work" / "multi30k" / "softmax-1"
    run.mkdir(parents=True)
    (run / f"trained-{trained}").touch()
    run.with_suffix(".score").write_text("BLEU|nrefs:1 = 30 60/40/30/20\nppl 8\nchrF2|x = 50\n")
    settings = {"SYSTEMS": "softmax", "SEEDS": "1", "BIN": str(Path(sys.executable).parent)}
    for updates in (None, "2000", "20"):
        given = settings if updates is None else settings | {"UPDATES": updates}
        done = script(tmp_path, "abc/multi30k_table.sh", given)
        if (updates or "2000") == trained:
            assert done.returncode == 0 and "| `softmax` | 1 | 30.00 |" in done.stdout
        else:
            assert done.returncode == 2 and f"is a training of {trained} updates" in done.stderr


def test_the_language_models_of_wikitext2(tmp_path):
    """A score without one of the contexts is evaluated again, for which there are no data here."""
    for system, seed, values in (
        ("softmax", 1, (240, 220)),
        ("softmax", 2, (250, 230)),
        ("abc-64", 1, (264, 231)),
        ("abc-64", 2, (255, 230)),
    ):
        run = tmp_path / "work" / "wikitext-2" / f"{system}-{seed}"
        run.mkdir(parents=True)
        (run / "trained-1200").touch()
        lines = zip(("valid, context 0", "test, context 0"), values, strict=True)
        text = "".join(f"{name}: perplexity {value}.00\n" for name, value in lines)
        run.with_suffix(".score").write_text(text)
    given = {"SYSTEMS": "softmax abc-64", "SEEDS": "1 2", "BIN": str(Path(sys.executable).parent)}
    done = script(tmp_path, "abc/wikitext2_table.sh", given)
    assert "| `abc-64` | 2 | 259.50 ± 6.36 | 230.50 ± 0.71 | 1.060 ± 0.057 | 21.1 |" in done.stdout
    done = script(tmp_path, "abc/wikitext2_table.sh", given | {"CONTEXTS": "0 480"})
    assert done.returncode == 2 and done.stderr.startswith("error: no folder ")
    done = script(tmp_path, "abc/wikitext2_table.sh", given | {"UPDATES": "30"})
    assert done.returncode == 2 and "is a training of 1200 updates" in done.stderr


def fake_programs(folder, *names):
    """Each adds its arguments to NAME.calls, and prints a row of `memattn perplexity`."""
    folder.mkdir()
    for name in names:
        program = folder / name
        program.write_text('#!/bin/sh\necho "$*" >> "$0.calls"\necho context 480 170.5 7.4 9 1.0\n')
        program.chmod(0o755)


def test_scores_of_further_contexts_are_added(tmp_path):
    work, programs, data = tmp_path / "work" / "wikitext-2", tmp_path / "bin", tmp_path / "data"
    for folder in (work / "abc-8-1", data / "wikitext-2"):
        folder.mkdir(parents=True)
    for mark in (work / "abc-8-1" / "trained-1200", work / "ready"):
        mark.touch()
    score = work / "abc-8-1.score"
    score.write_text("valid, context 0: perplexity 190.5\ntest, context 0: perplexity 180.5\n")
    fake_programs(programs, "fairseq-train", "memattn")
    given = {"CONTEXTS": "0 480", "BIN": str(programs), "DATA": str(data), "DEVICE": ""}
    before = score.read_text()
    for _ in range(2):
        done = script(tmp_path, "abc/wikitext2.sh abc-8", given)
        assert done.returncode == 0, done.stderr
        added = "valid, context 480: perplexity 170.5\ntest, context 480: perplexity 170.5\n"
        assert score.read_text() == before + added
    calls = (programs / "memattn.calls").read_text().splitlines()
    assert [call.split("--subset ")[1] for call in calls] == [
        f"{subset} --context-window 480" for subset in ("valid", "test")
    ]
    assert not (programs / "fairseq-train.calls").exists()


@pytest.mark.parametrize(
    ("command", "flags", "others"),
    [
        (
            "recall/run.sh needle mlp-8+window-4+softmax",
            "--abc-causal-layers window:2,mlp:8,window:4,softmax --decoder-layers 4",
            "",
        ),
        (
            "recall/run.sh needle mlp-8-relu",
            "--abc-causal-layers window:2,mlp:8 --abc-activation relu --decoder-layers 2",
            "",
        ),
        (
            "recall/run.sh multi_query linformer-8",
            "--abc-max-length 128 --no-token-positional-embeddings",
            "--abc-activation",
        ),
        (
            "recall/run.sh needle mlp-8+linformer-8",
            "--abc-causal-layers window:2,mlp:8,linformer:8 --abc-max-length 256 "
            "--abc-phi-layers separate",
            "",
        ),
        (
            "recall/run.sh needle mlp-8-only",
            "--abc-causal-layers mlp:8 --decoder-layers 2",
            "--no-token-positional",
        ),
        ("abc/wikitext2.sh abc-8", "--decoder-normalize-before --abc-causal-slots 8", ""),
        ("abc/wikitext2.sh abc-8-post", "--abc-causal-slots 8", "--decoder-normalize-before"),
    ],
)
def test_the_system_decides_the_flags(command, flags, others, tmp_path):
    programs, data = tmp_path / "bin", tmp_path / "data"
    for folder in (data / "wikitext-2", tmp_path / "work" / "wikitext-2"):
        folder.mkdir(parents=True)
    fake_programs(programs, "fairseq-train", "fairseq-preprocess", "memattn", "python")
    done = script(tmp_path, command, {"BIN": str(programs), "DATA": str(data)})
    assert done.returncode == 0, done.stderr
    (call,) = (programs / "fairseq-train.calls").read_text().splitlines()
    words = call.split()
    given = {*words, *(" ".join(pair) for pair in pairwise(words))}
    assert {f"--{flag}".strip() for flag in flags.split("--")[1:]} <= given
    assert not others or others not in call


def test_a_score_whose_training_is_gone_stays_until_there_is_another(tmp_path):
    score = tmp_path / "work" / "wikitext-2" / "softmax-1.score"
    score.parent.mkdir(parents=True)
    score.write_text("test, context 480: perplexity 180.5\n")
    done = script(tmp_path, "abc/wikitext2.sh softmax", {"CONTEXTS": "480"})
    assert done.returncode == 2 and done.stderr.startswith("error: no folder ")
    assert score.read_text() == "test, context 480: perplexity 180.5\n"


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ("global 64 512", "--abc-stride 8"),
        ("global 3 64", "--abc-stride 22"),
        ("local_global 17 512", "--abc-stride 64 --abc-local-window 9"),
        ("window 16 64", ""),
    ],
)
def test_global_tokens_are_spread_over_the_length(given, flags):
    """Their number times the stride is the length or a little more."""
    done = subprocess.run(
        ["bash", "-c", f"source recipes/common.sh; spread SYSTEM {given}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == flags.split()


def test_the_masked_words_of_wikitext2(tmp_path):
    work = tmp_path / "work" / "wikitext-2"
    (work / "base-1" / "64").mkdir(parents=True)
    for system, perplexity in (("8x64-0", 17.1), ("8x64-64", 16.6)):
        run = work / f"{system}-1"
        run.mkdir()
        (run / "trained-500").touch()
        run.with_suffix(".score").write_text(f"test: error 54.1 %, perplexity {perplexity}\n")
    given = {"SYSTEMS": "8x64-0 8x64-64", "SEEDS": "1", "BIN": str(Path(sys.executable).parent)}
    done = script(tmp_path, "gmat/wikitext2_table.sh", given)
    assert "| `8x64-64` | 1 | 16.60 | 54.10 | -0.50 | 4.94 |" in done.stdout, done.stderr


def test_compression_is_compared_at_as_many_updates(tmp_path):
    work = tmp_path / "work" / "wikitext-2"
    (work / "base-1" / "64").mkdir(parents=True)
    for system, trained, perplexity in (
        ("64x1-0-u2500", 2500, 12),
        ("64x1-0", 500, 15),
        ("64x1-16-c1", 500, 18),
    ):
        run = work / f"{system}-1"
        (run / "copy").mkdir(parents=True)
        (run / f"trained-{trained}").touch()
        run.with_suffix(".score").write_text(f"test: error 54 %, perplexity {perplexity}\n")
    (work / "64x1-16-c1-1.recovered.txt").write_text("90 % of the tokens\n")
    given = {"SEEDS": "1", "BIN": str(Path(sys.executable).parent)}
    done = script(tmp_path, "gmat/compression_table.sh", given)
    assert "| `64x1-16-c1` | 1 | 18.00 | 54.00 | 1.500 |" in done.stdout, done.stderr
    done = script(tmp_path, "gmat/compression_table.sh", given | {"UPDATES": "300"})
    assert done.returncode == 2 and "is a training of 500 updates, not of 300" in done.stderr


def test_stories_of_several_facts_have_a_column_for_each(tmp_path):
    stories = tmp_path / "work" / "stories" / "9-sentences-facts-1-2"
    for system, right in (("t5-1", 82.6), ("v4-1", 77.0)):
        run, model = stories / f"{system}-1", tmp_path / f"{system}-1.pt"
        model.touch()
        run.mkdir(parents=True)
        (run / "trained-2000").touch()
        settings = f"BEGIN=1000 FROM={model} TRAIN=200000 LENGTH=61 LAYERS=4 BIASES=scaled"
        (run / "settings").write_text(f"{settings}\n")
        rows = "1            517         99.8                  14.5\n"
        rows += f"2            483         {right}                  14.5\n"
        rows += f"all         1000         {right + 9}                  14.5\n"
        run.with_suffix(".score").write_text(rows)
    given = {"SYSTEMS": "t5-1 v4-1", "SEEDS": "1", "FACTS": "1 2", "SENTENCES": "9"}
    given |= {"FROM": str(tmp_path / "SYSTEM-SEED.pt"), "BIN": str(Path(sys.executable).parent)}
    done = script(tmp_path, "t5mem/stories_table.sh", given)
    assert "| `v4-1` | 1 | 86.00 | 99.80 | 77.00 | -5.60 |" in done.stdout, done.stderr


def test_a_finished_run_of_other_settings_is_refused(tmp_path):
    run = tmp_path / "work" / "majority" / "512-1-chunks-8-1"
    run.mkdir(parents=True)
    run.with_suffix(".score").write_text("accuracy 99 %, exact match 98 %\n")
    (run / "trained-300").touch()
    settings = "SHORT=400 CHUNK=64 ROUNDS=2 BATCH=16 PROJECTIONS=none"
    (run / "settings").write_text(f"{settings}\n")
    given = {"CELLS": "512-1-chunks-8", "SEEDS": "1", "BIN": str(Path(sys.executable).parent)}
    done = script(tmp_path, "gmat/majority_table.sh", given)
    assert done.returncode == 0 and "| 98.00 |" in done.stdout, done.stderr
    done = script(tmp_path, "gmat/majority_table.sh", given | {"CHUNK": "32"})
    assert (
        done.returncode == 2
        and f"is a training with {settings}, not with CHUNK=32; keep" in done.stderr
    )


STORIES = "BEGIN=1000 FROM= TRAIN=200000 LENGTH=72 QUESTION=each OVERLAP=5 LAYERS=4 BIASES=scaled"
# a script, its score, its trainings, the settings of one, and variables that it refuses
FINISHED = [
    ("abc/multi30k.sh abc-8-8", "multi30k/abc-8-8-1.score", ["multi30k/abc-8-8-1/trained-2000"]),
    (
        "abc/conversion.sh translation abc-8-8 plain",
        "conversion/translation/abc-8-8-plain-1.score",
        [
            "multi30k/softmax-1/trained-2000",
            "conversion/translation/abc-8-8-plain-1/tuned/trained-100",
        ],
        "TRANSFERRED=0 RANK=0 LR=1e-3",
        {"LR": "1e-4"},
        {"CONTINUED": "90"},
        {"UPDATES": "2010"},
    ),
    (
        "t5mem/documents.sh chat v1 finetuned",
        "chat/v1-finetuned-1.score",
        ["chat/v1-finetuned-1/trained-500"],
    ),
    (
        "long_documents/run.sh gmat",
        "documents-140/gmat-1.score",
        ["documents-140/base-1/trained-1500", "documents-140/gmat-1/trained-1200"],
        "",
        {"BASE": "20"},
    ),
    (
        "gmat/wikitext2.sh 64x1-16-c1",
        "wikitext-2/64x1-16-c1-1.score",
        [
            "wikitext-2/base-1/64/trained-1500",
            "wikitext-2/64x1-16-c1-1/copy/trained-2000",
            "wikitext-2/64x1-16-c1-1/trained-500",
        ],
        "",
        {"BASE": "20"},
        {"COPY": "20"},
    ),
    (
        "gmat/stories.sh 8-8",
        "stories/4-sentences-8-8-1.score",
        ["stories/4-sentences-8-8-1/trained-2500"],
        "BEGIN=1500 BASE=5000 TRAIN=100000",
        {"BEGIN": "20"},
        {"BASE": "20"},
        {"TRAIN": "2000"},
    ),
    (
        "t5mem/stories.sh v4-4",
        "stories/6-sentences-facts-1/v4-4-1.score",
        ["stories/6-sentences-facts-1/v4-4-1/trained-2000"],
        STORIES,
        {"BEGIN": "20"},
        {"TRAIN": "2000"},
        {"LAYERS": "2"},
        {"BIASES": "plain"},
    ),
    ("recall/run.sh needle mlp-8", "needle/mlp-8-1.tsv", ["needle/mlp-8-1/trained-1500"]),
    (
        "abc/masked_lm.sh abc-8",
        "masked_lm/abc-8-1.score",
        ["masked_lm/abc-8-1/trained-2500"],
    ),
]


@pytest.mark.parametrize(
    ("command", "score", "trained", "settings", "refused"),
    [(*case[:3], case[3] if case[3:] else "", case[4:]) for case in FINISHED],
    ids=[case[0] for case in FINISHED],
)
def test_a_finished_run_shows_its_score(command, score, trained, settings, refused, tmp_path):
    """Without its corpus, and not for other settings."""
    work, given = tmp_path / "work", {"BIN": str(Path(sys.executable).parent)}
    for marker in trained:
        (work / marker).parent.mkdir(parents=True, exist_ok=True)
        (work / marker).touch()
    if settings:
        (work / trained[-1]).with_name("settings").write_text(f"{settings}\n")
    (work / score).parent.mkdir(parents=True, exist_ok=True)
    (work / score).write_text("measured\n")
    done = script(tmp_path, command, given)
    assert (done.returncode, done.stdout) == (0, "measured\n"), done.stderr
    for other in ({"UPDATES": "30"}, *refused):
        done = script(tmp_path, command, given | other)
        assert done.returncode == 2 and "is a training " in done.stderr, other
        assert not done.stdout


def test_a_score_without_its_training_is_not_shown(tmp_path):
    score = tmp_path / "work" / "multi30k" / "softmax-1.score"
    score.parent.mkdir(parents=True)
    score.write_text("BLEU|nrefs:1 = 30 60/40/30/20\n")
    done = script(tmp_path, "abc/multi30k.sh softmax", {})
    assert done.returncode == 2 and done.stderr.startswith("error: no folder ")


def test_the_controls_of_recipes_are_all():
    listed = subprocess.run(
        ["bash", "-c", "source recipes/common.sh; echo $controls", "recipes/gpu.sh"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(listed.stdout.split()) == {*CONTROLS, "elu", "rfa", "t2r"}


@pytest.mark.parametrize(("updates", "steps"), [(2000, 200), (500, 200), (300, 150), (1, 0)])
def test_the_warm_up_ends_before_the_training(updates, steps):
    command = f"source recipes/common.sh; warmup {updates}"
    done = subprocess.run(
        ["bash", "-c", command, "recipes/gpu.sh"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == f"{steps}\n"


def test_the_demo_trains_the_model_of_its_yaml():
    """The flags of run.sh have the values of discourse.yaml."""
    script = (ROOT / "recipes/demo/run.sh").read_text().replace("\\\n", " ")
    flags = shlex.split(re.search(r"/fairseq-train (.*)", script)[1], comments=True)
    task = shlex.split(re.search(r'documents="(.*)"', script)[1])
    recipe = OmegaConf.load(ROOT / "recipes/demo/discourse.yaml")
    assert flag(task, "task") == recipe.task._name
    for side in ("source", "target"):
        assert flag(task, f"{side}-context") == str(recipe.task[f"{side}_context"])
    assert flag(flags, "arch") == recipe.model._name
    assert [float(flag(flags, "lr"))] == recipe.optimization.lr
    settings = {
        **recipe.model,
        **recipe.dataset,
        **recipe.criterion,
        **recipe.optimizer,
        **recipe.lr_scheduler,
        "clip_norm": recipe.optimization.clip_norm,
        "seed": recipe.common.seed,
        "log_interval": recipe.common.log_interval,
    }
    for name, value in settings.items():
        if value is True:
            assert f"--{name.replace('_', '-')}" in flags
        elif name != "_name":
            assert flag(flags, name).replace(" ", "") == str(value), name
    assert f"UPDATES:-{recipe.optimization.max_update}}}" in script


def test_a_score_is_written_as_a_whole():
    """The tables do not repeat a run that has its score."""
    for path in (ROOT / "recipes").rglob("*.sh"):
        assert not re.search(r"tee [^\n]*\.score\"?$", path.read_text(), re.MULTILINE), path


def flag(flags, name):
    return flags[flags.index(f"--{name.replace('_', '-')}") + 1]


def script(folder, command, settings=None):
    places = {"DATA": str(folder / "data"), "WORK": str(folder / "work"), "BIN": "nowhere"}
    name, *arguments = command.split()
    return subprocess.run(
        [f"recipes/{name}", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **places, **(settings or {})},
        capture_output=True,
        text=True,
    )
