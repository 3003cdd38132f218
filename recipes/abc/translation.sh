#!/usr/bin/env bash
# Softmax attention against ABC-MLP on a small public corpus, with one budget and one seed.
#
#   recipes/abc/translation.sh CORPUS SYSTEM
#
#   CORPUS  multi30k  sentences, English-German: $DATA/multi30k-en-de
#           bible     windows of four sentences, English-Spanish: $DATA/docmt/bible-en-es
#   SYSTEM  softmax | abc-32-8 | abc-32-32 | abc-128-64   (cross slots - causal slots)
#
#   DATA    folder of the corpora (default: data)     WORK     results (default: outputs/abc)
#   SEED    default 1                                 UPDATES  default 1500
#   DEVICE  flags of fairseq-train and fairseq-generate, for example "--fp16" (default: --cpu)
set -euo pipefail
cd "$(dirname "$0")/../.."
corpus=${1:?"usage: $0 CORPUS SYSTEM (see the top of the file)"}
system=${2:?"usage: $0 CORPUS SYSTEM (see the top of the file)"}
DATA=${DATA:-data} WORK=${WORK:-outputs/abc} SEED=${SEED:-1} UPDATES=${UPDATES:-1500}
DEVICE=${DEVICE:---cpu} BIN=${BIN:-.venv/bin}
data=$WORK/$corpus run=$WORK/$corpus/$system-$SEED

case $corpus in
  multi30k) pair="en de" raw=$DATA/multi30k-en-de splits="train:train val:valid test_2016_flickr:test"
            separator="" ;;
  bible)    pair="en es" raw=$DATA/docmt/bible-en-es splits="train:train dev:valid test:test"
            separator="_eos" ;;
  *) echo "error: CORPUS must be multi30k or bible, but is $corpus" >&2; exit 2 ;;
esac
if [ "$system" = softmax ]; then
  arch="--arch transformer"
elif [[ $system =~ ^abc-([0-9]+)-([0-9]+)$ ]]; then
  arch="--arch abc_mlp_transformer --abc-cross-slots ${BASH_REMATCH[1]}"
  arch="$arch --abc-causal-slots ${BASH_REMATCH[2]}"
  # As in abc_mlp_transformer_iwslt_es_en, the paper's setting with memories this large.
  if [ "${BASH_REMATCH[1]}" -ge 128 ]; then arch="$arch --abc-phi-heads shared"; fi
else
  echo "error: SYSTEM must be softmax or abc-CROSS-CAUSAL, but is $system" >&2
  exit 2
fi
read -r source target <<< "$pair"

if [ ! -d "$raw" ] ; then echo "error: no folder $raw; set DATA" >&2; exit 2; fi
if [ ! -e "$data/ready" ]; then
  rm -rf "$data/bin"  # what an interrupted run may have left
  for split in $splits; do
    if [ -n "$separator" ]; then
      "$BIN"/python data_prep/windows.py make --input "$raw/${split%:*}" --langs $pair \
        --output "$data/text/${split#*:}"
    else
      mkdir -p "$data/text"
      for lang in $pair; do cp "$raw/${split%:*}.$lang" "$data/text/${split#*:}.$lang"; done
    fi
  done
  "$BIN"/python data_prep/subword.py train --input "$data/text/train.$source" \
    "$data/text/train.$target" --model "$data/spm" --vocab-size 4000
  "$BIN"/python data_prep/subword.py encode --model "$data/spm.model" \
    --input "$data"/text/*."$source" "$data"/text/*."$target" --output "$data/pieces"
  "$BIN"/fairseq-preprocess --source-lang "$source" --target-lang "$target" --joined-dictionary \
    --trainpref "$data/pieces/train" --validpref "$data/pieces/valid" \
    --testpref "$data/pieces/test" --destdir "$data/bin"
  touch "$data/ready"
fi

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
"$BIN"/memattn score --generated "$run.generated" --reference "$data/text/test.$target" \
  ${separator:+--separator "$separator"} | tee "$run.score"
