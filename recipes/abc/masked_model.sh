# What masked_lm.sh and conversion.sh share, and source.
source recipes/wikitext2_pieces.sh
DATA=${DATA:-data} WORK=${WORK:-outputs/abc} SEED=${SEED:-1} DEVICE=${DEVICE---cpu}
BIN=${BIN:-.venv/bin}

whole SEED "$SEED"

# choose_masked_model SYSTEM: the flags of the system, in $arch
choose_masked_model() {
  if [ "$1" = softmax ]; then
    arch="--arch roberta"
  elif [[ $1 =~ ^([a-z0-9_]+)-([1-9][0-9]*)$ ]]; then
    arch="--arch $(control_arch "$1" "${BASH_REMATCH[1]}" roberta) --abc-encoder-slots ${BASH_REMATCH[2]}"
    arch="$arch $(spread "$1" "${BASH_REMATCH[@]:1}" 64)"
  else
    echo "error: SYSTEM must be softmax or CONTROL-SLOTS, but is $1" >&2
    exit 2
  fi
}

# fit_masked_model FOLDER UPDATES FLAGS...: trains the system in $arch on blocks of 64 pieces
fit_masked_model() {
  trained "$1" "$2" "$data/bin" --user-dir fairseq_memattn $arch $DEVICE --task masked_lm \
    --encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
    --encoder-attention-heads 4 --encoder-normalize-before --dropout 0.0 --attention-dropout 0.0 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --tokens-per-sample 64 \
    --sample-break-mode none --max-tokens 4096 "${@:3}"
}

# masked_perplexity: of the test set with the last checkpoint of $run, as a line `ppl P`
masked_perplexity() {
  "$BIN"/fairseq-validate "$data/bin" --user-dir fairseq_memattn $DEVICE --task masked_lm \
    --criterion masked_lm --path "$run/checkpoint_last.pt" --valid-subset test --max-tokens 4096 \
    --required-batch-size-multiple 1 2>&1 | grep -o "ppl [0-9.e+]*" | tail -1
}
