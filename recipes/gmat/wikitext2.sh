#!/usr/bin/env bash
# Masked language modelling on WikiText-2 from scratch, the GMAT paper's tables 4 to 6, with a small
# model: chunks with and without a memory, and texts compressed to it.
#
#   recipes/gmat/wikitext2.sh SYSTEM
#
#   SYSTEM  CHUNKxCOUNT-M, in the paper's notation (CHUNK x COUNT, M): 64x8-0, 64x8-32, 512x1-0, 8x64-0
#           ..., and CHUNKxCOUNT-M-cN to keep the memory alone after N of the 4 layers: 512x1-64-c3
#
#   DATA    folder with wikitext-2/{train,valid,test}.txt (default: data)
#   WORK    results (default: outputs/gmat)           SEED     default 1
#   UPDATES of 4096 tokens (default: 4000)            BIN      programs (default: .venv/bin)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#
# Prints the error, the per cent of masked pieces predicted wrongly, and the perplexity. Paths are the
# repository's unless they begin with a slash. A run that stopped is gone on with; one of other UPDATES
# is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/wikitext2_pieces.sh
system=$1
DATA=${DATA:-data} WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} UPDATES=${UPDATES:-4000}
DEVICE=${DEVICE:---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
whole UPDATES "$UPDATES" 1
if ! [[ $system =~ ^([1-9][0-9]*)x([1-9][0-9]*)-([0-9]+)(-c([1-3]))?$ ]]; then
  echo "error: SYSTEM must be CHUNKxCOUNT-M or CHUNKxCOUNT-M-cN with N from 1 to 3, like 64x8-32, but" \
    "is $system" >&2
  exit 2
fi
chunk=${BASH_REMATCH[1]} length=$((BASH_REMATCH[1] * BASH_REMATCH[2])) memory=${BASH_REMATCH[3]}
flags="--gmat-chunk $chunk --gmat-memory $memory"
if [ -n "${BASH_REMATCH[5]}" ]; then flags="$flags --gmat-compress-after ${BASH_REMATCH[5]}"; fi
data=$WORK/wikitext-2 run=$WORK/wikitext-2/$system-$SEED

wikitext2_pieces "$data" 2000

task="--user-dir fairseq_memattn $DEVICE --task masked_lm"
one_budget "$run" "$UPDATES"
if [ ! -e "$run/trained-$UPDATES" ]; then  # fairseq would train for one update more
  "$BIN"/fairseq-train "$data/bin" $task --tokens-per-sample "$length" --sample-break-mode none \
    --criterion masked_lm_error --arch gmat_bert_tiny $flags --encoder-normalize-before \
    --dropout 0.0 --attention-dropout 0.0 --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 \
    --lr-scheduler polynomial_decay --total-num-update "$UPDATES" --warmup-updates 300 \
    --clip-norm 1.0 --max-tokens 4096 --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
    --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval-updates 500 \
    --keep-interval-updates 1 --validate-interval-updates 500 --save-dir "$run" \
    --log-format simple --log-interval 100 --log-file "$run.log"
  touch "$run/trained-$UPDATES"
fi

for subset in valid test; do
  "$BIN"/fairseq-validate "$data/bin" $task --path "$run/checkpoint_last.pt" --max-tokens 8192 \
    --valid-subset "$subset" --required-batch-size-multiple 1 --log-format json |
    grep -o "\"${subset}_error\": .*\"${subset}_ppl\": \"[^\"]*\"" |
    sed -E "s/.*error\": \"([^\"]*)\".*ppl\": \"([^\"]*)\"/$subset: error \1 %, perplexity \2/"
done | tee "$run.score"
