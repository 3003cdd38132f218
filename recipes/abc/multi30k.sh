#!/usr/bin/env bash
# Softmax attention against ABC-MLP on Multi30k English-German, with one budget and one seed.
#
#   recipes/abc/multi30k.sh SYSTEM
#
#   SYSTEM  softmax | abc-32-8 | abc-32-32 | abc-128-64   (cross slots - causal slots);
#           abc-128-64-shared: the heads of a layer share one control
#
#   DATA    folder with multi30k-en-de (default: data) WORK    results (default: outputs/abc)
#   SEED    default 1                                 UPDATES  default 1500
#   DEVICE  flags of fairseq-train and fairseq-generate, for example "--fp16" (default: --cpu)
set -euo pipefail
cd "$(dirname "$0")/../.."
system=${1:?"usage: $0 SYSTEM (see the top of the file)"}
DATA=${DATA:-data} WORK=${WORK:-outputs/abc} SEED=${SEED:-1} UPDATES=${UPDATES:-1500}
DEVICE=${DEVICE:---cpu} BIN=${BIN:-.venv/bin}
raw=$DATA/multi30k-en-de data=$WORK/multi30k run=$WORK/multi30k/$system-$SEED

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

if [ ! -d "$raw" ] ; then echo "error: no folder $raw; set DATA" >&2; exit 2; fi
"$BIN"/python data_prep/own_corpus.py --langs en de --output "$data" --vocab-size 4000 \
  --text train="$raw/train" valid="$raw/val" test="$raw/test_2016_flickr"

"$BIN"/fairseq-train "$data/bin" --user-dir fairseq_memattn $arch $DEVICE \
  --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
  --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.1 \
  --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-3 --lr-scheduler inverse_sqrt \
  --warmup-updates 400 --clip-norm 1.0 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --max-tokens 2048 --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
  --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval-updates 500 \
  --keep-interval-updates 1 --validate-interval-updates 500 \
  --save-dir "$run" --log-format simple --log-interval 100 --log-file "$run.log"

"$BIN"/fairseq-generate "$data/bin" --user-dir fairseq_memattn $DEVICE \
  --path "$run/checkpoint_last.pt" --gen-subset test --beam 5 --lenpen 0.6 --max-tokens 4096 \
  --required-batch-size-multiple 1 --max-len-a 1.5 --max-len-b 20 > "$run.generated"
"$BIN"/memattn score --generated "$run.generated" --reference "$raw/test_2016_flickr.de" |
  tee "$run.score"
