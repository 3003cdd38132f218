#!/usr/bin/env bash
# Numeric reasoning over text, the GMAT paper's table 3, with a small GenBERT that nothing has
# pretrained: does a memory make up for attention in chunks, tied to the decoder or not?
#
#   recipes/gmat/numeric_reasoning.sh SYSTEM
#
#   SYSTEM  full     attention over the whole input, (140 x 1, 0)
#           chunks   in chunks, (70 x 2, 0)
#           tied     in chunks and with 30 memory vectors, (70 x 2, 30)
#           untied   likewise, the memory with projections of its own
#
#   WORK    data and results (default: outputs/gmat)  SEED    default 1
#   UPDATES of training (default: 6000)               BIN     programs (default: .venv/bin)
#   BATCH   examples (default: 64)                    TRAIN   examples to train on (default: 223067)
#   LARGEST number that somebody has or gains at once (default: 9999)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
system=$1
WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} UPDATES=${UPDATES:-6000} BATCH=${BATCH:-64}
TRAIN=${TRAIN:-223067} LARGEST=${LARGEST:-9999}
DEVICE=${DEVICE:---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
for name in UPDATES BATCH TRAIN LARGEST; do whole "$name" "${!name}" 1; done
case $system in
  full) flags="--gmat-chunk 512 --gmat-memory 0" ;;
  chunks) flags="--gmat-chunk 70 --gmat-memory 0" ;;
  tied) flags="--gmat-chunk 70 --gmat-memory 30" ;;
  untied) flags="--gmat-chunk 70 --gmat-memory 30 --gmat-memory-projections qkv" ;;
  *) echo "error: SYSTEM must be full, chunks, tied or untied, but is $system" >&2; exit 2 ;;
esac
data=$WORK/numbers run=$WORK/numbers/$system-$SEED

programs
"$BIN"/python data_prep/numeric_reasoning.py --output "$data" --train "$TRAIN" \
  --largest "$LARGEST"

task="--user-dir fairseq_memattn $DEVICE --task translation -s input -t answer"
one_budget "$run" "$UPDATES"
if [ ! -e "$run/trained-$UPDATES" ]; then  # fairseq would train for one update more
  "$BIN"/fairseq-train "$data/bin" $task --criterion sequence_tagging --arch gmat_genbert_tiny \
    $flags --dropout 0.0 --attention-dropout 0.0 --optimizer adam --adam-betas '(0.9, 0.98)' \
    --lr 1e-3 --lr-scheduler polynomial_decay --total-num-update "$UPDATES" --warmup-updates 500 \
    --clip-norm 1.0 --batch-size "$BATCH" --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
    --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval-updates 500 \
    --keep-interval-updates 1 --validate-interval-updates 1000 --save-dir "$run" \
    --log-format simple --log-interval 100 --log-file "$run.log"
  touch "$run/trained-$UPDATES"
fi

"$BIN"/fairseq-validate "$data/bin" $task --path "$run/checkpoint_last.pt" --valid-subset test \
  --batch-size "$BATCH" --required-batch-size-multiple 1 --log-format json |
  grep -o '"test_accuracy": .*"test_exact_match": "[^"]*"' |
  sed -E 's/.*accuracy": "([^"]*)".*match": "([^"]*)"/digits \1 %, exact match \2 %/' |
  tee "$run.score"
