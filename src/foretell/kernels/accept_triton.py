"""accept: the greedy path of every row's drafted tree and the cache's new pointers, one launch on a GPU.

tree_bits: what every node sees of its tree, for the attention before that. The same numbers as ``accept_reference`` and
``tree_bits`` of ``reference``, which say what they mean. One program a row.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from foretell.kernels.reference import MAX_NODES, Accepted

NUM_WARPS = 1


@triton.jit(do_not_specialize=["num_nodes"])
def accept_kernel(
    argmax_ptr, tokens_ptr, parents_ptr, slots_ptr, committed_ptr,
    path_ptr, num_accepted_ptr, next_ptr, is_end_ptr, new_slots_ptr, new_committed_ptr,
    num_nodes, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Row ``program_id(0)`` of matrices (B, num_nodes); BLOCK_N: a power of two, num_nodes or more."""
    row = tl.program_id(0).to(tl.int64)
    start = row * num_nodes
    nodes = tl.arange(0, BLOCK_N)
    inside = nodes < num_nodes
    tokens = tl.load(tokens_ptr + start + nodes, mask=inside, other=-1)
    parents = tl.load(parents_ptr + start + nodes, mask=inside, other=-1).to(tl.int32)
    slots = tl.load(slots_ptr + start + nodes, mask=inside, other=0)

    # A child comes behind its parent, so the walk ends whatever the parents are.
    rank = tl.where(nodes == 0, 0, -1)
    path = tl.full((BLOCK_N,), -1, tl.int32)
    node = tl.full((), 0, tl.int32)
    length = tl.full((), 0, tl.int32)
    wanted = tl.load(argmax_ptr + start)
    child = tl.min(tl.where((parents == 0) & (nodes > 0) & (tokens == wanted), nodes, BLOCK_N), 0)
    while child < BLOCK_N:
        node = child
        path = tl.where(nodes == length, node, path)
        length += 1
        rank = tl.where(nodes == node, length, rank)
        wanted = tl.load(argmax_ptr + start + node)
        child = tl.min(tl.where((parents == node) & (nodes > node) & (tokens == wanted), nodes, BLOCK_N), 0)

    other = rank < 0
    target = tl.where(other, length + tl.cumsum(other.to(tl.int32), 0), rank)
    tl.store(path_ptr + start + nodes, path, mask=inside)
    tl.store(new_slots_ptr + start + target, slots, mask=inside)
    tl.store(num_accepted_ptr + row, length)
    tl.store(next_ptr + row, wanted)
    tl.store(is_end_ptr + row, tl.sum(((parents == node) & (nodes > node)).to(tl.int32), 0) == 0)
    tl.store(new_committed_ptr + row, tl.load(committed_ptr + row) + length + 1)


@triton.jit(do_not_specialize=["num_nodes"])
def tree_bits_kernel(parents_ptr, bits_ptr, num_nodes, BLOCK_N: tl.constexpr):
    """All nodes of row ``program_id(0)`` go up to their root, a step at a time."""
    start = tl.program_id(0).to(tl.int64) * num_nodes
    nodes = tl.arange(0, BLOCK_N)
    inside = nodes < num_nodes
    one = tl.full((BLOCK_N,), 1, tl.int64)
    bits = one << nodes.to(tl.int64)
    above = tl.load(parents_ptr + start + nodes, mask=inside, other=-1).to(tl.int32)
    while tl.max(above, 0) >= 0:
        bits |= tl.where(above >= 0, one << tl.maximum(above, 0).to(tl.int64), 0)
        higher = tl.load(parents_ptr + start + above, mask=above >= 0, other=-1).to(tl.int32)
        above = tl.where(higher < above, higher, -1)  # ends, whatever the parents are
    tl.store(bits_ptr + start + nodes, bits, mask=inside)


def tree_bits(parents_BN: torch.Tensor) -> torch.Tensor:
    """As ``reference.tree_bits``, in one launch."""
    num_rows, num_nodes = parents_BN.shape
    _check_nodes(num_nodes)
    bits_BN = parents_BN.new_empty((num_rows, num_nodes), dtype=torch.int64)
    block_n = triton.next_power_of_2(num_nodes)
    tree_bits_kernel[(num_rows,)](parents_BN.contiguous(), bits_BN, num_nodes, BLOCK_N=block_n, num_warps=NUM_WARPS)
    return bits_BN


def accept(
    argmax_BN: torch.Tensor,
    token_ids_BN: torch.Tensor,
    parents_BN: torch.Tensor,
    slots_BN: torch.Tensor,
    num_committed_B: torch.Tensor,
) -> Accepted:
    """As ``accept_reference``; nothing is read back, so a CUDA graph can hold it.

    What is given stays as it is: the new slots and lengths are new tensors.
    """
    num_rows, num_nodes = argmax_BN.shape
    _check_nodes(num_nodes)
    given = [each.contiguous() for each in (argmax_BN, token_ids_BN, parents_BN, slots_BN, num_committed_B)]
    ints_BN = argmax_BN.new_empty((num_rows, num_nodes), dtype=torch.int32)
    ints_B = argmax_BN.new_empty((num_rows,), dtype=torch.int32)
    out = Accepted(
        ints_BN,
        ints_B,
        torch.empty_like(given[0][:, 0], memory_format=torch.contiguous_format),
        torch.empty_like(ints_B, dtype=torch.bool),
        torch.empty_like(given[3]),
        torch.empty_like(given[4]),
    )
    accept_kernel[(num_rows,)](*given, *out, num_nodes, BLOCK_N=triton.next_power_of_2(num_nodes), num_warps=NUM_WARPS)
    return out


def _check_nodes(num_nodes: int) -> None:
    if num_nodes > MAX_NODES:
        raise ValueError(f"{num_nodes} nodes a row, allowed are at most {MAX_NODES}; draft a smaller tree")
