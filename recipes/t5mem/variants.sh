# What the scripts of T5Mem share, and source.

# set_sizes WIDTH FFN: 2 + 2 layers of 4 heads, in $sizes
set_sizes() {
  sizes="--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim $1 --decoder-embed-dim $1"
  sizes="$sizes --encoder-ffn-embed-dim $2 --decoder-ffn-embed-dim $2"
  sizes="$sizes --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings"
  sizes="$sizes --t5-scale-embeddings"  # Adam learns T5's embeddings slowly
}

# choose_variant NAME: T5 or a variant of T5Mem, in $arch
choose_variant() {
  case $1 in
    t5) arch="--arch t5" ;;
    v1|v2|v3|v4) arch="--arch t5mem_$1" ;;
    *) echo "error: the system must be t5, v1, v2, v3 or v4, but is $1" >&2; exit 2 ;;
  esac
}

# check_stage NAME: of documents.sh
check_stage() {
  case $1 in
    agnostic|scratch|finetuned) ;;
    *) echo "error: STAGE must be agnostic, scratch or finetuned, but is $1" >&2; exit 2 ;;
  esac
}

# check_story_system NAME: VARIANT-CHUNKS
check_story_system() {
  if ! [[ $1 =~ ^(t5-1|(v[1-4]|ws|ws_wma)-[1-8])$ ]]; then
    echo "error: SYSTEM must be t5-1, or v1, v2, v3, v4, ws or ws_wma and CHUNKS from 1 to 8, like" \
      "v1-4, but is $1" >&2
    exit 2
  fi
}

# check_facts: FACTS of stories.sh
check_facts() {
  if ! [[ $FACTS =~ ^[1-3](\ [1-3])*$ ]]; then
    echo "error: FACTS must be some of 1, 2 and 3, with spaces between them, but is $FACTS" >&2
    exit 2
  fi
}

# story_length: the tokens of an input in all chunks of stories.sh, in $LENGTH
story_length() {
  # A sentence has at most 6 tokens, and a question of 1, 2 or 3 facts 4, 5 or 8; both texts end with </s>.
  local questions=(0 5 6 9) number question=0 repeated=0 least room
  for number in $FACTS; do
    if [ "${questions[number]}" -gt "$question" ]; then question=${questions[number]}; fi
  done
  if [ "$QUESTION" = each ]; then repeated=$question; fi
  least=$((question + 6 * SENTENCES + 1 + (chunks - 1) * (repeated + OVERLAP)))
  LENGTH=${LENGTH:-$(((least + chunks - 1) / chunks * chunks))}
  whole LENGTH "$LENGTH" "$least"
  if [ $((LENGTH % chunks)) -ne 0 ]; then
    echo "error: the CHUNKS of SYSTEM must divide LENGTH $LENGTH, but are $chunks" >&2
    exit 2
  fi
  room=$((LENGTH / chunks - repeated))
  if [ "$chunks" -gt 1 ] && [ "$OVERLAP" -ge "$room" ]; then
    echo "error: OVERLAP must be less than $room, the room for the story in a chunk, but is $OVERLAP" >&2
    exit 2
  fi
}

# check_model FROM: a file, or none
check_model() {
  if [ -n "$1" ] && [ ! -f "$1" ]; then
    echo "error: FROM must be a model of fairseq, but there is no file $1" >&2
    exit 2
  fi
}
