#!/usr/bin/env bash
# Table 1 of the paper: majority.sh for every cell and seed, a table and a picture.
#
#   recipes/gmat/majority_table.sh
#
#   CELLS  LENGTH-PAIRS-SYSTEM of majority.sh (default: the list below)
#   SEEDS  default "1 2 3"
#
# The other variables are in majority.sh; a cell sets UPDATES, SHORT and PROJECTIONS. Chunks have 400
# short updates and then 300, and with more than one pair 1000 and 300; LSH has 1000 and 1000, and with
# more than one pair 2000 and 1000 and projections for the memory. A run that has its score is not
# repeated. The table is in $WORK/majority.md, the picture in $WORK/majority.png.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
WORK=${WORK:-outputs/gmat} BIN=${BIN:-.venv/bin} SEEDS=${SEEDS:-1 2 3}
CELLS=${CELLS:-512-1-chunks-0 512-1-chunks-8 512-3-chunks-0 512-3-chunks-8 \
  8192-1-chunks-0 8192-1-chunks-8 8192-3-chunks-0 8192-3-chunks-8 \
  512-1-lsh-0 512-1-lsh-8 512-3-lsh-0 512-3-lsh-8}
for seed in $SEEDS; do whole SEEDS "$seed"; done
for name in UPDATES SHORT PROJECTIONS; do
  if [ -n "${!name:-}" ]; then
    echo "error: a cell sets $name; give it to recipes/gmat/majority.sh" >&2
    exit 2
  fi
done
for cell in $CELLS; do
  if ! [[ $cell =~ ^([1-9][0-9]*)-([1-9][0-9]*)-(chunks|lsh)-[0-9]+$ ]]; then
    echo "error: CELLS must be LENGTH-PAIRS-SYSTEM of majority.sh, but has $cell" >&2
    exit 2
  fi
done

# majority CELL: majority.sh with its settings
majority() {
  local length pairs sparsity memory settings
  IFS=- read -r length pairs sparsity memory <<< "$1"
  case $sparsity-$pairs in
    chunks-1) settings="SHORT=400 UPDATES=300 PROJECTIONS=none" ;;
    chunks-*) settings="SHORT=1000 UPDATES=300 PROJECTIONS=none" ;;
    lsh-1) settings="SHORT=1000 UPDATES=1000 PROJECTIONS=none" ;;
    *) settings="SHORT=2000 UPDATES=1000 PROJECTIONS=qkv" ;;
  esac
  env WORK="$WORK" BIN="$BIN" $settings recipes/gmat/majority.sh "$sparsity-$memory" "$length" "$pairs"
}
for cell in $CELLS; do ONLY_CHECK=yes majority "$cell"; done
for cell in $CELLS; do for seed in $SEEDS; do
  printf '\n== %s, seed %s\n' "$cell" "$seed"
  SEED=$seed majority "$cell"
done; done

paper="512-1-lsh-0=92 512-1-lsh-8=100 512-3-lsh-0=86 512-3-lsh-8=98 8192-1-lsh-0=15 8192-1-lsh-8=98"
shown=
for figure in $paper; do case " $CELLS " in *" ${figure%=*} "*) shown="$shown $figure" ;; esac; done
"$BIN"/python recipes/seeds.py "$WORK/majority" --systems $CELLS --seeds $SEEDS --output "$WORK/majority" \
  --values "exact match, %" --several-tasks ${shown:+--paper $shown}
