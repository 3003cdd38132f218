#!/usr/bin/env bash
# SQuAD 1.1 answered by a small model that nothing has pretrained: to see it run, not for its scores.
#
#   recipes/t5mem/squad.sh [ARCH]
#
#   ARCH     default: t5mem_v4, which reads CHUNKS sequences; t5 and transformer read one
#
#   DATA     folder with squad/: dev-v1.1.json, and to train on the one file train-*.json (default: data)
#   WORK     results (default: outputs/t5mem)   UPDATES  of training (default: 3000)
#   CHUNKS   of 512 tokens together (default: 4, and 1 where ARCH reads one sequence)
#   SEED     default 1                          DEVICE   flags of fairseq (default: --cpu)
#   BIN      programs (default: .venv/bin)
#
# Data and a training that are done are not done again, and a training that stopped is gone on with;
# one of other UPDATES is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "[ARCH]" "$@"
arch=${1:-t5mem_v4}
DATA=${DATA:-data} WORK=${WORK:-outputs/t5mem} UPDATES=${UPDATES:-3000} SEED=${SEED:-1}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
case $arch in
  t5mem_*) CHUNKS=${CHUNKS:-4} scale=--t5-scale-embeddings ;;
  t5) CHUNKS=${CHUNKS:-1} scale=--t5-scale-embeddings ;;
  transformer) CHUNKS=${CHUNKS:-1} scale= ;;
  *) echo "error: ARCH must be t5mem_..., t5 or transformer, but is $arch" >&2; exit 2 ;;
esac
whole SEED "$SEED"
for name in UPDATES CHUNKS; do whole "$name" "${!name}" 1; done
gold=$DATA/squad/dev-v1.1.json
train=("$DATA"/squad/train-*.json)
if [ ! -f "$gold" ] || [ ${#train[@]} -ne 1 ] || [ ! -f "${train[0]}" ]; then
  echo "error: $DATA/squad must hold dev-v1.1.json and one train-*.json; set DATA" >&2
  exit 2
fi
data=$WORK/squad run=$WORK/squad/$arch-$CHUNKS-$SEED

programs
"$BIN"/memattn prepare squad --output "$data" --vocab-size 4000 \
  --normalization nmt_nfkc \
  --files train="${train[0]}" valid="$gold"

task="--user-dir fairseq_memattn --task question_answering --chunks $CHUNKS $DEVICE"
one_budget "$run" "$UPDATES"
if [ ! -e "$run/trained-$UPDATES" ]; then  # fairseq would train for one update more
  "$BIN"/fairseq-train "$data/bin" $task --arch "$arch" --encoder-layers 2 --decoder-layers 2 \
    --encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
    --decoder-ffn-embed-dim 512 --encoder-attention-heads 4 --decoder-attention-heads 4 \
    --share-all-embeddings $scale --dropout 0.1 --criterion cross_entropy --optimizer adam \
    --adam-betas '(0.9, 0.98)' --lr 1e-3 --lr-scheduler inverse_sqrt --warmup-updates 300 \
    --clip-norm 1.0 --batch-size 32 --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
    --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval 1000 \
    --save-interval-updates 500 --keep-interval-updates 1 --validate-interval 1000 \
    --validate-interval-updates 500 --save-dir "$run" --log-format simple --log-interval 100 \
    --log-file "$run.log"
  touch "$run/trained-$UPDATES"
fi
"$BIN"/fairseq-generate "$data/bin" $task --gen-subset valid --path "$run/checkpoint_last.pt" \
  --beam 1 --max-len-b 40 --batch-size 64 > "$run.generated"
"$BIN"/memattn answers --generated "$run.generated" --gold "$gold" \
  --predictions "$run.predictions.json" | tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
