#!/usr/bin/env bash
# Document-level translation on a small public corpus, with one budget and one seed.
#
#   recipes/abc/documents.sh CORPUS SYSTEM CONTEXT
#
#   CORPUS  bible  English-Spanish, verses in chapters: $DATA/docmt/bible-en-es
#           chat   English-German, customer service: $DATA/docmt/chat-bcontrast-en-de
#   CONTEXT previous sentences that the model sees, on both sides: 0 is translation by sentence
#
#   FROM    checkpoint of the same SYSTEM to start from, for example one without context
#
# SYSTEM and the other variables are in the head of recipes/abc/translation.sh; UPDATES is
# 2000 unless set.
source "$(dirname "$0")/../common.sh"
arguments "CORPUS SYSTEM CONTEXT" "$@"
source recipes/abc/translation.sh
corpus=$1 system=$2 context=$3 UPDATES=${UPDATES:-2000}
whole CONTEXT "$context"
whole UPDATES "$UPDATES" 1

choose_documents "$corpus"
run=$WORK/$corpus/$system-context-$context-$SEED${FROM:+-continued}
task="--task document_translation --source-context $context --target-context $context"
if [ -n "${FROM:-}" ] && [ ! -e "$FROM" ]; then echo "error: no FROM $FROM" >&2; exit 2; fi
if [ -n "${FROM:-}" ] && [ -e "$run/checkpoint_last.pt" ]; then
  echo "going on with $run, which started before: FROM is not read again" >&2
fi

choose_arch "$system"
prepare_documents
train $task ${FROM:+--finetune-from-model "$FROM"}
translate $task
score_documents
