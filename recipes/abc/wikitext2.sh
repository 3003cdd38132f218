#!/usr/bin/env bash
# Softmax attention against bounded memories on WikiText-2, with one budget and one seed.
#
#   recipes/abc/wikitext2.sh SYSTEM
#
#   SYSTEM  softmax | abc-64 (ABC-MLP with 64 memory slots) | CONTROL-64 for another control of
#           docs/controls.md, for example linformer-64 | elu-32, rfa-64, t2r-64
#
#   DATA    folder with wikitext-2/{train,valid,test}.txt (default: data)
#   WORK    results (default: outputs/abc)            SEED     default 1
#   UPDATES default 1200                              DEVICE   flags of fairseq (default: --cpu)
#   LENGTH   tokens of a segment, in training and evaluation, up to 4096 (default: 512). The files of
#            another length are named SYSTEM-LENGTH-SEED
#   CONTEXTS tokens of context to evaluate with (default: 0; "0 480" takes 17 times as long)
#
# A run that stopped is gone on with; one of other UPDATES is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/abc/language_model.sh
system=$1 UPDATES=${UPDATES:-1200} CONTEXTS=${CONTEXTS:-0} LENGTH=${LENGTH:-512}
choose_language_model "$system"
segment LENGTH "$LENGTH"
data=$WORK/wikitext-2 run=$(language_model "$system" "$LENGTH" "$SEED")

if [ ! -d "$DATA/wikitext-2" ]; then echo "error: no folder $DATA/wikitext-2; set DATA" >&2; exit 2; fi
programs
if [ ! -e "$data/ready" ]; then
  rm -rf "$data/bin"  # what an interrupted run may have left
  "$BIN"/fairseq-preprocess --only-source --trainpref "$DATA/wikitext-2/train.txt" \
    --validpref "$DATA/wikitext-2/valid.txt" --testpref "$DATA/wikitext-2/test.txt" \
    --destdir "$data/bin"
  touch "$data/ready"
fi

one_budget "$run" "$UPDATES"
# A training that is done is left alone: fairseq would train for one update more.
if [ ! -e "$run/trained-$UPDATES" ]; then
  "$BIN"/fairseq-train "$data/bin" --task language_modeling --user-dir fairseq_memattn $arch $DEVICE \
    --decoder-layers 4 --decoder-embed-dim 128 --decoder-input-dim 128 --decoder-output-dim 128 \
    --decoder-ffn-embed-dim 512 --decoder-attention-heads 4 --dropout 0.1 \
    --adaptive-input --adaptive-input-cutoff 2000,10000 --adaptive-softmax-cutoff 2000,10000 \
    --tie-adaptive-weights --criterion adaptive_loss --ddp-backend legacy_ddp \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-3 --lr-scheduler cosine \
    --warmup-updates 200 --max-update "$UPDATES" --clip-norm 0.5 \
    --tokens-per-sample "$LENGTH" --sample-break-mode none --max-tokens 4096 --seed "$SEED" \
    --num-workers 0 --required-batch-size-multiple 1 --no-epoch-checkpoints \
    --save-interval-updates 500 --keep-interval-updates 1 --validate-interval-updates 500 \
    --save-dir "$run" --log-format simple --log-interval 100 --log-file "$run.log"
  touch "$run/trained-$UPDATES"
fi

for subset in valid test; do for context in $CONTEXTS; do
  "$BIN"/fairseq-eval-lm "$data/bin" --user-dir fairseq_memattn $DEVICE \
    --path "$run/checkpoint_last.pt" --gen-subset "$subset" --tokens-per-sample "$LENGTH" \
    --context-window "$context" --max-tokens 4096 --required-batch-size-multiple 1 2>&1 |
    grep -o "Perplexity: .*" | sed "s/^/$subset, context $context: /" 
done; done | tee "$run.score"
