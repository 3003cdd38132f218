#!/usr/bin/env bash
# Questions about generated stories, whose facts lie in several chunks: exact match by number of facts.
#
#   recipes/t5mem/stories.sh SYSTEM
#
#   SYSTEM  t5-1, or VARIANT-CHUNKS such as v1-4, with VARIANT v1, v2, v3, v4, ws or ws_wma; ws has no
#           selector, ws_wma also no MemAttention
#
#   FACTS   numbers of facts that a question may need (default: 1 2 3)
#   SENTENCES of a story (default: 18, 128 tokens with the question, 32 in each of 4 chunks)
#   TRAIN   training stories, of one to SENTENCES sentences (default: 200000)
#   BIASES  scaled: --t5-scale-positions | plain: T5's position biases (default: scaled)
#   FROM    begin with this model of SYSTEM, such as one of FACTS=1 SENTENCES=6 (default: from scratch)
#   WORK    data and results (default: outputs/t5mem) SEED     default 1
#   UPDATES of 64 questions (default: 10000)          BIN      programs (default: .venv/bin)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES, TRAIN, BIASES or FROM is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/t5mem/variants.sh
system=$1 variant=${1%-*} chunks=${1##*-}
FACTS=${FACTS:-1 2 3} SENTENCES=${SENTENCES:-18} TRAIN=${TRAIN:-200000} BIASES=${BIASES:-scaled}
FROM=${FROM:-} WORK=${WORK:-outputs/t5mem} SEED=${SEED:-1} UPDATES=${UPDATES:-10000}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
whole UPDATES "$UPDATES" 1
whole SENTENCES "$SENTENCES" 4
whole TRAIN "$TRAIN" 1
if ! [[ $system =~ ^(t5-1|(v[1-4]|ws|ws_wma)-[1-9][0-9]*)$ ]]; then
  echo "error: SYSTEM must be t5-1, or v1, v2, v3, v4, ws or ws_wma and CHUNKS, like v1-4, but is" \
    "$system" >&2
  exit 2
fi
# A sentence has at most 6 tokens, and a question 8; both texts end with </s>.
length=$(((6 * SENTENCES + 10 + 31) / 32 * 32))
if [ $((length % chunks)) -ne 0 ]; then
  echo "error: the CHUNKS of SYSTEM must divide $length, the tokens of an input, but are $chunks" >&2
  exit 2
fi
if ! [[ $FACTS =~ ^[1-3](\ [1-3])*$ ]]; then
  echo "error: FACTS must be some of 1, 2 and 3, with spaces between them, but is $FACTS" >&2
  exit 2
fi
if [ -n "$FROM" ] && [ ! -f "$FROM" ]; then
  echo "error: FROM must be a model of fairseq, but there is no file $FROM" >&2
  exit 2
fi
case $variant in
  t5) arch="--arch t5" ;;
  ws*) arch="--arch t5mem_$variant --t5mem-sequences $chunks" ;;
  # With the query `embedding` the selection for the first token would not depend on the question.
  *) arch="--arch t5mem_$variant --t5mem-sequences $chunks --t5mem-selector-query layer" ;;
esac
set_sizes 64 256
case $BIASES in
  scaled) sizes="$sizes --t5-scale-positions" ;;
  plain) ;;
  *) echo "error: BIASES must be scaled or plain, but is $BIASES" >&2; exit 2 ;;
esac
data=$WORK/stories/$SENTENCES-sentences-facts-${FACTS// /-} run=$data/$system-$SEED
apart=$((SENTENCES < 12 ? SENTENCES / 2 : 6))
task="--user-dir fairseq_memattn $DEVICE --task question_answering --max-source-length $length
  --chunks $chunks --max-target-length 4"

programs
"$BIN"/python data_prep/stories.py --output "$data" --facts $FACTS \
  --sentences "$SENTENCES" --least-sentences 1 --apart "$apart" --train "$TRAIN"

one_setting "$run" FROM TRAIN BIASES
trained "$run" "$UPDATES" "$data/bin" $task $arch $sizes --eval-answers --dropout 0.0 \
  --criterion cross_entropy --optimizer adam --adam-betas '(0.9, 0.98)' --lr 1e-3 \
  --lr-scheduler cosine --warmup-updates 200 --clip-norm 1.0 --batch-size 64 \
  ${FROM:+--finetune-from-model "$FROM"}

"$BIN"/fairseq-generate "$data/bin" $task --gen-subset test --path "$run/checkpoint_last.pt" \
  --beam 1 --max-len-b 4 --batch-size 64 --required-batch-size-multiple 1 > "$run.generated"
"$BIN"/memattn answers --generated "$run.generated" --gold "$data/json/test.json" \
  --predictions "$run.predictions.json" > "$run.answers"
"$BIN"/python recipes/t5mem/answers_by_facts.py "$run.predictions.json" --gold "$data/json/test.json" |
  tee "$run.score"
