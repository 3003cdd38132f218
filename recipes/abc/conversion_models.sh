# What conversion.sh and conversion_table.sh share, and source. For each KIND of model,
#
#   KIND_chosen SYSTEM                  its flags, in $arch; its updates, in $UPDATES unless set
#   KIND_softmax                        the trained model with softmax attention, in $softmax; $data
#   KIND_fit FOLDER UPDATES FLAGS...    trains the system in $arch
#   KIND_score                          the quality of $run

translation_chosen() { source recipes/abc/translation.sh; choose_arch "$1"; UPDATES=${UPDATES:-2000}; }
translation_softmax() {
  raw=$DATA/multi30k-en-de data=$WORK/multi30k softmax=$WORK/multi30k/softmax-$SEED
  before recipes/abc/multi30k.sh
}
translation_fit() {
  trained "$1" "$2" "$data/bin" --user-dir fairseq_memattn $arch $DEVICE \
    --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
    --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --max-tokens 1024 "${@:3}"
}
translation_loss="label_smoothed_cross_entropy --label-smoothing 0.1"
translation_score() {
  translate >&2
  perplexity
  "$BIN"/memattn score --generated "$run.generated" --reference "$raw/test_2016_flickr.de"
}

language_model_chosen() {
  if [[ $1 == *-post ]]; then
    echo "error: SYSTEM must be without -post, because the model that is converted has layernorm before" \
      "each block, but is $1" >&2
    exit 2
  fi
  source recipes/abc/language_model.sh
  UPDATES=${UPDATES:-1200} LENGTH=512
  choose_language_model "$1" "$LENGTH"
}
language_model_softmax() {
  softmax=$WORK/wikitext-2/softmax-$SEED
  wikitext2_words
  before recipes/abc/wikitext2.sh
}
language_model_fit() { fit_language_model "$@"; }
language_model_loss=adaptive_loss
language_model_score() {
  local perplexity
  perplexity=$(language_model_perplexity test --context-window 0)
  echo "ppl $perplexity"
}

masked_lm_chosen() {
  source recipes/abc/masked_model.sh
  choose_masked_model "$1"
  UPDATES=${UPDATES:-2500}
}
masked_lm_softmax() {
  data=$WORK/masked_lm/data softmax=$WORK/masked_lm/softmax-$SEED
  before recipes/abc/masked_lm.sh
}
masked_lm_fit() { fit_masked_model "$@"; }
masked_lm_loss=masked_lm
masked_lm_score() { masked_perplexity; }

# before RECIPE: trains the model with softmax attention, unless it is trained
before() {
  if [ -e "$softmax/trained-$UPDATES" ]; then return; fi
  DATA=$DATA WORK=$WORK SEED=$SEED UPDATES=$UPDATES DEVICE=$DEVICE BIN=$BIN "$1" softmax
}

# check_method SYSTEM METHOD: whether conversion.sh can do it
check_method() {
  case $2 in
    plain|transfer|low-rank|transfer-low-rank) ;;
    *)
      echo "error: METHOD must be plain, transfer, low-rank or transfer-low-rank, but is $2" >&2
      exit 2 ;;
  esac
  case $1:$2 in
    softmax:plain) ;;
    softmax:*)
      echo "error: METHOD must be plain for softmax, which has no bounded memory, but is $2" >&2
      exit 2 ;;
    clustering-*:transfer*|compressive-*:transfer*|global-*:transfer*|local_global-*:transfer*| \
    random-*:transfer*|window-*:transfer*|dilated-*:transfer*|strided-*:transfer*|elu-*:transfer*)
      echo "error: METHOD must be plain or low-rank for $1, whose control has no weights to learn," \
        "but is $2" >&2
      exit 2 ;;
  esac
}
