#!/usr/bin/env bash
# Document-level translation on a small public corpus, with one budget and one seed.
#
#   recipes/abc/documents.sh CORPUS SYSTEM CONTEXT
#
#   CORPUS  bible  English-Spanish, verses in chapters: $DATA/docmt/bible-en-es
#           chat   English-German, customer service: $DATA/docmt/chat-bcontrast-en-de
#   SYSTEM  softmax | abc-32-8 | abc-32-32 | abc-128-64   (cross slots - causal slots);
#           abc-128-64-shared: the heads of a layer share one control
#   CONTEXT previous sentences that the model sees, on both sides: 0 is translation by sentence
#
#   DATA    folder of the corpora (default: data)     WORK     results (default: outputs/abc)
#   SEED    default 1                                 UPDATES  default 2000
#   DEVICE  flags of fairseq-train and fairseq-generate, for example "--fp16" (default: --cpu)
set -euo pipefail
cd "$(dirname "$0")/../.."
usage="usage: $0 CORPUS SYSTEM CONTEXT (see the top of the file)"
corpus=${1:?"$usage"} system=${2:?"$usage"} context=${3:?"$usage"}
DATA=${DATA:-data} WORK=${WORK:-outputs/abc} SEED=${SEED:-1} UPDATES=${UPDATES:-2000}
DEVICE=${DEVICE:---cpu} BIN=${BIN:-.venv/bin}
data=$WORK/$corpus run=$WORK/$corpus/$system-context-$context-$SEED

case $corpus in
  bible) source=en target=es raw=$DATA/docmt/bible-en-es ;;
  chat)  source=en target=de raw=$DATA/docmt/chat-bcontrast-en-de ;;
  *) echo "error: CORPUS must be bible or chat, but is $corpus" >&2; exit 2 ;;
esac
if [ "$system" = softmax ]; then
  arch="--arch transformer"
elif [[ $system =~ ^abc-([0-9]+)-([0-9]+)(-shared)?$ ]]; then
  arch="--arch abc_mlp_transformer --abc-cross-slots ${BASH_REMATCH[1]}"
  arch="$arch --abc-causal-slots ${BASH_REMATCH[2]}"
  if [ -n "${BASH_REMATCH[3]}" ]; then arch="$arch --abc-phi-heads shared"; fi
else
  echo "error: SYSTEM must be softmax or abc-CROSS-CAUSAL[-shared], but is $system" >&2
  exit 2
fi
task="--task document_translation --source-context $context --target-context $context"

if [ ! -d "$raw" ]; then echo "error: no folder $raw; set DATA" >&2; exit 2; fi
"$BIN"/python data_prep/own_corpus.py --langs "$source" "$target" --output "$data" \
  --text train="$raw/train" valid="$raw/dev" test="$raw/test" --vocab-size 4000

"$BIN"/fairseq-train "$data/bin" --user-dir fairseq_memattn $task $arch $DEVICE \
  --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
  --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.1 \
  --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-3 --lr-scheduler inverse_sqrt \
  --warmup-updates 400 --clip-norm 1.0 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --max-tokens 2048 --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
  --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval-updates 500 \
  --keep-interval-updates 1 --validate-interval-updates 500 \
  --save-dir "$run" --log-format simple --log-interval 100 --log-file "$run.log"

"$BIN"/fairseq-generate "$data/bin" --user-dir fairseq_memattn $task $DEVICE \
  --path "$run/checkpoint_last.pt" --gen-subset test --beam 5 --lenpen 0.6 --max-tokens 4096 \
  --max-len-a 1.5 --max-len-b 20 > "$run.generated"
"$BIN"/memattn score --generated "$run.generated" --reference "$raw/test.$target" \
  --docids "$raw/test.docid" --resamples 1000 | tee "$run.score"
