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
#   CHUNK   tokens of a chunk (default: 16)           MEMORY  vectors (default: 16)
#   LAYERS  of the model (default: 4)                 DECODING the last of them, that decode as well
#                                                             (default: 1)
#   SIZE    of its states (default: 64)               BATCH   examples (default: 64)
#   TRAIN   examples to train on (default: 100000)    BASE    updates of full attention that all
#                                                             begin with (default: 10000)
#   UPDATES of each system after that (default: 5000) SEED    default 1
#   WORK    data and results (default: outputs/gmat)  BIN     programs (default: .venv/bin)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#
# The paper's data and chunks are SENTENCES=5 LARGEST=9999 TRAIN=223067 CHUNK=70 MEMORY=30; its model
# is that of recipes/gmat/numeric_reasoning.yaml.
#
# The paper begins with BERT. The systems of a seed begin here with one model without a memory, trained
# on the same examples with full attention. A decoder of all layers would do much of what the encoder
# is to do, since it reads all chunks.
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES, BASE, BATCH or examples is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
system=$1
WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} BASE=${BASE:-10000} UPDATES=${UPDATES:-5000}
SENTENCES=${SENTENCES:-2} LARGEST=${LARGEST:-9} TRAIN=${TRAIN:-100000} BATCH=${BATCH:-64}
CHUNK=${CHUNK:-16} MEMORY=${MEMORY:-16} LAYERS=${LAYERS:-4} DECODING=${DECODING:-1} SIZE=${SIZE:-64}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
for name in BASE UPDATES BATCH SENTENCES LARGEST TRAIN CHUNK MEMORY LAYERS DECODING SIZE; do
  whole "$name" "${!name}" 1
done
if [ "$DECODING" -gt "$LAYERS" ]; then
  echo "error: DECODING must be at most LAYERS, $LAYERS, but is $DECODING" >&2
  exit 2
fi
if [ $((SIZE % 4)) -ne 0 ]; then
  echo "error: SIZE must be a multiple of 4, the heads, but is $SIZE" >&2
  exit 2
fi
case $system in
  full) name=full chunk=512 memory= ;;
  chunks) name=chunks-$CHUNK chunk=$CHUNK memory= ;;
  tied) name=tied-$CHUNK-$MEMORY chunk=$CHUNK memory="--gmat-memory $MEMORY" ;;
  untied)
    name=untied-$CHUNK-$MEMORY chunk=$CHUNK
    memory="--gmat-memory $MEMORY --gmat-memory-projections qkv"
    ;;
  *) echo "error: SYSTEM must be full, chunks, tied or untied, but is $system" >&2; exit 2 ;;
esac
data=$WORK/numbers model=$LAYERS-$DECODING-$SIZE
base=$data/base-$model-$SEED run=$data/$name-$model-$SEED
task="--user-dir fairseq_memattn $DEVICE --task translation -s input -t answer"
sizes="--encoder-layers $LAYERS --decoder-layers $DECODING --encoder-normalize-before
  --encoder-embed-dim $SIZE --encoder-ffn-embed-dim $((4 * SIZE))"

# answering FOLDER UPDATES CHUNK FLAGS...
answering() {
  trained "$1" "$2" "$data/bin" $task --criterion sequence_tagging --arch gmat_genbert_tiny $sizes \
    --gmat-chunk "$3" --dropout 0.0 --attention-dropout 0.0 --optimizer adam \
    --adam-betas '(0.9, 0.98)' --lr 1.5e-3 --warmup-updates 500 --clip-norm 1.0 \
    --batch-size "$BATCH" --validate-interval-updates 1000 "${@:4}"
}

programs
"$BIN"/memattn prepare numeric-reasoning --output "$data" --train "$TRAIN" \
  --sentences "$SENTENCES" --largest "$LARGEST"

one_budget "$run" "$UPDATES"
for folder in "$base" "$run"; do one_setting "$folder" BATCH; done
one_budget "$base" "$BASE"
finished "$run.score" "$run" "$UPDATES"
answering "$base" "$BASE" 512 --gmat-memory 0 --lr-scheduler fixed

start=$base/checkpoint_last.pt
if [ -n "$memory" ]; then
  start=$run.start.pt
  if [ ! -e "$start" ]; then
    "$BIN"/memattn convert "$data/bin" --path "$base/checkpoint_last.pt" \
      --arch gmat_genbert_tiny --output "$start" --seed "$SEED" --flags="$memory"
  fi
fi
answering "$run" "$UPDATES" "$chunk" ${memory:---gmat-memory 0} \
  --lr-scheduler polynomial_decay --total-num-update "$UPDATES" --finetune-from-model "$start"

"$BIN"/fairseq-validate "$data/bin" $task --path "$run/checkpoint_last.pt" --valid-subset test \
  --batch-size "$BATCH" --required-batch-size-multiple 1 --log-format json |
  grep -o '"test_accuracy": .*"test_exact_match": "[^"]*"' |
  sed -E 's/.*accuracy": "([^"]*)".*match": "([^"]*)"/digits \1 %, exact match \2 %/' |
  tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
