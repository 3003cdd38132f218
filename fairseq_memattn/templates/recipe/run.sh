#!/usr/bin/env bash
# Trains, translates and scores. A run that was interrupted goes on when it is called again.
#
#   @FOLDER@/run.sh
#
# Call it in the environment of fairseq-memattn.
#
#   DATA     folder that `memattn prepare own-corpus` has made (default: @DATA@)
#   WORK     results (default: @FOLDER@/outputs)
#   SEED     default 1             UPDATES  at most (default: 1000)
#   DEVICE   --cpu to compute on the CPU (default: empty, a GPU if there is one)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
DATA=${DATA:-@DATA@} WORK=${WORK:-$here/outputs} SEED=${SEED:-1} UPDATES=${UPDATES:-1000}
DEVICE=${DEVICE:-}
run=$WORK/seed-$SEED
plugin=$(python -c "import fairseq_memattn; print(fairseq_memattn.__path__[0])")
if [ ! -d "$DATA/bin" ]; then
  echo "error: DATA must be a folder of memattn prepare own-corpus, but there is no $DATA/bin" >&2
  exit 2
fi
mkdir -p "$run"

# quoted TEXT: as a value on the command line of fairseq-hydra-train, in which ( = , and others have
# a meaning
quoted() { printf "'%s'" "${1//\'/\\\'}"; }

# 1. Training, unless it is done. Overrides come before --config-dir.
cpu=false
case $DEVICE in *--cpu*) cpu=true ;; esac
if [ ! -e "$run/trained-$UPDATES" ]; then
  fairseq-hydra-train task.data="$(quoted "$(cd "$DATA" && pwd)/bin")" \
    checkpoint.save_dir="$(quoted "$run")" common.user_dir="$(quoted "$plugin")" \
    common.log_file="$(quoted "$run/train.log")" common.seed="$SEED" common.cpu=$cpu \
    optimization.max_update="$UPDATES" hydra.run.dir="$(quoted "$run/hydra")" \
    --config-dir "$here" --config-name training
  touch "$run/trained-$UPDATES"
fi
memattn plot --training training="$run/train.log" --output "$run/training.png"

# 2. Translation of the test set, document by document: the model's own translations are the context.
fairseq-generate "$DATA/bin" --user-dir "$plugin" --task document_translation \
  -s @SOURCE@ -t @TARGET@ --source-context 3 --target-context 3 \
  --path "$run/checkpoint_best.pt" --beam 5 --lenpen 0.6 \
  --max-len-a 1.5 --max-len-b 20 --max-tokens 4096 $DEVICE > "$run/generated.txt"

# 3. BLEU of sentences and of documents, with sacreBLEU's signature.
memattn score --generated "$run/generated.txt" --reference "$DATA/text/test.@TARGET@" \
  --docids "$DATA/text/test.docid" | tee "$run/score.txt"
