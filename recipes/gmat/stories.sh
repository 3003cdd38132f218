#!/usr/bin/env bash
# Questions about generated stories, answers as spans: the rows of the GMAT paper's table 7, with texts
# that a small model learns to read from nothing.
#
#   recipes/gmat/stories.sh SYSTEM
#
#   SYSTEM     CHUNK-MEMORY: 31-0 attends to the whole input, 8-0 in chunks of 8 tokens, 8-8 likewise and
#              with a memory of 8; 31-8-2 keeps nothing but the memory after 2 of the 4 layers
#
#   SENTENCES  of a story, 3 or more (default: 4, which with the question need 31 tokens)
#   TRAIN      training stories, of one to SENTENCES sentences (default: 100000)
#   BEGIN      updates of what all systems begin with, on stories of one or two sentences (default: 1500)
#   BASE       and then on those of SENTENCES (default: 5000)
#   UPDATES    of each system after that (default: 2500); an update has 64 questions
#   WORK       data and results (default: outputs/gmat)   SEED   default 1
#   DEVICE     flags of fairseq, for example "--fp16" (default: --cpu)
#   BIN        programs (default: .venv/bin)
#
# The paper begins with masked language models, from BERT. The systems of a seed begin here with one model
# that answers with attention to the whole input and without a memory. A question is about the place of
# a person, where they went last.
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other settings is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/gmat/spans_system.sh
system=$1
WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} SENTENCES=${SENTENCES:-4} TRAIN=${TRAIN:-100000}
BEGIN=${BEGIN:-1500} BASE=${BASE:-5000} UPDATES=${UPDATES:-2500}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
whole SENTENCES "$SENTENCES" 3
for name in TRAIN BEGIN BASE UPDATES; do whole "$name" "${!name}" 1; done
check_spans_system "$system"
# A sentence has at most 6 tokens; the question has 4, and three tokens delimit the texts.
window=$((6 * SENTENCES + 7)) stories=$WORK/stories
data=$stories/$SENTENCES-sentences run=$stories/$SENTENCES-sentences-$system-$SEED
base=$stories/$SENTENCES-sentences-base-$SEED
flags="--gmat-memory $memory${compressed:+ --gmat-compress-after $compressed --gmat-memory-positions}"
task="--user-dir fairseq_memattn $DEVICE --task span_answering --criterion span_answering
  --window $window --stride $window --max-question 4"

# spans FOLDER FLAGS...: stories and their questions as data for the task
spans() {
  "$BIN"/memattn prepare stories --output "$1/generated" --facts 1 --least-sentences 1 "${@:2}"
  if [ ! -e "$1/vocab.txt" ]; then
    { printf '[%s]\n' PAD UNK CLS SEP MASK; cut -d' ' -f1 "$1/generated/words.txt"; } > "$1/vocab"
    mv "$1/vocab" "$1/vocab.txt"
  fi
  "$BIN"/memattn prepare squad --output "$1" --spans --bert-vocab "$1/vocab.txt" \
    --dictionary "$1/generated/words.txt" --files train="$1/generated/json/train.json" \
    valid="$1/generated/json/valid.json" test="$1/generated/json/test.json"
}

# answering FOLDER UPDATES DATA CHUNK FLAGS...
answering() {
  trained "$1" "$2" "$3/bin" $task --arch gmat_bert_tiny --encoder-embed-dim 64 \
    --encoder-ffn-embed-dim 256 --encoder-normalize-before --gmat-chunk "$4" \
    --gmat-position-block 8 --dropout 0.0 --attention-dropout 0.0 --optimizer adam \
    --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --lr 1e-3 --lr-scheduler polynomial_decay \
    --total-num-update "$2" --warmup-updates $(($2 < 1000 ? $2 / 10 : 100)) --batch-size 64 \
    --validate-interval 100 --validate-interval-updates 1000 --eval-answers "${@:5}"
}

finished "$run.score" "$run" "$UPDATES" BEGIN BASE TRAIN
programs
if ! "$BIN"/python -c "import tokenizers" 2> /dev/null; then
  echo "error: WordPiece needs the package tokenizers; $BIN/python -m pip install tokenizers" >&2
  exit 2
fi
spans "$stories/2-sentences" --sentences 2 --apart 0 --train 12000 --valid 500 --test 500
spans "$data" --sentences "$SENTENCES" --apart 0 --train "$TRAIN"

one_budget "$run" "$UPDATES"
for folder in "$base" "$run"; do one_setting "$folder" BEGIN BASE TRAIN; done
answering "$base/begin" "$BEGIN" "$stories/2-sentences" "$window" --gmat-memory 0
answering "$base" "$BASE" "$data" "$window" --gmat-memory 0 \
  --finetune-from-model "$base/begin/checkpoint_last.pt"

start=$base/checkpoint_last.pt
if [ "$memory" -gt 0 ]; then
  start=$run.start.pt
  if [ ! -e "$start" ]; then
    "$BIN"/memattn convert "$data/bin" --path "$base/checkpoint_last.pt" --arch gmat_bert_tiny \
      --output "$start" --seed "$SEED" --flags="$flags"
  fi
fi
answering "$run" "$UPDATES" "$data" "$chunk" $flags --finetune-from-model "$start"

case $DEVICE in *--cpu*) where=--cpu ;; *) where= ;; esac
"$BIN"/memattn spans "$data/bin" --path "$run/checkpoint_last.pt" $where --subset test --max-answer 3 |
  tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
