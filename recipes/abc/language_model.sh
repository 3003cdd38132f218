# What wikitext2.sh and wikitext2_lengths.sh share, and source.
DATA=${DATA:-data} WORK=${WORK:-outputs/abc} SEED=${SEED:-1} DEVICE=${DEVICE---cpu}
BIN=${BIN:-.venv/bin}

whole SEED "$SEED"

# choose_language_model SYSTEM: the flags of the system, in $arch
choose_language_model() {
  if [ "$1" = softmax ]; then
    arch="--arch transformer_lm"
  elif [[ $1 =~ ^([a-z0-9_]+)-([0-9]+)$ ]]; then
    case ${BASH_REMATCH[1]} in
      abc) arch=abc_mlp_transformer_lm ;;
      elu|rfa|t2r) arch=${BASH_REMATCH[1]}_transformer_lm ;;
      *) arch=abc_${BASH_REMATCH[1]}_transformer_lm ;;
    esac
    arch="--arch $arch --abc-causal-slots ${BASH_REMATCH[2]}"
  else
    echo "error: SYSTEM must be softmax or CONTROL-SLOTS, but is $1" >&2
    exit 2
  fi
}

# segment NAME LENGTH: an update has 4096 tokens
segment() {
  whole "$1" "$2" 1
  if [ "$2" -gt 4096 ]; then
    echo "error: $1 must be at most 4096, the tokens of an update, but is $2" >&2
    exit 2
  fi
}

# language_model SYSTEM LENGTH SEED: its folder
language_model() {
  local length=-$2
  if [ "$2" = 512 ]; then length=; fi
  echo "$WORK/wikitext-2/$1$length-$3"
}
