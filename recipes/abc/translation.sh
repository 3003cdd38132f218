# What multi30k.sh, documents.sh and T5Mem's documents.sh share, and source: the systems, and one
# setting for all of them.
#
#   SYSTEM  softmax | CONTROL-CROSS-CAUSAL, a control of docs/controls.md and its slots of cross and of
#           causal attention, 0 for softmax attention: abc-32-8 (abc is ABC-MLP), linformer-32-32,
#           random-32-32, rfa-32-32, workspace-32-0, which has no causal form;
#           abc-32-32-VARIANT: sigmoid or relu, the activation of W_phi x; separate, a W_phi for each
#           layer; shared, one control for the heads of a layer; all, CROSS slots in the encoder as well
#
#   DATA    folder of the corpora (default: data)     WORK     results (default: outputs/abc)
#   SEED    default 1                                 UPDATES  of training
#   DEVICE  flags of fairseq-train and fairseq-generate, for example "--fp16" (default: --cpu)
#   BIN     folder of the programs (default: .venv/bin)
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES is refused, and needs another WORK. A run that has its score shows it, and does not
# read its corpus again.
DATA=${DATA:-data} WORK=${WORK:-outputs/abc} SEED=${SEED:-1} DEVICE=${DEVICE---cpu}
BIN=${BIN:-.venv/bin}
plugin=fairseq_memattn  # the user directory; a recipe may have one of its own

whole SEED "$SEED"

# choose_arch SYSTEM: the flags of the system, in $arch
choose_arch() {
  if [ "$1" = softmax ]; then
    arch="--arch transformer"
  elif [[ $1 =~ ^([a-z0-9_]+)-([0-9]+)-([0-9]+)(-(sigmoid|relu|separate|shared|all))?$ ]]; then
    arch=$(control_arch "$1" "${BASH_REMATCH[1]}" transformer)
    if [ "${BASH_REMATCH[1]}" = workspace ] && [ "${BASH_REMATCH[3]}" -gt 0 ]; then
      echo "error: SYSTEM must have no causal slots for workspace, such as workspace-32-0, but is $1" >&2
      exit 2
    fi
    arch="--arch $arch --abc-cross-slots ${BASH_REMATCH[2]} --abc-causal-slots ${BASH_REMATCH[3]}"
    # Sentences of Multi30k have 71 pieces at most.
    fewest=$(printf '%s\n' "${BASH_REMATCH[@]:2:2}" | awk '$1 > 0' | sort -n | head -n 1)
    arch="$arch $(spread "$1" "${BASH_REMATCH[1]}" "${fewest:-1}" 128)"
    case ${BASH_REMATCH[5]} in
      sigmoid|relu) arch="$arch --abc-activation ${BASH_REMATCH[5]}" ;;
      separate) arch="$arch --abc-phi-layers separate" ;;
      shared) arch="$arch --abc-phi-heads shared" ;;
      all) arch="$arch --abc-encoder-slots ${BASH_REMATCH[2]}" ;;
    esac
  else
    echo "error: SYSTEM must be softmax or CONTROL-CROSS-CAUSAL[-VARIANT], but is $1" >&2
    exit 2
  fi
}

# choose_documents CORPUS: bible or chat, in $raw, $target and $data
choose_documents() {
  case $1 in
    bible) target=es raw=$DATA/docmt/bible-en-es ;;
    chat)  target=de raw=$DATA/docmt/chat-bcontrast-en-de ;;
    *) echo "error: CORPUS must be bible or chat, but is $1" >&2; exit 2 ;;
  esac
  data=$WORK/$1
}

# prepare FOLDER SOURCE TARGET SPLIT=PREFIX...: the corpus in FOLDER, binarised in $data
prepare() {
  local folder=$1 source=$2 target=$3
  shift 3
  if [ ! -d "$folder" ]; then echo "error: no folder $folder; set DATA" >&2; exit 2; fi
  programs
  "$BIN"/memattn prepare own-corpus --langs "$source" "$target" --output "$data" \
    --vocab-size 4000 --text "$@"
}

# prepare_documents: what choose_documents has chosen
prepare_documents() {
  prepare "$raw" en "$target" train="$raw/train" valid="$raw/dev" test="$raw/test"
}

# train [FLAG...]: the system in $arch on $data, to $run; flags replace those below
train() {
  one_budget "$run" "$UPDATES"
  if [ -e "$run/trained-$UPDATES" ]; then return; fi
  "$BIN"/fairseq-train "$data/bin" --user-dir $plugin $arch $DEVICE \
    --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
    --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-3 --lr-scheduler polynomial_decay \
    --total-num-update "$UPDATES" --warmup-updates "$(warmup "$UPDATES")" --clip-norm 1.0 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 2048 --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
    --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval-updates 500 \
    --save-interval 1000 --keep-interval-updates 1 --validate-interval-updates 500 \
    --validate-interval 1000 \
    --save-dir "$run" --log-format simple --log-interval 100 --log-file "$run.log" "$@"
  touch "$run/trained-$UPDATES"
}

# translate [FLAG...]: the test set with the last checkpoint, to $run.generated; flags likewise
translate() {
  if [ "$run.generated" -nt "$run/checkpoint_last.pt" ]; then
    echo "$run.generated: translated before"
    return
  fi
  "$BIN"/fairseq-generate "$data/bin" --user-dir $plugin $DEVICE \
    --path "$run/checkpoint_last.pt" --gen-subset test --beam 5 --lenpen 0.6 --max-tokens 4096 \
    --required-batch-size-multiple 1 --max-len-a 1.5 --max-len-b 20 "$@" > "$run.generating"
  mv "$run.generating" "$run.generated"
}

# perplexity [FLAG...]: of the validation set with the last checkpoint, as a line `ppl P`
perplexity() {
  "$BIN"/fairseq-validate "$data/bin" --user-dir $plugin $DEVICE --task translation \
    --criterion label_smoothed_cross_entropy --path "$run/checkpoint_last.pt" --valid-subset valid \
    --max-tokens 4096 --required-batch-size-multiple 1 "$@" 2>&1 | grep -o "ppl [0-9.e+]*" | tail -1
}

# score_documents: the translation of what choose_documents has chosen, to $run.score
score_documents() {
  "$BIN"/memattn score --generated "$run.generated" --reference "$raw/test.$target" \
    --docids "$raw/test.docid" --resamples 1000 | tee "$run.score.unfinished"
  mv "$run.score.unfinished" "$run.score"
}
