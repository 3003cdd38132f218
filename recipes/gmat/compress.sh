#!/usr/bin/env bash
# WikiText-2's test articles compressed to the memory of a model of wikitext2.sh, and back: how small
# they become, and how many of their tokens come back.
#
#   recipes/gmat/compress.sh SYSTEM      after recipes/gmat/wikitext2.sh SYSTEM, one with compression
#
#   SYSTEM  CHUNKxCOUNT-M-cN, for example 64x1-16-c1
#
#   WORK    results (default: outputs/gmat)           SEED     default 1
#   DEVICE  with --cpu, or a GPU (default: --cpu)     BIN      programs (default: .venv/bin)
#
# Prints the size of the store, and the per cent of tokens that the masked language model fills in
# rightly from the store alone. A document is an article, in pieces of CHUNK x COUNT tokens. The store
# and the tokens are made once; one that stopped is gone on with.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
system=$1
WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
data=$WORK/wikitext-2 run=$WORK/wikitext-2/$system-$SEED
if ! compgen -G "$run/trained-*" > /dev/null || [[ $system != *-c[1-3] ]]; then
  echo "error: no trained model with compression in $run; run recipes/gmat/wikitext2.sh" \
    "CHUNKxCOUNT-M-cN first" >&2
  exit 2
fi
programs
model=(--path "$run/checkpoint_last.pt")
case $DEVICE in *--cpu*) model+=(--cpu) ;; esac

"$BIN"/memattn compress "$data/bin" "${model[@]}" --subset test --documents ids --split --dtype float16 \
  --output "$run.store" | tee "$run.compressed.txt"
"$BIN"/memattn decompress "$run.store" --check
if [ ! "$run.filled.txt" -nt "$run.store" ]; then
  "$BIN"/memattn decompress "$run.store" "${model[@]}" --tokens --output "$run.filled.txt"
fi
"$BIN"/python recipes/gmat/token_recovery.py "$run.filled.txt" --pieces "$data/pieces/test.en" \
  --docids "$data/bin/test.docids" | tee "$run.recovered.txt"
