#!/usr/bin/env bash
# Associative recall with one attention and one seed: training, then accuracy and bytes of state.
#
#   recipes/recall/run.sh FORM SYSTEM
#
#   FORM    multi_query (all pairs, then queries in noise) | needle (pairs in noise, then queries)
#   SYSTEM  attention of the second of two layers above a window of two tokens, without positions:
#           softmax, or CONTROL-SLOTS such as mlp-16 (docs/controls.md; elu, rfa and t2r with features)
#           mlp-16-sigmoid, mlp-16-relu: another activation of ABC-MLP in place of exp, in one layer
#           mlp-8+window-16, gated-16+softmax, ...: a layer for each, the lowest one first, with controls
#           of their own; not for global and local_global
#           SYSTEM-only: one attention in both layers, with sinusoidal positions
#
#   WORK    results (default: outputs/recall)         SEED     default 1
#   UPDATES default 1500; 2500 with SYSTEM-only        DEVICE   flags of fairseq (default: --cpu)
#   BIN     folder of the programs (default: .venv/bin)
#
# A line of accuracies and bytes is in $WORK/FORM/SYSTEM-SEED.tsv. A run that has it is not repeated.
source "$(dirname "$0")/../common.sh"
arguments "FORM SYSTEM" "$@"
form=$1 system=$2
WORK=${WORK:-outputs/recall} SEED=${SEED:-1} DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"

case $form in
  multi_query) task="--pairs 16" tests="64:16 128:16 128:32" longest=128 ;;
  needle) task="--pairs 8 --queries 4" tests="64:8 128:8 256:8" longest=256 ;;
  *) echo "error: FORM must be multi_query or needle, but is $form" >&2; exit 2 ;;
esac

# layer NAME: an entry of --abc-causal-layers
layer() {
  if [ "$1" = softmax ]; then
    echo softmax
  elif [[ $1 =~ ^([a-z0-9_]+)-([1-9][0-9]*)$ ]]; then
    check_control "$system" "${BASH_REMATCH[1]}"
    check_causal "$system" "${BASH_REMATCH[1]}"
    echo "${BASH_REMATCH[1]}:${BASH_REMATCH[2]}"
  else
    echo "error: SYSTEM must be softmax or CONTROL-SLOTS, several with + between them, one with -only" \
      "after it, or mlp-SLOTS-sigmoid or mlp-SLOTS-relu, but is $system" >&2
    return 2
  fi
}

# layer_flags ENTRY: the flags of its control
layer_flags() {
  case $1 in
    linformer:*|compressive:*) echo "--abc-max-length $longest" ;;
    *:*) spread "$system" "${1%:*}" "${1#*:}" "$longest" ;;
  esac
}

name=$system flags= layers= depth=2
if [[ $name =~ ^(mlp-[0-9]+)-(sigmoid|relu)$ ]]; then
  name=${BASH_REMATCH[1]} flags="--abc-activation ${BASH_REMATCH[2]}"
fi
if [ "$name" = softmax-only ]; then
  arch="--arch transformer_lm"
elif [[ $name == *-only ]]; then
  layers=$(layer "${name%-only}")
  flags=$(layer_flags "$layers")
  arch="--arch abc_mlp_transformer_lm --abc-causal-layers $layers"
else
  layers=window:2 depth=1 rest=$name+
  while [ -n "$rest" ]; do
    entry=$(layer "${rest%%+*}")
    flags="$flags $(layer_flags "$entry")" layers=$layers,$entry depth=$((depth + 1)) rest=${rest#*+}
  done
  if [ "$depth" -gt 2 ]; then
    if [[ $layers == *global* ]]; then
      echo "error: SYSTEM must have global and local_global alone, whose stride is of the whole model," \
        "but is $system" >&2
      exit 2
    fi
    flags="$flags --abc-phi-layers separate"
  fi
  arch="--arch abc_mlp_transformer_lm --abc-causal-layers $layers --no-token-positional-embeddings"
fi
arch="$arch $flags"
if [ "${system%-only}" = "$system" ]; then UPDATES=${UPDATES:-1500}; else UPDATES=${UPDATES:-2500}; fi
whole UPDATES "$UPDATES" 1
checked
run=$WORK/$form/$system-$SEED
programs
finished "$run.tsv" "$run" "$UPDATES"

trained "$run" "$UPDATES" --user-dir fairseq_memattn --task associative_recall --form "$form" \
  --length 64 $task $arch $DEVICE --criterion sequence_tagging \
  --decoder-layers "$depth" --decoder-embed-dim 64 --decoder-input-dim 64 --decoder-output-dim 64 \
  --decoder-ffn-embed-dim 128 --decoder-attention-heads 4 --decoder-normalize-before --dropout 0 \
  --share-decoder-input-output-embed --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-3 \
  --lr-scheduler cosine --warmup-updates "$(warmup "$UPDATES")" --clip-norm 1.0 --batch-size 32
"$BIN"/python recipes/recall/measure.py "$run/checkpoint_last.pt" --tests $tests > "$run.measuring"
mv "$run.measuring" "$run.tsv"
cat "$run.tsv"
