#!/usr/bin/env bash
# T5 and T5Mem on a small public corpus, by sentence and with three sentences of source context, from
# scratch and from the model by sentence: tables I to III of the paper, with one budget and one seed.
#
#   recipes/t5mem/documents.sh CORPUS SYSTEM STAGE
#
#   CORPUS  bible  English-Spanish, verses in chapters: $DATA/docmt/bible-en-es
#           chat   English-German, customer service: $DATA/docmt/chat-bcontrast-en-de
#   SYSTEM  t5 | v1 | v2 | v3 | v4; t5 reads the context as one sequence with the sentence
#   STAGE   agnostic | scratch | finetuned, which begins with the agnostic model of SYSTEM and SEED
#
# The variables are in the head of recipes/abc/translation.sh, but WORK is outputs/t5mem unless set; UPDATES is
# 1500 unless set, and 500 for finetuned.
source "$(dirname "$0")/../common.sh"
arguments "CORPUS SYSTEM STAGE" "$@"
WORK=${WORK:-outputs/t5mem}
source recipes/abc/translation.sh
source recipes/t5mem/variants.sh
corpus=$1 system=$2 stage=$3
choose_documents "$corpus"
choose_variant "$system"
check_stage "$stage"
set_sizes 128 512
run=$data/$system-$stage-$SEED agnostic=$data/$system-agnostic-$SEED context=3 from=
if [ "$stage" = finetuned ]; then UPDATES=${UPDATES:-500}; else UPDATES=${UPDATES:-1500}; fi
whole UPDATES "$UPDATES" 1
finished "$run.score" "$run" "$UPDATES"
case $stage in
  agnostic) context=0 ;;
  scratch) ;;
  finetuned)
    from=$agnostic/checkpoint_last.pt
    if ! compgen -G "$agnostic/trained-*" > /dev/null || [ ! -e "$from" ]; then
      echo "error: no trained model in $agnostic; run $0 $corpus $system agnostic first" >&2
      exit 2
    fi ;;
esac
task="--task document_translation --source-context $context --target-context 0"

prepare_documents
train $task $sizes ${from:+--finetune-from-model "$from"}
translate $task --beam 1
score_documents
