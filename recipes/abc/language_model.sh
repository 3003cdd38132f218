# What wikitext2.sh, wikitext2_lengths.sh and conversion.sh share, and source.
DATA=${DATA:-data} WORK=${WORK:-outputs/abc} SEED=${SEED:-1} DEVICE=${DEVICE---cpu}
BIN=${BIN:-.venv/bin}

whole SEED "$SEED"

# choose_language_model SYSTEM LENGTH: the flags of the system, in $arch and $norm
choose_language_model() {
  norm=--decoder-normalize-before
  case $1 in *-post) norm= ;; esac
  if [ "${1%-post}" = softmax ]; then
    arch="--arch transformer_lm"
  elif [[ ${1%-post} =~ ^([a-z0-9_]+)-([1-9][0-9]*)$ ]]; then
    arch="--arch $(control_arch "$1" "${BASH_REMATCH[1]}" transformer_lm) --abc-causal-slots ${BASH_REMATCH[2]}"
    arch="$arch $(spread "$1" "${BASH_REMATCH[@]:1}" "$2")"
  else
    echo "error: SYSTEM must be softmax or CONTROL-SLOTS, and -post may follow, but is $1" >&2
    exit 2
  fi
}

# segment NAME LENGTH: an update has 4096 tokens
segment() {
  whole "$1" "$2" 1
  if [ "$2" -gt 4096 ]; then
    echo "error: $1 must be at most 4096, the tokens of an update, but is $2" >&2
    exit 2
  fi
}

# language_model SYSTEM LENGTH SEED: its folder
language_model() {
  local length=-$2
  if [ "$2" = 512 ]; then length=; fi
  echo "$WORK/wikitext-2/$1$length-$3"
}

# wikitext2_words: the corpus binarised by words, in $data
wikitext2_words() {
  data=$WORK/wikitext-2
  if [ ! -d "$DATA/wikitext-2" ]; then
    echo "error: no folder $DATA/wikitext-2; set DATA" >&2
    exit 2
  fi
  programs
  if [ -e "$data/ready" ]; then return; fi
  rm -rf "$data/bin"  # what an interrupted run may have left
  "$BIN"/fairseq-preprocess --only-source --trainpref "$DATA/wikitext-2/train.txt" \
    --validpref "$DATA/wikitext-2/valid.txt" --testpref "$DATA/wikitext-2/test.txt" \
    --destdir "$data/bin"
  touch "$data/ready"
}

# fit_language_model FOLDER UPDATES FLAGS...: trains the system in $arch on segments of $LENGTH tokens
fit_language_model() {
  trained "$1" "$2" "$data/bin" --task language_modeling --user-dir fairseq_memattn $arch $DEVICE \
    --decoder-layers 4 --decoder-embed-dim 128 --decoder-input-dim 128 --decoder-output-dim 128 \
    --decoder-ffn-embed-dim 512 --decoder-attention-heads 4 $norm --dropout 0.1 \
    --adaptive-input --adaptive-input-cutoff 2000,10000 --adaptive-softmax-cutoff 2000,10000 \
    --tie-adaptive-weights --ddp-backend legacy_ddp --optimizer adam --adam-betas '(0.9, 0.98)' \
    --clip-norm 0.5 --tokens-per-sample "$LENGTH" --sample-break-mode none --max-tokens 4096 \
    "${@:3}"
}

# language_model_perplexity SUBSET FLAGS...: of the last checkpoint of $run, by `memattn perplexity`
language_model_perplexity() {
  local rows cpu
  cpu=$(grep -o -e --cpu <<< "$DEVICE" || true)
  rows=$("$BIN"/memattn perplexity "$data/bin" --path "$run/checkpoint_last.pt" --subset "$1" $cpu \
    "${@:2}") || return
  echo "$rows" >&2
  awk 'END { print $(NF - 3) }' <<< "$rows"
}
