#!/usr/bin/env bash
# Fine-tunes a pretrained translator of transformers on documents, with softmax attention and with
# bounded memories, and scores each with context.
#
#   recipes/conversion/translator.sh MODEL TEXT SOURCE TARGET FOLDER
#
#   MODEL           folder of a Marian model, such as Helsinki-NLP/opus-mt-en-de
#   TEXT            prefix of train.SOURCE, train.TARGET and train.docid, and the same of dev and test
#   SOURCE, TARGET  languages, by the suffixes of the text
#   FOLDER          for data and models; those that it has are not made again
#
#   BIN             programs (default: .venv/bin)
#   SYSTEMS         default: softmax local_mlp mlp
#   SLOTS           of cross attention, and half as many of causal attention (default: 64)
#   TRAINING        flags of fairseq-train, in the place of those below
#
# The defaults are for one GPU; SLOTS=8 TRAINING='--optimizer adam --lr 1e-4 --max-tokens 1000
# --max-update 20 --cpu' is a trial on a CPU.
set -euo pipefail
start=$PWD
cd -P "$(dirname "${BASH_SOURCE[0]}")/../.."
case ${1:-} in -h|--help) sed -n '1d; /^#/!q; s/^# \{0,1\}//p' recipes/conversion/translator.sh; exit ;; esac
if [ $# -ne 5 ]; then
  echo "usage: recipes/conversion/translator.sh MODEL TEXT SOURCE TARGET FOLDER, but the number of arguments is $#" >&2
  exit 2
fi
# A path as it is from the folder in which the command was given.
from_start() { case $1 in /*) echo "$1" ;; *) echo "$start/$1" ;; esac; }
model=$(from_start "$1") text=$(from_start "$2") source=$3 target=$4 folder=$(from_start "$5") bin=${BIN:-.venv/bin} slots=${SLOTS:-64}
training=${TRAINING:---optimizer adam --lr 3e-5 --lr-scheduler inverse_sqrt --warmup-updates 500
  --max-tokens 4096 --update-freq 4 --max-update 5000 --fp16 --patience 5}
context=(--task document_translation --source-context 3 --target-context 3)
imported=$folder/imported
mkdir -p "$folder"
[ -d "$imported" ] || "$bin/memattn" import-transformers "$model" --output "$folder/model.pt" \
  --dictionaries "$imported" --source-lang "$source" --target-lang "$target"
"$bin/memattn" prepare own-corpus --text "train=${text}train" "valid=${text}dev" "test=${text}test" \
  --langs "$source" "$target" --output "$folder/data" --dictionary "$imported/dict.$source.txt" \
  --sentencepiece-model "$imported/spm.$source.model" "$imported/spm.$target.model"
for system in ${SYSTEMS:-softmax local_mlp mlp}; do
  here=$folder/$system arch=abc_${system}_transformer
  flags="--abc-cross-slots $slots --abc-causal-slots $((slots / 2))"
  case $system in softmax) arch=pretrained_transformer flags= ;; esac
  if [ ! -d "$here/exported" ]; then
    mkdir -p "$here"
    "$bin/memattn" convert "$folder/data/bin" --path "$folder/model.pt" --arch "$arch" --flags="$flags" \
      --context-separator _eos --output "$here/start.pt" > "$here/convert.txt"
    # shellcheck disable=SC2046,SC2086
    "$bin/fairseq-train" "$folder/data/bin" --user-dir fairseq_memattn --finetune-from-model "$here/start.pt" \
      $(sed -n 's/^ *\(--arch [^\\]*\).*/\1/p' "$here/convert.txt") "${context[@]}" --source-lang "$source" \
      --target-lang "$target" --criterion label_smoothed_cross_entropy --label-smoothing 0.1 $training \
      --save-dir "$here" --no-epoch-checkpoints > "$here/train.log"
    "$bin/memattn" export --path "$here/checkpoint_best.pt" --data "$folder/data/bin" --output "$here/exported"
  fi
  [ -f "$here/test.$target" ] || "$bin/memattn" translate "$here/exported" --input "${text}test.$source" \
    --docids "${text}test.docid" --output "$here/test.$target"
  echo "$system"
  "$bin/memattn" score --system "$here/test.$target" --reference "${text}test.$target" --docids "${text}test.docid"
done
