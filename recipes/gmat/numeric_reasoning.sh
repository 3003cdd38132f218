#!/usr/bin/env bash
# Numeric reasoning over text, the GMAT paper's table 3, with a small GenBERT: does a memory make up
# for attention in chunks, tied to the decoder or not?
#
#   recipes/gmat/numeric_reasoning.sh SYSTEM
#
#   SYSTEM  full     attention over the whole input, the paper's (140 x 1, 0)
#           chunks   in chunks of about half of it, (70 x 2, 0)
#           tied     in chunks and with a memory, (70 x 2, 30)
#           untied   likewise, with projections of its own for the attention that updates the memory
#
#   SENTENCES of a passage (default: 2)               LARGEST number that somebody has or gains at
#                                                             once (default: 9)
#   CHUNK   tokens of a chunk (default: 16)           MEMORY  vectors (default: 8)
#   START   tokens of a chunk in what all begin with (default: 16)
#   TRAIN   examples to train on (default: 100000)    BATCH   examples (default: 128)
#   BASE    updates in chunks of START, and as many of full attention, that all begin with (default:
#           3000)
#   UPDATES of each system after that (default: 1000) SEED    default 1
#   WORK    data and results (default: outputs/gmat)  BIN     programs (default: .venv/bin)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#
# The paper's sizes are SENTENCES=5 LARGEST=9999 TRAIN=223067 START=70 CHUNK=70 MEMORY=30.
#
# The paper begins with BERT. The systems of a seed begin here with one model without a memory, trained
# on the same examples in chunks at first, which is learned sooner.
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES, BASE, BATCH or examples is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
system=$1
WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} BASE=${BASE:-3000} UPDATES=${UPDATES:-1000}
SENTENCES=${SENTENCES:-2} LARGEST=${LARGEST:-9} TRAIN=${TRAIN:-100000} BATCH=${BATCH:-128}
CHUNK=${CHUNK:-16} START=${START:-16} MEMORY=${MEMORY:-8}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
for name in BASE UPDATES BATCH SENTENCES LARGEST TRAIN CHUNK START MEMORY; do
  whole "$name" "${!name}" 1
done
case $system in
  full) chunk=512 memory= ;;
  chunks) chunk=$CHUNK memory= ;;
  tied) chunk=$CHUNK memory="--gmat-memory $MEMORY" ;;
  untied) chunk=$CHUNK memory="--gmat-memory $MEMORY --gmat-memory-projections qkv" ;;
  *) echo "error: SYSTEM must be full, chunks, tied or untied, but is $system" >&2; exit 2 ;;
esac
data=$WORK/numbers base=$WORK/numbers/base-$START-$SEED
run=$WORK/numbers/$system-$CHUNK-$MEMORY-$SEED
task="--user-dir fairseq_memattn $DEVICE --task translation -s input -t answer"

# answering FOLDER UPDATES CHUNK RATE WARMUP FLAGS...
answering() {
  trained "$1" "$2" "$data/bin" $task --criterion sequence_tagging --arch gmat_genbert_tiny \
    --gmat-chunk "$3" --encoder-normalize-before --dropout 0.0 --attention-dropout 0.0 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr "$4" --warmup-updates "$5" \
    --clip-norm 1.0 --batch-size "$BATCH" --validate-interval-updates 1000 "${@:6}"
}

programs
"$BIN"/python data_prep/numeric_reasoning.py --output "$data" --train "$TRAIN" \
  --sentences "$SENTENCES" --largest "$LARGEST"

one_budget "$run" "$UPDATES"
for folder in "$base/chunks" "$run"; do one_setting "$folder" BATCH START; done
answering "$base/chunks" "$BASE" "$START" 1e-3 500 --gmat-memory 0 \
  --lr-scheduler polynomial_decay --total-num-update "$BASE"
answering "$base/full" "$BASE" 512 1e-3 50 --gmat-memory 0 --lr-scheduler fixed \
  --finetune-from-model "$base/chunks/checkpoint_last.pt"

start=$base/full/checkpoint_last.pt
if [ -n "$memory" ]; then
  start=$run.start.pt
  if [ ! -e "$start" ]; then
    "$BIN"/memattn convert "$data/bin" --path "$base/full/checkpoint_last.pt" \
      --arch gmat_genbert_tiny --output "$start" --seed "$SEED" --flags="$memory"
  fi
fi
answering "$run" "$UPDATES" "$chunk" 5e-4 50 ${memory:---gmat-memory 0} \
  --lr-scheduler polynomial_decay --total-num-update "$UPDATES" --finetune-from-model "$start"

"$BIN"/fairseq-validate "$data/bin" $task --path "$run/checkpoint_last.pt" --valid-subset test \
  --batch-size "$BATCH" --required-batch-size-multiple 1 --log-format json |
  grep -o '"test_accuracy": .*"test_exact_match": "[^"]*"' |
  sed -E 's/.*accuracy": "([^"]*)".*match": "([^"]*)"/digits \1 %, exact match \2 %/' |
  tee "$run.score"
