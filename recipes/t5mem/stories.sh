#!/usr/bin/env bash
# Questions about generated stories, whose facts lie in several chunks: exact match by number of facts.
#
#   recipes/t5mem/stories.sh SYSTEM
#
#   SYSTEM  t5-1, or VARIANT-CHUNKS such as v1-4, with VARIANT v1, v2, v3, v4, ws or ws_wma; ws has no
#           selector, ws_wma also no MemAttention
#
#   FACTS   numbers of facts that a question may need (default: 1)
#   SENTENCES of a story (default: 6)
#   QUESTION each: every chunk begins with the question | first: the first chunk alone does (default: each)
#   OVERLAP tokens of a chunk with which the next one begins (default: 5, so that each sentence is whole in
#           a chunk); neither has an effect with one chunk
#   TRAIN   training stories, of one to SENTENCES sentences (default: 200000; 18000 of two sentences, which
#           are few)
#   UPDATES of 64 questions (default: 2000)
#   BEGIN   updates before those, with questions of one fact about two sentences (default: 1000); 0: none
#   FROM    begin with this model of SYSTEM in place of BEGIN, such as one of fewer FACTS (default: none)
#   LENGTH  tokens of all chunks, with those that are repeated, a multiple of CHUNKS (default: as few as
#           hold SENTENCES)
#   LAYERS  of the encoder (default: 4)
#   BIASES  scaled: --t5-scale-positions | plain: T5's position biases (default: scaled)
#   WORK    data and results (default: outputs/t5mem) SEED     default 1
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#   BIN     programs (default: .venv/bin)
#
# In stories of two sentences models learn to find the person asked for within about 1000 updates, and
# in longer ones alone only after thousands. With these defaults such a story is one chunk, so that BEGIN
# teaches nothing of the selection among chunks.
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other settings is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/t5mem/variants.sh
system=$1 variant=${1%-*} chunks=${1##*-}
FACTS=${FACTS:-1} SENTENCES=${SENTENCES:-6} UPDATES=${UPDATES:-2000}
QUESTION=${QUESTION:-each} OVERLAP=${OVERLAP:-5}
BEGIN=${BEGIN:-1000} FROM=${FROM:-} LAYERS=${LAYERS:-4} BIASES=${BIASES:-scaled}
WORK=${WORK:-outputs/t5mem} SEED=${SEED:-1} DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
whole SENTENCES "$SENTENCES" 2
TRAIN=${TRAIN:-$((SENTENCES == 2 ? 18000 : 200000))}
for name in UPDATES TRAIN LAYERS; do whole "$name" "${!name}" 1; done
for name in BEGIN OVERLAP; do whole "$name" "${!name}"; done
check_story_system "$system"
check_facts
check_model "$FROM"
case $QUESTION in
  each|first) ;;
  *) echo "error: QUESTION must be each or first, but is $QUESTION" >&2; exit 2 ;;
esac
story_length
case $variant in
  t5) arch="--arch t5" ;;
  ws*) arch="--arch t5mem_$variant --t5mem-sequences 8" ;;
  # With the query `embedding` the selection for the first token would not depend on the question.
  *) arch="--arch t5mem_$variant --t5mem-sequences 8 --t5mem-selector-query layer" ;;
esac
set_sizes 64 256
sizes="$sizes --encoder-layers $LAYERS"
case $BIASES in
  scaled) sizes="$sizes --t5-scale-positions" ;;
  plain) ;;
  *) echo "error: BIASES must be scaled or plain, but is $BIASES" >&2; exit 2 ;;
esac
checked
data=$WORK/stories/$SENTENCES-sentences-facts-${FACTS// /-} run=$data/$system-$SEED
apart=$((SENTENCES < 12 ? SENTENCES / 2 : 6))
task="--user-dir fairseq_memattn $DEVICE --task question_answering --max-source-length $LENGTH
  --chunks $chunks --max-target-length 4"
if [ "$chunks" -gt 1 ]; then
  task="$task --chunk-overlap $OVERLAP"
  if [ "$QUESTION" = each ]; then task="$task --repeat-question"; fi
fi

# learned FOLDER UPDATES DATA FLAGS...
learned() {
  trained "$1" "$2" "$3" $task $arch $sizes --eval-answers --dropout 0.0 \
    --criterion cross_entropy --optimizer adam --adam-betas '(0.9, 0.98)' --lr 1e-3 \
    --lr-scheduler cosine --warmup-updates "$(warmup "$2")" --clip-norm 1.0 --batch-size 64 "${@:4}"
}

cutting=
if [ "$chunks" -gt 1 ]; then cutting="QUESTION OVERLAP"; fi
settings="BEGIN FROM TRAIN LENGTH $cutting LAYERS BIASES"
finished "$run.score" "$run" "$UPDATES" $settings
programs
"$BIN"/memattn prepare stories --output "$data" --facts $FACTS \
  --sentences "$SENTENCES" --least-sentences 1 --apart "$apart" --train "$TRAIN"

one_budget "$run" "$UPDATES"
one_setting "$run" $settings
if [ -z "$FROM" ] && [ "$BEGIN" -gt 0 ]; then
  two=$WORK/stories/begin FROM=$run/begin/checkpoint_last.pt
  "$BIN"/memattn prepare stories --output "$two" --facts 1 --sentences 2 --apart 0 --train 12000 \
    --valid 500 --test 500
  one_setting "$run/begin" LENGTH $cutting LAYERS BIASES
  learned "$run/begin" "$BEGIN" "$two/bin"
fi
learned "$run" "$UPDATES" "$data/bin" ${FROM:+--finetune-from-model "$FROM"}

"$BIN"/fairseq-generate "$data/bin" $task --gen-subset test --path "$run/checkpoint_last.pt" \
  --beam 1 --max-len-b 4 --batch-size 64 --required-batch-size-multiple 1 > "$run.generated"
"$BIN"/memattn answers --generated "$run.generated" --gold "$data/json/test.json" \
  --predictions "$run.predictions.json" > "$run.answers"
"$BIN"/python recipes/t5mem/answers_by_facts.py "$run.predictions.json" --gold "$data/json/test.json" |
  tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
