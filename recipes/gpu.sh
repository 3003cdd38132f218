#!/usr/bin/env bash
# Trains on one GPU for eight minutes, and ends with a table: words a second and peak memory at three
# lengths, each form of half precision for some updates, two processes where there are two GPUs, and
# the perplexity that WikiText-2 and Multi30k reach in the time that is left.
#
#   recipes/gpu.sh [--tiny]
#
#   --tiny  tiny models on the CPU, which shows that the script works, and no more
#
#   DATA    folder with wikitext-2/{train,valid,test}.txt and multi30k-en-de (default: data)
#   WORK    results (default: outputs/gpu)            SEED    default 1
#   BUDGET  seconds for all of it (default: 480, with --tiny 150)
#   BIN     programs (default: .venv/bin)
#   LAYERS  of the language models (default: 16, with --tiny 2)
#   SIZE    their width (default: 512, with --tiny 32)
#   TOKENS  of an update of theirs, at least as many as the longest input (default: 8192, with --tiny
#           256)
#   LENGTHS of their inputs in the part speed; the other parts have the first
#           (default: 512 2048 8192, with --tiny 32 128)
#   PARTS   to run, of speed, modes, processes, wikitext-2 and multi30k (default: all)
#
# On a GPU the kernels of causal ABC are compiled first, for at most a quarter of BUDGET.
#
# The table is in WORK/results.md and WORK/results.json, and has what there is if this is stopped. A
# further call replaces it, but keeps the prepared data. Paths are the repository's unless they begin
# with a slash.
source "$(dirname "$0")/common.sh"
arguments "[--tiny]" "$@"
case ${1---gpu} in
  --gpu)
    precision=--bf16 device="" LENGTHS=${LENGTHS:-512 2048 8192} HEADS=8
    translation_size="" updates=30 interval=5
    LAYERS=${LAYERS:-16} SIZE=${SIZE:-512} TOKENS=${TOKENS:-8192} BUDGET=${BUDGET:-480} ;;
  --tiny)
    precision="" device=--cpu LENGTHS=${LENGTHS:-32 128} HEADS=2
    translation_size="--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32
      --encoder-ffn-embed-dim 64 --encoder-attention-heads 2 --decoder-attention-heads 2"
    updates=4 interval=1
    LAYERS=${LAYERS:-2} SIZE=${SIZE:-32} TOKENS=${TOKENS:-256} BUDGET=${BUDGET:-150} ;;
  *) echo "error: the argument must be --tiny or none, but is $1" >&2; exit 2 ;;
esac
DATA=${DATA:-data} WORK=${WORK:-outputs/gpu} SEED=${SEED:-1} BIN=${BIN:-.venv/bin}
source recipes/abc/translation.sh
every="speed modes processes wikitext-2 multi30k"
PARTS=$(echo ${PARTS:-$every}) LENGTHS=$(echo $LENGTHS)  # with single spaces
for part in $PARTS; do
  if [[ " $every " != *" $part "* ]]; then
    echo "error: PARTS must be of $every, but has $part" >&2; exit 2
  fi
done
for name in LAYERS SIZE TOKENS BUDGET; do whole "$name" "${!name}" 1; done
for length in $LENGTHS; do whole LENGTHS "$length" 1; done
short=${LENGTHS%% *} longest=$(printf '%s\n' $LENGTHS | sort -n | tail -n 1) runs=$WORK/runs
if [ "$TOKENS" -lt "$longest" ]; then
  echo "error: TOKENS must be at least $longest, the longest input, but is $TOKENS" >&2
  exit 2
fi
if ((SIZE % HEADS)); then
  echo "error: SIZE must be a multiple of $HEADS, the heads, but is $SIZE" >&2
  exit 2
fi
corpora=
for part in $PARTS; do
  case $part in multi30k) corpus=multi30k-en-de ;; *) corpus=wikitext-2 ;; esac
  if [[ $corpora != *"$corpus"* ]]; then corpora+=" $corpus"; fi
done
for folder in $corpora; do
  if [ ! -d "$DATA/$folder" ]; then echo "error: no folder $DATA/$folder; set DATA" >&2; exit 2; fi
done
programs

# What is imported here is what a training imports before it begins.
read -r gpus machine < <("$BIN/python" -W ignore - << 'END'
import logging

import torch

import fairseq_memattn

logging.disable()
fairseq_memattn.register()
gpus = torch.cuda.device_count()
name = torch.cuda.get_device_name() if gpus else "CPU"
print(gpus, f"{name}, torch {torch.__version__}")
END
)
starting=$((2 * SECONDS + 2))
if [ -z "$device" ] && [ "$gpus" = 0 ]; then
  echo "error: torch finds no GPU; recipes/gpu.sh --tiny tries the script on the CPU" >&2
  exit 2
fi

rm -rf "$runs"
mkdir -p "$runs"
echo "$machine" > "$runs/machine"

# What is to be run: part, system, length, and share of the time. What ends by itself comes first and
# leaves time to the others.
plan=()
for length in $LENGTHS; do for system in softmax abc-32 abc-64 window-64; do
  plan+=("speed $system $length 2")
done; done
if [ -n "$device" ]; then
  echo "half precision needs a GPU, and is not tried"
else
  for mode in fp16 bf16 amp memory-efficient-fp16; do plan+=("modes $mode $short 1"); done
  if [ "$gpus" -gt 1 ]; then plan+=("processes abc-32 $short 1"); fi
fi
for system in softmax abc-32 abc-64 window-64; do plan+=("wikitext-2 $system $short 4"); done
for system in softmax abc-32-8; do plan+=("multi30k $system - 4"); done
chosen=()
for row in "${plan[@]}"; do if [[ " $PARTS " == *" ${row%% *} "* ]]; then chosen+=("$row"); fi; done
if ((!${#chosen[@]})); then echo "error: PARTS $PARTS has nothing that runs here" >&2; exit 2; fi
plan=("${chosen[@]}")
printf '%s\n' "${plan[@]}" > "$runs/plan"

children=()
finish() {
  trap - EXIT INT TERM
  if ((${#children[@]})); then kill "${children[@]}" 2> /dev/null && wait "${children[@]}" || true; fi
  "$BIN/python" recipes/gpu_table.py "$runs" --output "$WORK/results"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# language_model SYSTEM LENGTH
language_model() {
  local arch
  case $1 in
    softmax) arch="--arch transformer_lm" ;;
    abc-*) arch="--arch abc_mlp_transformer_lm --abc-causal-slots ${1#abc-}" ;;
    window-*) arch="--arch abc_window_transformer_lm --abc-causal-slots ${1#window-}" ;;
  esac
  flags=("$WORK/wikitext-2/bin" --task language_modeling $arch --decoder-layers "$LAYERS"
    --decoder-embed-dim "$SIZE" --decoder-input-dim "$SIZE" --decoder-output-dim "$SIZE"
    --decoder-ffn-embed-dim $((4 * SIZE)) --decoder-attention-heads "$HEADS" --dropout 0.1
    --decoder-normalize-before --adaptive-input --adaptive-input-cutoff 2000,10000
    --adaptive-softmax-cutoff 2000,10000
    --tie-adaptive-weights --criterion adaptive_loss --ddp-backend legacy_ddp
    --tokens-per-sample "$2" --sample-break-mode none --max-tokens "$TOKENS" --clip-norm 0.5)
}

# translation SYSTEM
translation() {
  choose_arch "$1"
  flags=("$WORK/multi30k/bin" --task translation $arch $translation_size --share-all-embeddings
    --dropout 0.1 --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --max-tokens 4096 --clip-norm 1.0)
}

# flags_of PART SYSTEM LENGTH
flags_of() {
  case $1 in
    speed | wikitext-2) language_model "$2" "$3"; flags+=($precision) ;;
    modes) language_model abc-32 "$3"; flags+=("--$2") ;;
    processes) language_model "$2" "$3"; flags+=($precision --distributed-world-size 2) ;;
    multi30k) translation "$2"; flags+=($precision) ;;
  esac
}

# train LOG LIMIT OPTION...: fairseq-train in the background, with `flags` and the options
train() {
  local log=$1 limit=$2
  shift 2
  timeout -k 5 "$limit" "$BIN/fairseq-train" \
    --distributed-world-size 1 "${flags[@]}" --user-dir fairseq_memattn $device --seed "$SEED" \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 5e-4 --lr-scheduler inverse_sqrt \
    --warmup-updates 200 --no-save --required-batch-size-multiple 1 --log-format json "$@" \
    > "$log" 2>&1 &
  children+=($!)
}

# Triton takes half a minute to compile the kernels of a bounded memory, and caches them. Four systems
# at a time train for one update; what is not compiled in a quarter of the budget, the runs compile.
compile_all() {
  local row part system length left end=$((SECONDS + BUDGET / 4)) known=" " settings
  for row in "${plan[@]}"; do
    read -r part system length _ <<< "$row"
    flags_of "$part" "$system" "$length"
    settings="${flags[*]}"
    settings=${settings// /_}
    # Windows have no kernels.
    if [[ $part == processes || $settings != *_--abc-* || $settings == *abc_window* ||
      $known == *" $settings "* ]]; then
      continue
    fi
    known+="$settings "
    left=$((end - SECONDS))
    if ((left < 1)); then break; fi
    train "$runs/compile-$part-$system-$length.log" "$left" \
      --max-update 1 --disable-validation
    if ((${#children[@]} == 4)); then wait_for_all; fi
  done
  wait_for_all
}

wait_for_all() {
  wait "${children[@]}" || true  # a run that fails is a row of the table
  children=()
}

# run PART SYSTEM LENGTH SECONDS LEFT: trains for about so long, and at most for what is left
run() {
  local seconds=$4 limit=$((3 * $4 + 5)) status=0 start=$SECONDS log=$runs/$1-$2-$3.log
  local options=(--max-update "$updates" --log-interval "$interval" --disable-validation)
  flags_of "$1" "$2" "$3"
  if [[ $1 == wikitext-2 || $1 == multi30k ]]; then
    options=(--max-tokens-valid 8192 --validate-interval 1000 --log-interval 10)
    # The rest is for the start and the validation.
    limit=$((seconds + 5))
    seconds=$((seconds > 2 * starting ? (seconds - starting) * 3 / 4 : seconds / 3))
  fi
  options+=(--stop-time-hours "$(awk "BEGIN {print $seconds / 3600}")")
  train "$log" $((limit < $5 ? limit : $5)) "${options[@]}"
  wait "${children[@]}" || status=$?  # in which a signal ends the script, and not after the training
  children=()
  echo "$status $((SECONDS - start))" > "${log%.log}.status"
}

prepare_all() {
  if [[ $corpora == *wikitext-2* && ! -e $WORK/wikitext-2/ready ]]; then
    rm -rf "$WORK/wikitext-2/bin"  # what an interrupted run may have left
    "$BIN/fairseq-preprocess" --only-source --trainpref "$DATA/wikitext-2/train.txt" \
      --validpref "$DATA/wikitext-2/valid.txt" --destdir "$WORK/wikitext-2/bin" || return
    touch "$WORK/wikitext-2/ready"
  fi
  if [[ $corpora != *multi30k* ]]; then return; fi
  local raw=$DATA/multi30k-en-de data=$WORK/multi30k
  prepare "$raw" en de train="$raw/train" valid="$raw/val" test="$raw/test_2016_flickr"
}
echo "preparing the data; the log is $runs/data.log"
prepare_all > "$runs/data.log" 2>&1 || {
  tail -n 1 "$runs/data.log" >&2
  echo "error: the data could not be prepared, see above and $runs/data.log" >&2
  exit 1
}

if [ -z "$device" ]; then
  echo "compiling the kernels: at most $((BUDGET / 4)) s"
  compile_all
fi
shares=0
for row in "${plan[@]}"; do shares=$((shares + ${row##* })); done
for row in "${plan[@]}"; do
  read -r part system length share <<< "$row"
  left=$((BUDGET - SECONDS - 5))  # to end, and to write the table
  if [ "$left" -lt 5 ]; then break; fi
  echo "$part, $system, $length: $left s are left"
  run "$part" "$system" "$length" $((left * share / shares)) "$left"
  shares=$((shares - share))
done
