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
