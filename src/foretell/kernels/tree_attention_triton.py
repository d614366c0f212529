"""tree_attention: the nodes of drafted trees over cached keys in blocks, on a GPU.

The same result as ``reference.tree_attention_reference``, which says what goes in. One program for a row, a kv head, a
tile of its queries, and a share of the row's keys; where there is more than one share, a second kernel joins them
(flash-decoding). Softmax is online and in float32, with powers of two.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton import knobs

from foretell.kernels.reference import MAX_NODES

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NUM_WARPS = 4
NUM_STAGES = 2
MAX_SPLITS = 64
LOG2_E = 1.4426950408889634


@triton.jit
def _key_tile(
    query, high, total, weighted, keys_ptr, values_ptr, blocks_ptr, entries, committed, bits, num_nodes, num_blocks,
    key_block_stride, value_block_stride, scale,
    SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr, IN_TREE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Take in the keys at ``entries``; returns the new highest score, sum of powers, and weighted values."""
    dims = tl.arange(0, SIZE)
    block = entries // BLOCK_SIZE
    if IN_TREE:
        own = entries - committed
        bit = (bits[:, None] >> tl.minimum(tl.maximum(own, 0), 63).to(tl.int64)[None, :]) & 1
        seen = (own < 0)[None, :] | (((own >= 0) & (own < num_nodes))[None, :] & (bit != 0))
        seen = seen & (block < num_blocks)[None, :]
        read = tl.max(seen.to(tl.int32), 0) != 0
        block_id = tl.load(blocks_ptr + block, mask=read, other=0).to(tl.int64)
    else:
        block_id = tl.load(blocks_ptr + block).to(tl.int64)
    within = (entries % BLOCK_SIZE)[:, None] * SIZE + dims[None, :]
    key_ptrs = keys_ptr + block_id[:, None] * key_block_stride + within
    value_ptrs = values_ptr + block_id[:, None] * value_block_stride + within
    if IN_TREE:
        key = tl.load(key_ptrs, mask=read[:, None], other=0.0)
        value = tl.load(value_ptrs, mask=read[:, None], other=0.0)
    else:
        key = tl.load(key_ptrs)
        value = tl.load(value_ptrs)
    if WIDEN:
        key = key.to(tl.float32)
        value = value.to(tl.float32)
    score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    if IN_TREE:
        score = tl.where(seen, score, float("-inf"))
    new_high = tl.maximum(high, tl.max(score, 1))
    origin = tl.where(new_high == float("-inf"), 0.0, new_high)
    power = tl.exp2(score - origin[:, None])
    shrink = tl.exp2(high - origin)
    total = total * shrink + tl.sum(power, 1)
    weighted = weighted * shrink[:, None] + tl.dot(power.to(value.dtype), value, input_precision="ieee")
    return new_high, total, weighted


@triton.jit(do_not_specialize=["num_nodes", "num_blocks", "num_splits", "num_queries"])
def tree_attention_kernel(
    query_ptr, keys_ptr, values_ptr, blocks_ptr, committed_ptr, tree_ptr, out_ptr, parts_ptr, highs_ptr, totals_ptr,
    query_row_stride, query_node_stride, query_head_stride, key_head_stride, key_block_stride, value_head_stride,
    value_block_stride, num_nodes, num_blocks, num_splits, num_queries, scale,
    SIZE: tl.constexpr, GROUP: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr,
    SPLIT: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Grid: (kv_heads, tiles of queries x splits, rows). Query q of a kv head: node q // GROUP, its head q % GROUP."""
    kv_head = tl.program_id(0)
    num_kv_heads = tl.num_programs(0)
    tile = tl.program_id(1) // num_splits
    split = tl.program_id(1) % num_splits
    row = tl.program_id(2)

    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = queries < num_queries
    node = queries // GROUP
    head = kv_head * GROUP + queries % GROUP
    dims = tl.arange(0, SIZE)
    query_start = row.to(tl.int64) * query_row_stride + node * query_node_stride + head * query_head_stride
    query = tl.load(query_ptr + query_start[:, None] + dims[None, :], mask=inside[:, None], other=0.0)
    if WIDEN:
        query = query.to(tl.float32)
    bits = tl.load(tree_ptr + row * num_nodes + node, mask=inside, other=0)
    committed = tl.load(committed_ptr + row).to(tl.int32)
    blocks_ptr += row.to(tl.int64) * num_blocks
    keys_ptr += kv_head.to(tl.int64) * key_head_stride
    values_ptr += kv_head.to(tl.int64) * value_head_stride

    # A split's keys: whole tiles, [start, end). Those below ``plain`` are committed, which all nodes see.
    share = tl.cdiv(tl.cdiv(committed + num_nodes, num_splits), BLOCK_S) * BLOCK_S
    start = split * share
    end = tl.minimum(start + share, committed + num_nodes)
    plain = tl.maximum(start, tl.minimum(end, committed // BLOCK_S * BLOCK_S))
    high = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    weighted = tl.zeros((BLOCK_M, SIZE), tl.float32)
    offsets = tl.arange(0, BLOCK_S)
    for first in range(start, plain, BLOCK_S):
        high, total, weighted = _key_tile(
            query, high, total, weighted, keys_ptr, values_ptr, blocks_ptr, first + offsets, committed, bits, num_nodes,
            num_blocks, key_block_stride, value_block_stride, scale, SIZE, BLOCK_SIZE, False, WIDEN,
        )  # fmt: skip
    for first in range(plain, end, BLOCK_S):
        high, total, weighted = _key_tile(
            query, high, total, weighted, keys_ptr, values_ptr, blocks_ptr, first + offsets, committed, bits, num_nodes,
            num_blocks, key_block_stride, value_block_stride, scale, SIZE, BLOCK_SIZE, True, WIDEN,
        )  # fmt: skip

    out_head = (row.to(tl.int64) * num_nodes + node) * (num_kv_heads * GROUP) + head
    if SPLIT:
        part = out_head * num_splits + split
        tl.store(parts_ptr + part[:, None] * SIZE + dims[None, :], weighted, mask=inside[:, None])
        tl.store(highs_ptr + part, high, mask=inside)
        tl.store(totals_ptr + part, total, mask=inside)
    else:
        result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
        out_ptrs = out_ptr + out_head[:, None] * SIZE + dims[None, :]
        tl.store(out_ptrs, result.to(out_ptr.dtype.element_ty), mask=inside[:, None])


@triton.jit(do_not_specialize=["num_splits"])
def join_kernel(
    parts_ptr, highs_ptr, totals_ptr, out_ptr, num_splits, SIZE: tl.constexpr, BLOCK_P: tl.constexpr
):  # fmt: skip
    """Join the shares of output head ``program_id(0)``; BLOCK_P: a power of two, num_splits or more."""
    start = tl.program_id(0).to(tl.int64) * num_splits
    parts = tl.arange(0, BLOCK_P)
    dims = tl.arange(0, SIZE)
    inside = parts < num_splits
    highs = tl.load(highs_ptr + start + parts, mask=inside, other=float("-inf"))
    high = tl.max(highs, 0)
    weight = tl.exp2(highs - tl.where(high == float("-inf"), 0.0, high))
    total = tl.sum(weight * tl.load(totals_ptr + start + parts, mask=inside, other=0.0), 0)
    part_ptrs = parts_ptr + (start + parts)[:, None] * SIZE + dims[None, :]
    weighted = tl.sum(weight[:, None] * tl.load(part_ptrs, mask=inside[:, None], other=0.0), 0)
    result = weighted / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + tl.program_id(0).to(tl.int64) * SIZE + dims, result.to(out_ptr.dtype.element_ty))


def tree_attention(
    query_BNHd: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    blocks_BK: torch.Tensor,
    num_committed_B: torch.Tensor,
    tree_BN: torch.Tensor,
    scale: float,
    num_splits: int | None = None,
) -> torch.Tensor:
    """As ``tree_attention_reference``: (B, N, heads, d); nothing is read back, so a CUDA graph can hold it.

    ``num_splits``: shares that a row's keys are cut into; None: as many as fill the device. It moves the last bits.
    """
    check(query_BNHd, keys, values, blocks_BK, tree_BN)
    num_rows, num_nodes, num_heads, size = query_BNHd.shape
    num_kv_heads, _, block_size, _ = keys.shape
    num_blocks = blocks_BK.shape[1]
    group = num_heads // num_kv_heads
    num_queries = num_nodes * group
    block_m, block_s = tiles(num_queries, size, keys.dtype)
    num_tiles = triton.cdiv(num_queries, block_m)
    if num_splits is None:
        num_splits = _splits(query_BNHd.device, num_kv_heads * num_tiles * num_rows, num_blocks * block_size)
    out = query_BNHd.new_empty(query_BNHd.shape)
    parts = highs = totals = out
    if num_splits > 1:
        parts = query_BNHd.new_empty((*query_BNHd.shape[:3], num_splits, size), dtype=torch.float32)
        highs, totals = query_BNHd.new_empty((2, *parts.shape[:4]), dtype=torch.float32)
    tree_attention_kernel[(num_kv_heads, num_tiles * num_splits, num_rows)](
        *(query_BNHd, keys, values, blocks_BK.contiguous(), num_committed_B.contiguous(), tree_BN.contiguous()),
        *(out, parts, highs, totals),
        *(*query_BNHd.stride()[:3], *keys.stride()[:2], *values.stride()[:2]),
        *(num_nodes, num_blocks, num_splits, num_queries, scale * LOG2_E),
        SIZE=size,
        GROUP=group,
        BLOCK_SIZE=block_size,
        BLOCK_M=block_m,
        BLOCK_S=block_s,
        SPLIT=num_splits > 1,
        # Triton's interpreter multiplies the bits of bfloat16 as if they were integers.
        WIDEN=knobs.runtime.interpret and keys.dtype == torch.bfloat16,
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
    )
    if num_splits > 1:
        join_kernel[(num_rows * num_nodes * num_heads,)](
            *(parts, highs, totals, out, num_splits),
            SIZE=size,
            BLOCK_P=triton.next_power_of_2(num_splits),
            num_warps=NUM_WARPS,
        )
    return out


def check(
    query_BNHd: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, blocks_BK: torch.Tensor, tree_BN: torch.Tensor
) -> None:
    """Raise ValueError where the kernel cannot take these."""
    num_rows, num_nodes, num_heads, size = query_BNHd.shape
    if not query_BNHd.dtype == keys.dtype == values.dtype or keys.dtype not in DTYPES:
        dtypes = ", ".join(str(each.dtype) for each in (query_BNHd, keys, values))
        raise ValueError(f"queries, keys and values are {dtypes}; give all three in one of {DTYPES}")
    if size < 16 or size & (size - 1) or keys.shape != values.shape or keys.shape[3] != size:
        sizes = f"{size}, {keys.shape[3]} and {values.shape[3]}"
        raise ValueError(f"heads of queries, keys and values have {sizes} entries; take one power of two from 16 on")
    if num_nodes > MAX_NODES:
        raise ValueError(f"{num_nodes} nodes a row, allowed are at most {MAX_NODES}; draft a smaller tree")
    if num_heads % keys.shape[0]:
        raise ValueError(f"{num_heads} query heads do not divide among {keys.shape[0]} kv heads; give a multiple")
    if tree_BN.shape != (num_rows, num_nodes) or tree_BN.dtype != torch.int64 or blocks_BK.shape[0] != num_rows:
        raise ValueError(
            f"masks {tuple(tree_BN.shape)} of {tree_BN.dtype} and block tables {tuple(blocks_BK.shape)} for "
            f"{num_rows} rows of {num_nodes} nodes; give one int64 a node and one table a row"
        )
    if query_BNHd.stride(3) != 1 or any(each.stride()[2:] != (size, 1) for each in (keys, values)):
        raise ValueError("the entries of a head or of a block do not lie side by side; call .contiguous() first")


def tiles(num_queries: int, size: int, dtype: torch.dtype) -> tuple[int, int]:
    """(queries, keys) of a tile, as large as registers hold: up to size 256, at most 24 bytes spill on sm_80 and sm_90.

    float32 is multiplied without tensor cores, which would round it; that takes registers for both factors.
    """
    most_queries, most_keys = (16, 2048 // size) if dtype == torch.float32 else (8192 // size, 8192 // size)
    wanted = triton.next_power_of_2(num_queries)
    return max(16, min(64, wanted, most_queries)), max(16, min(64, most_keys))


def _splits(device: torch.device, num_programs: int, num_entries: int) -> int:
    """Two programs for each multiprocessor, but no share of less than 256 keys. Known without asking the device."""
    if device.type != "cuda":
        return 1
    wanted = 2 * torch.cuda.get_device_properties(device).multi_processor_count // num_programs
    return max(1, min(wanted, num_entries // 256, MAX_SPLITS))
