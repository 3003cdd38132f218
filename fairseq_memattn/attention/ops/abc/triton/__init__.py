"""The causal form of ABC and its decoding step by Triton kernels, for inputs on a GPU.

The equations and names are those of `chunked.py`: fraction F, gain Z, and F and Z hold a number for
each position and slot. Memories are stored transposed, (D, M).

    states          one program a chunk: what it adds to an empty memory
    scan            goes through the chunks of a sequence: the memory and the mass before each
    attend          one program a chunk: the output
    queries_back    one program a chunk: dq, and what its queries add to dH, dG, dU and ds; runs a
                    second time for steep chunks
    scan_back       as `scan`, backwards: dH, dG and dU after each chunk
    tokens_back     one program a chunk: dk, dv and ds
    step_kernel     one program a head: writes one token, reads, and updates the memory

Within a chunk the product Z_t F_j is formed from its factors where the normaliser rises by at most
60. In a steep chunk each slot has several references for its exponentials: `_by_reference`.

Keys and values are stored less the means of their chunk, as bfloat16 rounds what is left less. The
means of a chunk depend on nothing that comes after it.

A chunk never extends over the end of a sequence. Of packed sequences, n begins with chunk
cu_seqlens[n] // C + n of row 0; chunks without positions do nothing. Otherwise every row of the
batch has `chunks` chunks. G is the number of chunks of all rows, N that of sequences.

`torch.compile` and CUDA graphs accept the operators: nothing waits for the device, and every size
follows from shapes.
"""
