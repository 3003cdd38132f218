#!/usr/bin/env bash
# Language models of WikiText-2: wikitext2.sh for every system and seed, a table and a picture.
#
#   recipes/abc/wikitext2_table.sh      with the corpus in $DATA/wikitext-2
#
#   SYSTEMS  of wikitext2.sh (default: "softmax gated-64 abc-64 abc-32 linformer-64 random-64")
#   SEEDS    default "1 2 3"
#   CONTEXTS tokens of context to evaluate with: 0, or "0 480" for a further column, which takes 17 times
#            as long (default: 0)
#
# The other variables are in wikitext2.sh. A run that has its score is not repeated. The paper's figures are
# test perplexities of WikiText-103. The table is in $WORK/wikitext2.md, the picture in $WORK/wikitext2.png;
# another LENGTH is in their names. A run takes 15 to 20 minutes on one core, and "0 480" 13 more.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
source recipes/abc/language_model.sh
SYSTEMS=${SYSTEMS:-softmax gated-64 abc-64 abc-32 linformer-64 random-64} SEEDS=${SEEDS:-1 2 3}
UPDATES=${UPDATES:-1200} CONTEXTS=${CONTEXTS:-0} LENGTH=${LENGTH:-512}
whole UPDATES "$UPDATES" 1
segment LENGTH "$LENGTH"
for seed in $SEEDS; do whole SEEDS "$seed"; done
values=("validation perplexity" "test perplexity")
case $CONTEXTS in
  0) ;;
  "0 480") values+=("test perplexity, context 480") ;;
  *) echo "error: CONTEXTS must be 0 or \"0 480\", but is $CONTEXTS" >&2; exit 2 ;;
esac
for system in $SYSTEMS; do choose_language_model "$system" "$LENGTH"; done
export DATA WORK DEVICE BIN UPDATES CONTEXTS LENGTH

rows= table=$WORK/wikitext2
if [ "$LENGTH" != 512 ]; then table=$table-$LENGTH; fi
for system in $SYSTEMS; do
  run=$(language_model "$system" "$LENGTH" 1)
  row=${run##*/}
  rows="$rows ${row%-1}"
  for seed in $SEEDS; do
    printf '\n== %s, seed %s\n' "$system" "$seed"
    SEED=$seed recipes/abc/wikitext2.sh "$system"
  done
done

shown=
for figure in softmax=20.5 abc-64=21.1 abc-32=21.9 linformer-64=27.2 random-64=24.0; do
  case "$rows " in *" ${figure%=*} "*) shown="$shown $figure" ;; esac
done
"$BIN"/python recipes/seeds.py "$WORK/wikitext-2" --systems $rows --seeds $SEEDS --relative \
  --values "${values[@]}" --output "$table" ${shown:+--paper $shown}
