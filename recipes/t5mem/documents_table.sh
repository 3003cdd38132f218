#!/usr/bin/env bash
# Tables I to III of the paper: documents.sh for every system, stage and seed, a table and a picture.
#
#   recipes/t5mem/documents_table.sh      with the corpus in $DATA/docmt/chat-bcontrast-en-de
#
#   CORPUS   chat or bible (default: chat)
#   SYSTEMS  default "t5 v1 v2 v3 v4"
#   STAGES   default "agnostic scratch finetuned"; finetuned needs agnostic
#   SEEDS    default "1 2 3"
#
# The other variables are in documents.sh, except UPDATES, which its stages have each their own of. A
# run that has its score is not repeated. The table is in $WORK/CORPUS.md, the picture in
# $WORK/CORPUS.png. A run takes five to twelve minutes on one core.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
WORK=${WORK:-outputs/t5mem}
if [ -n "${UPDATES:-}" ]; then
  echo "error: UPDATES is of one stage; give it to recipes/t5mem/documents.sh" >&2
  exit 2
fi
source recipes/abc/translation.sh
source recipes/t5mem/variants.sh
CORPUS=${CORPUS:-chat} SYSTEMS=${SYSTEMS:-t5 v1 v2 v3 v4}
STAGES=${STAGES:-agnostic scratch finetuned} SEEDS=${SEEDS:-1 2 3}
choose_documents "$CORPUS"
for system in $SYSTEMS; do choose_variant "$system"; done
for stage in $STAGES; do check_stage "$stage"; done
for seed in $SEEDS; do whole SEEDS "$seed"; done

rows=
for stage in $STAGES; do for system in $SYSTEMS; do
  rows="$rows $system-$stage"
  for seed in $SEEDS; do
    printf '\n== %s, %s, seed %s\n' "$system" "$stage" "$seed"
    DATA=$DATA WORK=$WORK SEED=$seed DEVICE=$DEVICE BIN=$BIN \
      recipes/t5mem/documents.sh "$CORPUS" "$system" "$stage"
  done
done; done

paper="t5-agnostic=25.65 v1-agnostic=26.73 v2-agnostic=26.44 v3-agnostic=26.71 v4-agnostic=26.35
  v1-scratch=1.02 v2-scratch=0.88 v3-scratch=1.54 v4-scratch=1.29
  v1-finetuned=26.62 v2-finetuned=26.12 v3-finetuned=26.36 v4-finetuned=26.58"
shown=
for figure in $paper; do case " $rows " in *" ${figure%=*} "*) shown="$shown $figure" ;; esac; done
"$BIN"/python recipes/seeds.py "$data" --systems $rows --values s-BLEU d-BLEU \
  --seeds $SEEDS --output "$data" ${shown:+--paper $shown}
