#!/usr/bin/env bash
# Does a bounded memory use distant text? Language models of WikiText-2 trained on segments of 512 and of
# 2048 tokens, each evaluated with little and with much text before a token: a table and a picture.
#
#   recipes/abc/wikitext2_lengths.sh      with the corpus in $DATA/wikitext-2
#
#   SYSTEMS  of wikitext2.sh (default: "softmax abc-64 gated-64")
#   LENGTHS  tokens of a segment in training (default: "512 2048")
#   SEEDS    default: "1 2 3"
#
# The other variables but CONTEXTS are in wikitext2.sh. Evaluated on the test set: segments of 512 tokens, segments of
# 2048, and the whole text, for which a bounded memory is kept from segment to segment and softmax attention
# reads the 1536 tokens before each 512 again. A run that has its score is not repeated. The table is in
# $WORK/lengths.md, the picture in $WORK/lengths.png; the perplexity by the number of tokens before a token
# in segments of 2048 is in $WORK/positions.md and .png.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
source recipes/abc/language_model.sh
SYSTEMS=${SYSTEMS:-softmax abc-64 gated-64} LENGTHS=${LENGTHS:-512 2048} SEEDS=${SEEDS:-1 2 3}
UPDATES=${UPDATES:-1200}
whole UPDATES "$UPDATES" 1
for seed in $SEEDS; do whole SEEDS "$seed"; done
for length in $LENGTHS; do segment LENGTHS "$length"; done
for system in $SYSTEMS; do
  choose_language_model "$system" 512
  case $system in
    linformer-*|compressive-*|global-*|local_global-*)
      echo "error: SYSTEMS must be controls without a longest sequence, because a memory is kept for" \
        "the whole text, but has $system" >&2
      exit 2 ;;
  esac
done

# evaluated NAME FLAGS...: the perplexity of the test set as a line `NAME: P`
evaluated() {
  local perplexity
  perplexity=$(language_model_perplexity test "${@:2}")
  echo "$1: $perplexity"
}

data=$WORK/wikitext-2
mkdir -p "$WORK/lengths"
rows=
for length in $LENGTHS; do for system in $SYSTEMS; do
  rows="$rows $system-$length"
  for seed in $SEEDS; do
    score=$WORK/lengths/$system-$length-$seed.score positions=${score%.score}.json
    run=$(language_model "$system" "$length" "$seed")
    if [ -e "$score" ] && [ -e "$positions" ] && begun "$run"; then
      one_budget "$run" "$UPDATES"
      continue
    fi
    printf '\n== %s, segments of %s, seed %s\n' "$system" "$length" "$seed"
    DATA=$DATA WORK=$WORK SEED=$seed LENGTH=$length UPDATES=$UPDATES DEVICE=$DEVICE BIN=$BIN CONTEXTS=0 \
      recipes/abc/wikitext2.sh "$system"
    whole="--stateful --positions restart --tokens-per-sample $length"
    if [ "${system%-post}" = softmax ]; then whole="--tokens-per-sample 2048 --context-window 1536"; fi
    {
      evaluated "segments of 512" --tokens-per-sample 512 --context-window 0
      evaluated "segments of 2048" --tokens-per-sample 2048 --context-window 0 --json "$positions"
      evaluated "the whole text" $whole
    } > "$score.evaluating"
    mv "$score.evaluating" "$score"
  done
done; done
"$BIN"/python recipes/seeds.py "$WORK/lengths" --systems $rows --seeds $SEEDS --output "$WORK/lengths" \
  --values "segments of 2048" "segments of 512" "the whole text"
"$BIN"/python recipes/by_position.py "$WORK/lengths" --systems $rows --seeds $SEEDS --output "$WORK/positions"
