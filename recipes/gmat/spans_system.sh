# The systems of squad.sh and stories.sh: CHUNK-MEMORY, or CHUNK-MEMORY-LAYERS with compression.

# check_spans_system SYSTEM: sets chunk, memory and compressed, which is empty without compression
check_spans_system() {
  if ! [[ $1 =~ ^([1-9][0-9]*)-([0-9]+)(-([1-3]))?$ ]]; then
    echo "error: SYSTEM must be CHUNK-MEMORY or CHUNK-MEMORY-LAYERS, like 64-16, but is $1" >&2
    exit 2
  fi
  chunk=${BASH_REMATCH[1]} memory=${BASH_REMATCH[2]} compressed=${BASH_REMATCH[4]}
  if [ "$memory" -eq 0 ] && [ -n "$compressed" ]; then
    echo "error: SYSTEM $1 keeps a memory alone that has no vectors; MEMORY must be 1 or more" >&2
    exit 2
  fi
}
