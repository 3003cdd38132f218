#!/usr/bin/env bash
# Masked language modelling on WikiText-2, the GMAT paper's tables 5 and 6, with a small model: chunks
# with and without a memory, and texts compressed to it.
#
#   recipes/gmat/wikitext2.sh SYSTEM
#
#   SYSTEM  CHUNKxCOUNT-M, in the paper's notation (CHUNK x COUNT, M): 64x8-0, 64x8-32, 512x1-0, 8x64-0
#           ..., and CHUNKxCOUNT-M-cN to keep the memory alone after N of the 4 layers: 64x1-16-c1;
#           CHUNKxCOUNT-M-uN has N updates in place of UPDATES: 64x1-0-u2500
#
#   DATA    folder with wikitext-2/{train,valid,test}.txt (default: data)
#   WORK    results (default: outputs/gmat)           SEED     default 1
#   BASE    updates of what all systems begin with, on 64 tokens at a time and on 512 (default: 1500)
#   UPDATES of each system after that, and of each length that is compressed (default: 500)
#   COPY    updates of those that compress in which they predict most tokens (default: 2000)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#   BIN     programs (default: .venv/bin)
#
# The paper begins with BERT. The systems of a seed begin here with one model from scratch, without a
# memory, that reads texts of 64 tokens for BASE updates, of 128 and 256 for 150 each, and of 512 for
# BASE more: so small a model is slow to learn where to look in 512 at once. Systems of shorter texts
# begin with what has read texts of their length, and those that compress with what has read texts of 64.
# For COPY updates these compress them and predict nine tenths of the tokens, of which 15 % are
# masked and 2 % replaced; then masked tokens of texts of 64, 128 and 256, for UPDATES each. An update is
# 4096 tokens.
#
# Prints the error, the per cent of masked pieces predicted wrongly, and the perplexity. Paths are the
# repository's unless they begin with a slash. A run that stopped is gone on with; one of other UPDATES,
# BASE or COPY is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/wikitext2_pieces.sh
system=$1
DATA=${DATA:-data} WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} BASE=${BASE:-1500} UPDATES=${UPDATES:-500}
COPY=${COPY:-2000}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
for name in BASE UPDATES COPY; do whole "$name" "${!name}" 1; done
if ! [[ $system =~ ^([1-9][0-9]*)x([1-9][0-9]*)-([0-9]+)(-c([1-3])|-u([1-9][0-9]*))?$ ]]; then
  echo "error: SYSTEM must be CHUNKxCOUNT-M, CHUNKxCOUNT-M-cN with N from 1 to 3 or CHUNKxCOUNT-M-uN, like" \
    "64x8-32, but is $system" >&2
  exit 2
fi
UPDATES=${BASH_REMATCH[6]:-$UPDATES}
chunk=${BASH_REMATCH[1]} length=$((BASH_REMATCH[1] * BASH_REMATCH[2])) memory=${BASH_REMATCH[3]}
compressed=${BASH_REMATCH[5]} flags="--gmat-memory $memory"
if [ -n "$compressed" ]; then
  flags="$flags --gmat-compress-after $compressed --gmat-memory-positions"
fi
if ((compressed && memory == 0)); then
  echo "error: SYSTEM $system keeps a memory alone that has no vectors; M must be 1 or more" >&2
  exit 2
fi
data=$WORK/wikitext-2 run=$WORK/wikitext-2/$system-$SEED base=$WORK/wikitext-2/base-$SEED
task="--user-dir fairseq_memattn $DEVICE --task masked_lm"

# filling FOLDER UPDATES LENGTH CHUNK FLAGS...
filling() {
  trained "$1" "$2" "$data/bin" $task --tokens-per-sample "$3" --sample-break-mode none \
    --criterion masked_lm_error --arch gmat_bert_tiny --encoder-normalize-before \
    --gmat-chunk "$4" --gmat-position-block 64 --dropout 0.0 --attention-dropout 0.0 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --max-tokens 4096 \
    --log-interval 50 "${@:5}"
}

if [ -s "$run.score" ]; then
  one_budget "$base/64" "$BASE"
  if [ -n "$compressed" ]; then one_budget "$run/copy" "$COPY"; fi
fi
finished "$run.score" "$run" "$UPDATES"
wikitext2_pieces "$data" 2000

one_budget "$run" "$UPDATES"
mkdir -p "$base"
filling "$base/64" "$BASE" 64 64 --gmat-memory 0 --lr-scheduler fixed --lr 2e-3 --warmup-updates 300
from=64
while ((!compressed && from < 512 && 2 * from <= length)); do from=$((2 * from)); done
for ((size = 128; size <= from; size *= 2)); do
  updates=$((size < 512 ? 150 : BASE))
  filling "$base/$size" "$updates" "$size" "$size" --gmat-memory 0 --lr-scheduler fixed --lr 1e-3 \
    --warmup-updates 20 --finetune-from-model "$base/$((size / 2))/checkpoint_last.pt"
done

start=$base/$from/checkpoint_last.pt
if [ "$memory" -gt 0 ]; then
  start=$run.start.pt
  if [ ! -e "$start" ]; then
    "$BIN"/memattn convert "$data/bin" --path "$base/$from/checkpoint_last.pt" \
      --arch gmat_bert_tiny --output "$start" --seed "$SEED" --flags="$flags"
  fi
fi
if [ -n "$compressed" ]; then
  size=$((length < 64 ? length : 64))
  filling "$run/copy" "$COPY" "$size" $((chunk < size ? chunk : size)) $flags --lr 2e-3 \
    --lr-scheduler polynomial_decay --total-num-update "$COPY" --warmup-updates 50 \
    --finetune-from-model "$start" --mask-prob 0.9 --leave-unmasked-prob 0.83 --random-token-prob 0.017
  start=$run/copy/checkpoint_last.pt
fi
for ((size = 64; compressed && size < length; size *= 2)); do
  filling "$run/$size" "$UPDATES" "$size" $((chunk < size ? chunk : size)) $flags --lr 1e-3 \
    --lr-scheduler fixed --warmup-updates 50 --finetune-from-model "$start"
  start=$run/$size/checkpoint_last.pt
done
filling "$run" "$UPDATES" "$length" "$chunk" $flags --lr 1e-3 --lr-scheduler polynomial_decay \
  --total-num-update "$UPDATES" --warmup-updates 50 --finetune-from-model "$start"

for subset in valid test; do
  "$BIN"/fairseq-validate "$data/bin" $task --path "$run/checkpoint_last.pt" --max-tokens 8192 \
    --valid-subset "$subset" --required-batch-size-multiple 1 --log-format json |
    grep -o "\"${subset}_error\": .*\"${subset}_ppl\": \"[^\"]*\"" |
    sed -E "s/.*error\": \"([^\"]*)\".*ppl\": \"([^\"]*)\"/$subset: error \1 %, perplexity \2/"
done | tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
