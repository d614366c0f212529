"""What the Triton kernels must give, in plain PyTorch: attention over a drafted tree, and its accepted path.

Node 0 of a row is its root, the pending token; drafted nodes follow, parents first. A node's key and value lie in the
row's blocks behind its committed entries: node n at entry ``num_committed_B[b] + n``. These run on any device, and
wait for none.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

MAX_NODES = 64
"""Most nodes a row: what a node sees of its row is one int64."""


class Accepted(NamedTuple):
    """What is accepted of every row. ``path_BN``: nodes from the root's child on, then -1.

    ``next_B``: the trunk's token behind the path. ``is_end_B``: the path ends where the draft does: a bonus token.
    ``slots_BN``: the cache slots of root and path, in that order, then those of the other nodes, to be written again.
    ``num_committed_B``: committed entries now, root and path included.
    """

    path_BN: torch.Tensor
    num_accepted_B: torch.Tensor
    next_B: torch.Tensor
    is_end_B: torch.Tensor
    slots_BN: torch.Tensor
    num_committed_B: torch.Tensor


def tree_bits(parents_BN: torch.Tensor) -> torch.Tensor:
    """Bit m of (b, n): node n sees node m, which is itself or above it. Parents below 0 are none: root and padding."""
    num_nodes = parents_BN.shape[1]
    if num_nodes > MAX_NODES:
        raise ValueError(f"{num_nodes} nodes a row, allowed are at most {MAX_NODES}; draft a smaller tree")
    bits_BN = torch.zeros_like(parents_BN, dtype=torch.int64)
    for n in range(num_nodes):
        parent_B1 = parents_BN[:, n : n + 1].long()
        above_B1 = torch.where(parent_B1 < 0, 0, bits_BN.gather(1, parent_B1.clamp(min=0)))
        own = 1 << n if n < MAX_NODES - 1 else -(1 << n)  # the last bit is the sign
        bits_BN[:, n : n + 1] = above_B1 | own
    return bits_BN


def tree_attention_reference(
    query_BNHd: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    blocks_BK: torch.Tensor,
    num_committed_B: torch.Tensor,
    tree_BN: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """(B, N, heads, d): every node over its row's committed entries and those nodes that ``tree_BN`` has a bit for.

    ``keys``, ``values``: (kv_heads, blocks, block size, d). ``blocks_BK``: the row's blocks in order. Scores and sums
    are float32, or float64 where the query is. An entry that no node sees is not read. Zeros for who sees nothing.
    """
    num_rows, num_nodes, num_heads, size = query_BNHd.shape
    num_kv_heads, _, block_size, _ = keys.shape
    dtype = torch.promote_types(query_BNHd.dtype, torch.float32)
    num_entries = blocks_BK.shape[1] * block_size
    own_BS = torch.arange(num_entries, device=keys.device) - num_committed_B.long().unsqueeze(1)
    bits_BNS = tree_BN.unsqueeze(2) >> own_BS.clamp(0, MAX_NODES - 1).unsqueeze(1)
    in_tree_BS = (own_BS >= 0) & (own_BS < num_nodes)
    seen_BNS = (own_BS < 0).unsqueeze(1) | (in_tree_BS.unsqueeze(1) & (bits_BNS & 1).bool())
    read_BSh = seen_BNS.any(1)[:, :, None, None]
    key_BShd, value_BShd = (
        torch.where(read_BSh, buffer[:, blocks_BK.long()].permute(1, 2, 3, 0, 4).flatten(1, 2).to(dtype), 0)
        for buffer in (keys, values)
    )
    grouped = query_BNHd.to(dtype).view(num_rows, num_nodes, num_kv_heads, num_heads // num_kv_heads, size)
    scores = torch.einsum("bnhgd,bshd->bnhgs", grouped, key_BShd) * scale
    seen = seen_BNS[:, :, None, None]
    shares = scores.masked_fill(~seen, -torch.inf).softmax(-1).masked_fill(~seen, 0)
    return torch.einsum("bnhgs,bshd->bnhgd", shares, value_BShd).reshape(query_BNHd.shape).to(query_BNHd.dtype)


def accept_reference(
    argmax_BN: torch.Tensor,
    token_ids_BN: torch.Tensor,
    parents_BN: torch.Tensor,
    slots_BN: torch.Tensor,
    num_committed_B: torch.Tensor,
) -> Accepted:
    """The greedy path of every row: from the root on, the first child whose token the trunk would have written.

    ``argmax_BN[b, n]``: the trunk's token behind node n. ``parents_BN``: -1 for the root and for padding.
    """
    num_nodes = argmax_BN.shape[1]
    nodes_N = torch.arange(num_nodes, device=argmax_BN.device)
    node_B1 = torch.zeros_like(argmax_BN[:, :1], dtype=torch.int64)
    rank_BN = torch.where(nodes_N == 0, 0, num_nodes).repeat(argmax_BN.shape[0], 1)
    path_BN = torch.full_like(rank_BN, -1)
    num_accepted_B1 = torch.zeros_like(node_B1)
    for step in range(1, num_nodes):
        follows_BN = (parents_BN == node_B1) & (nodes_N > node_B1) & (token_ids_BN == argmax_BN.gather(1, node_B1))
        follows_BN &= num_accepted_B1 == step - 1
        found_B1 = follows_BN.any(1, keepdim=True)
        node_B1 = torch.where(found_B1, follows_BN.long().argmax(1, keepdim=True), node_B1)
        num_accepted_B1 += found_B1
        path_BN[:, step - 1 : step] = torch.where(found_B1, node_B1, -1)
        rank_BN = torch.where(found_B1 & (nodes_N == node_B1), step, rank_BN)
    order_BN = rank_BN.sort(stable=True).indices
    return Accepted(
        path_BN.int(),
        num_accepted_B1[:, 0].int(),
        argmax_BN.gather(1, node_B1)[:, 0],
        ~((parents_BN == node_B1) & (nodes_N > node_B1)).any(1),
        slots_BN.gather(1, order_BN),
        (num_committed_B + num_accepted_B1[:, 0] + 1).to(num_committed_B.dtype),
    )
