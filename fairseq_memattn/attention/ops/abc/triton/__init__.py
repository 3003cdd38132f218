"""The causal form of ABC and its decoding step by Triton kernels, for inputs on a GPU.

The equations and names are those of `chunked.py`: fraction F, gain Z, kept = D Z (what is left of
the memory before the chunk at position t), and F, Z, kept hold a number for each position and slot.

    masses            one program a chunk: the normalisers of its tokens
    scan_masses       goes through the chunks of a sequence; the normalisers around each
    states            goes through the chunks of a segment; what it adds to the memories, and in a
                      second run the memories before each chunk
    scan_segments     goes through the segments of a sequence; the memories before each
    find_steep        one program a chunk: which chunks need exponentials of differences
    attend            one program a chunk: the output
    attend_queries    one program a chunk: dq, p, da, and the part of ds that is -y; before that
                      <p, dp>, where the slots take more than one block
    states_back       as `states`, backwards; dH, dG, dU at the end of each chunk
    attend_tokens     one program a chunk: dv and its part of ds, then dk and its part
    step_kernel       one program a head: writes one token, reads, and updates the memory

Within a chunk the product Z_t F_j is formed from its factors (FACTORED) where Z stays below
exp(60), and else as exp(s_j - z_t), one j after another: `spread`, `pair_weights`, `gather`. The
kernels of chunks have both forms, so that the host never waits to know which one a chunk has.

A segment has SEGMENT chunks, and the programs of all segments run side by side. Where no sequence
can have more than two segments, `states` runs once for each sequence. A chunk never extends over
the end of a sequence. With PACKED, chunk g holds the positions from chunk_starts[g] to
chunk_ends[g] of row 0; chunks without positions do nothing. Without it, every row of the batch has
`chunks` chunks.

`torch.compile` and CUDA graphs accept the operators: nothing waits for the device, and every size
follows from shapes.
"""
