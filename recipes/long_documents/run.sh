#!/usr/bin/env bash
# Translation of documents of 2,000 tokens in one piece: a bounded memory and GMAT's encoder beside
# fairseq's transformer, with one budget and one seed.
#
#   recipes/long_documents/run.sh SYSTEM      with the corpus in $DATA/multi30k-en-de
#
#   SYSTEM  transformer | gmat: its encoder has windows of 32 tokens to either side and a memory of 32 vectors |
#           gmat-CONTROL-CROSS-CAUSAL: and the decoder a control of docs/controls.md with so many slots,
#           0 for softmax attention: gmat-window-0-64, gmat-mlp-256-32
#
#   SENTENCES of a document (default: 140, about 2,000 tokens)
#   BASE      updates on single sentences, of 1024 tokens, without a memory, from which all systems of
#             a seed begin (default: 1500)
#   UPDATES   on documents of 1, 2, 4, ... sentences, of 4096 tokens (default: 1200)
#
# DATA, SEED, DEVICE and BIN are in the head of recipes/abc/translation.sh; WORK is outputs/long_documents unless set.
# The documents are sentences of Multi30k one after the other, so no sentence needs another: what is
# tested is whether a model finds, among all that it has read, what it has to translate. The positions
# of all systems number the sentences (numbered_sentences).
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
WORK=${WORK:-outputs/long_documents}
source recipes/abc/translation.sh
system=$1 SENTENCES=${SENTENCES:-140} BASE=${BASE:-1500} UPDATES=${UPDATES:-1200}
for name in SENTENCES BASE UPDATES; do whole "$name" "${!name}" 1; done
gmat="--gmat-sparsity window --gmat-window 32 --gmat-memory 32"
if [ "$system" = transformer ]; then
  arch=numbered_transformer flags=
elif [ "$system" = gmat ]; then
  arch=numbered_gmat_transformer flags=$gmat
elif [[ $system =~ ^gmat-([a-z0-9_]+)-([0-9]+)-([0-9]+)$ ]]; then
  check_control "$system" "${BASH_REMATCH[1]}"
  arch=numbered_gmat_transformer
  flags="$gmat --gmat-decoder-control ${BASH_REMATCH[1]} --abc-cross-slots ${BASH_REMATCH[2]}"
  flags="$flags --abc-causal-slots ${BASH_REMATCH[3]}"
else
  echo "error: SYSTEM must be transformer, gmat or gmat-CONTROL-CROSS-CAUSAL, but is $system" >&2
  exit 2
fi
raw=$DATA/multi30k-en-de plugin=recipes/long_documents/numbered_sentences

data=$WORK/documents-$SENTENCES
base=$data/base-$SEED run=$data/$system-$SEED
if [ -s "$run.score" ]; then one_budget "$base" "$BASE"; fi
finished "$run.score" "$run" "$UPDATES"

data=$WORK/sentences
prepare "$raw" en de train="$raw/train" valid="$raw/val" test="$raw/test_2016_flickr"
sentences=$WORK/sentences data=$WORK/documents-$SENTENCES
if [ ! -e "$data/ready" ]; then
  rm -rf "$data/bin" "$data/single"  # what an interrupted run may have left
  "$BIN"/python recipes/long_documents/join.py "$sentences/pieces" --langs en de \
    --sentences "$SENTENCES" --output "$data/text"
  { grep -v '^madeupword' "$sentences/bin/dict.en.txt"; echo "<sep> 1"; } > "$data/dict.txt"
  binarise=("$BIN"/fairseq-preprocess --source-lang en --target-lang de --srcdict "$data/dict.txt")
  binarise+=(--tgtdict "$data/dict.txt")
  "${binarise[@]}" --trainpref "$data/text/train" --validpref "$data/text/valid" \
    --testpref "$data/text/test" --destdir "$data/bin"
  "${binarise[@]}" --trainpref "$sentences/pieces/train" --validpref "$sentences/pieces/valid" \
    --destdir "$data/single"
  touch "$data/ready"
fi

positions="--max-source-positions 8192 --max-target-positions 8192"

# fitted FOLDER DATA UPDATES FLAGS...
fitted() {
  trained "$1" "$3" "$2" --user-dir $plugin $DEVICE \
    --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
    --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.1 \
    $positions \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --lr-scheduler polynomial_decay \
    --total-num-update "$3" --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    "${@:4}"
}

fitted "$base" "$data/single" "$BASE" --arch numbered_transformer --lr 3e-3 --warmup-updates "$(warmup "$BASE")" \
  --max-tokens 1024
start=$base/checkpoint_last.pt
if [ "$system" != transformer ]; then
  start=$run.start.pt
  if [ ! -e "$start" ]; then
    "$BIN"/memattn convert "$data/bin" --path "$base/checkpoint_last.pt" --user-dir $plugin \
      --arch $arch --flags="$flags" --seed "$SEED" --output "$start"
  fi
fi
fitted "$run" "$data/bin" "$UPDATES" --arch $arch $flags --lr 2e-3 --warmup-updates 50 \
  --max-tokens 4096 --finetune-from-model "$start"

translate $positions --max-len-a 1.2 --beam 1
"$BIN"/memattn align --system "$run.generated" --reference "$sentences/text/test.de" \
  --docids "$data/text/test.docid" --separator "<sep>" --output "$run.aligned.de"
{
  perplexity $positions
  "$BIN"/memattn score --system "$run.aligned.de" --reference "$sentences/text/test.de" \
    --docids "$data/text/test.docid"
} | tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
