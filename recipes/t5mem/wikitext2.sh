#!/usr/bin/env bash
# Span corruption on WikiText-2, inputs of 512 tokens, with T5 and T5Mem: the rows of the MLM paper's
# tables 2 to 4, with one budget and one seed.
#
#   recipes/t5mem/wikitext2.sh SYSTEM
#
#   SYSTEM  t5-1                  T5, one chunk
#           mem-1 | mem-4         T5Mem v4, one chunk of 512 or 4 of 128, two memory tokens
#           ws-1 | ws-2           without selector, 4 chunks, one memory token or two
#           ws_wma-1 | ws_wma-2   without selector and MemAttention, likewise
#
#   DATA    folder with wikitext-2/{train,valid,test}.txt (default: data)
#   WORK    results (default: outputs/t5mem)          SEED     default 1
#   UPDATES of 8 inputs (default: 1000)               BIN      programs (default: .venv/bin)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/t5mem/variants.sh
source recipes/wikitext2_pieces.sh
system=$1
DATA=${DATA:-data} WORK=${WORK:-outputs/t5mem} SEED=${SEED:-1} UPDATES=${UPDATES:-1000}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
whole UPDATES "$UPDATES" 1
data=$WORK/wikitext-2 run=$WORK/wikitext-2/$system-$SEED number=${system##*-}

case $system in
  t5-1) arch="--arch t5" chunks=1 ;;
  mem-1|mem-4) arch="--arch t5mem_v4 --t5mem-slots 2" chunks=$number ;;
  ws-1|ws-2) arch="--arch t5mem_ws --t5mem-slots $number" chunks=4 ;;
  ws_wma-1|ws_wma-2) arch="--arch t5mem_ws_wma --t5mem-slots $number" chunks=4 ;;
  *) echo "error: SYSTEM must be t5-1, mem-1, mem-4, ws-1, ws-2, ws_wma-1 or ws_wma-2, but is" \
       "$system" >&2; exit 2 ;;
esac
set_sizes 128 512
schedule="--optimizer adam --lr 1e-3 --lr-scheduler fixed --warmup-updates 200 --clip-norm 1.0
  --dropout 0.1 --batch-size 8"

wikitext2_pieces "$data" 4000

one_budget "$run" "$UPDATES"
if [ ! -e "$run/trained-$UPDATES" ]; then  # fairseq would train for one update more
  "$BIN"/fairseq-train "$data/bin" --user-dir fairseq_memattn $arch $sizes $schedule $DEVICE \
    --task span_corruption --source-length 512 --chunks "$chunks" \
    --criterion label_smoothed_cross_entropy --label-smoothing 0 --report-accuracy \
    --max-update "$UPDATES" --seed "$SEED" --num-workers 0 --required-batch-size-multiple 1 \
    --no-epoch-checkpoints --save-interval-updates 500 --keep-interval-updates 1 \
    --validate-interval-updates 500 --save-dir "$run" --log-format simple --log-interval 100 \
    --log-file "$run.log"
  touch "$run/trained-$UPDATES"
fi

for subset in valid test; do
  "$BIN"/fairseq-validate "$data/bin" --user-dir fairseq_memattn $DEVICE --task span_corruption \
    --path "$run/checkpoint_last.pt" --valid-subset "$subset" --batch-size 32 \
    --required-batch-size-multiple 1 --log-format json |
    grep -o "\"${subset}_ppl\": .*\"${subset}_loss_nats\": \"[^\"]*\"" |
    sed -E "s/.*ppl\": \"([^\"]*)\".*accuracy\": \"([^\"]*)\".*nats\": \"([^\"]*)\"/$subset: loss_nats \3, accuracy \2 %, ppl \1/"
done | tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
