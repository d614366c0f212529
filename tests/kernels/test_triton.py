"""The Triton kernels: against their PyTorch reference in Triton's interpreter, and compiled for a GPU that is not here.

The interpreter has to be chosen before triton is imported, which other tests do: so this file runs itself again in a
process of its own, and what follows ``INTERPRETED`` is collected there only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from foretell.decoding.verify import verify_greedy
from foretell.kernels.reference import accept_reference, tree_attention_reference, tree_bits
from foretell.types import Draft

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: extra foretell[triton]")
NUM_CASES = 36
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 3e-2}


def random_parents(num_rows: int, num_nodes: int, generator: torch.Generator) -> torch.Tensor:
    """Trees of all shapes: parents near (long chains) or far (bushes); every other row ends in padding."""
    nodes_N = torch.arange(num_nodes)
    near_B1 = torch.randint(1, 6, (num_rows, 1), generator=generator)
    back_BN = (torch.rand(num_rows, num_nodes, generator=generator) * torch.minimum(nodes_N, near_B1)).long() + 1
    parents_BN = nodes_N - back_BN
    parents_BN[:, 0] = -1
    count_B1 = torch.randint(1, num_nodes + 1, (num_rows, 1), generator=generator)
    count_B1[::2] = num_nodes
    return parents_BN.masked_fill(nodes_N >= count_B1, -1)


def attention_inputs(
    rows: int, nodes: int, heads: int, kv_heads: int, size: int, dtype: torch.dtype, seed: int
) -> tuple[torch.Tensor, ...]:
    """Rows of all lengths over shuffled blocks; whatever no node sees is not a number."""
    generator = torch.Generator().manual_seed(seed)
    num_committed_B = torch.randint(0, 150, (rows,), generator=generator).int()
    num_committed_B[0] = (0, 64, 128, 131)[seed % 4]
    num_blocks = (int(num_committed_B.max()) + nodes + 15) // 16
    blocks_BK = torch.randperm(rows * num_blocks + 2, generator=generator)[: rows * num_blocks].view(rows, num_blocks)
    tree_BN = tree_bits(random_parents(rows, nodes, generator))
    query = torch.randn(rows, nodes, heads, size, generator=generator).to(dtype) * 2
    keys, values = torch.randn(2, kv_heads, rows * num_blocks + 2, 16, size, generator=generator).to(dtype)
    seen = torch.zeros(rows * num_blocks + 2, 16, dtype=torch.bool)
    for b, committed in enumerate(num_committed_B.tolist()):
        for entry in range(committed + nodes):
            seen[blocks_BK[b, entry // 16], entry % 16] = True
    keys[:, ~seen] = values[:, ~seen] = torch.nan
    return query, keys, values, blocks_BK.int(), num_committed_B, tree_BN


def check_accept(accept, seed: int, num_rows: int = 12) -> int:  # type: ignore[no-untyped-def]
    """Against verify_greedy; returns the longest path."""
    generator = torch.Generator().manual_seed(seed)
    num_nodes = (1, 2, 5, 16, 33, 64)[seed % 6]
    parents_BN = random_parents(num_rows, num_nodes, generator)
    argmax_BN = torch.randint(0, 2, (num_rows, num_nodes), generator=generator)
    token_ids_BN = torch.randint(0, 2, (num_rows, num_nodes), generator=generator)
    follow = torch.rand(num_rows, num_nodes, generator=generator) < 0.8
    right_BN = argmax_BN.gather(1, parents_BN.clamp(min=0))
    token_ids_BN = torch.where(follow, right_BN, token_ids_BN)
    slots_BN = torch.randperm(num_rows * num_nodes, generator=generator).view(num_rows, num_nodes)
    num_committed_B = torch.randint(0, 500, (num_rows,), generator=generator).int()
    out = accept(argmax_BN, token_ids_BN, parents_BN, slots_BN, num_committed_B)
    for b in range(num_rows):
        count = 1 + int((parents_BN[b] >= 0).sum())
        draft = Draft(token_ids_BN[b, 1:count].tolist(), [p - 1 for p in parents_BN[b, 1:count].tolist()])
        verdict = verify_greedy(draft, argmax_BN[b, :count].tolist())
        path = [node + 1 for node in verdict.path]
        assert out.path_BN[b].tolist() == path + [-1] * (num_nodes - len(path))
        assert (out.num_accepted_B[b], out.next_B[b]) == (len(path), verdict.next_token)
        assert bool(out.is_end_B[b]) == verdict.all_accepted
        others = [n for n in range(1, num_nodes) if n not in path]
        assert out.slots_BN[b].tolist() == slots_BN[b, [0, *path, *others]].tolist()
        assert out.num_committed_B[b] == num_committed_B[b] + 1 + len(path)
    for mine, given in ((out.slots_BN, slots_BN), (out.next_B, argmax_BN), (out.num_committed_B, num_committed_B)):
        assert mine.dtype == given.dtype
    return int(out.num_accepted_B.max())


if not INTERPRETED:

    def test_the_kernels_in_the_interpreter() -> None:
        env = {**os.environ, "TRITON_INTERPRET": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
        root = Path(__file__).parents[2]
        run = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        assert re.search(rf"^{NUM_CASES} passed in", run.stdout, re.MULTILINE), run.stdout

    def test_the_attention_reference() -> None:
        """Against a softmax over the entries of each node's path, node by node."""
        query, keys, values, blocks_BK, num_committed_B, tree_BN = attention_inputs(3, 11, 4, 2, 8, torch.float64, 3)
        parents_BN = random_parents(3, 11, torch.Generator().manual_seed(5))
        tree_BN = tree_bits(parents_BN)
        out = tree_attention_reference(query, keys, values, blocks_BK, num_committed_B, tree_BN, 0.4)
        for b, committed in enumerate(num_committed_B.tolist()):
            for n in range(11):
                path = [n]
                while parents_BN[b, path[-1]] >= 0:
                    path.append(int(parents_BN[b, path[-1]]))
                entries = torch.tensor([*range(committed), *[committed + node for node in path]])
                key, value = (each[:, blocks_BK[b, entries // 16].long(), entries % 16] for each in (keys, values))
                for head in range(4):
                    shares = (key[head // 2] @ query[b, n, head] * 0.4).softmax(0)
                    assert torch.allclose(out[b, n, head], shares @ value[head // 2], atol=1e-12)

    def test_the_accept_reference() -> None:
        assert max(check_accept(accept_reference, seed) for seed in range(12)) > 8

    def test_bits() -> None:
        assert tree_bits(torch.tensor([[-1, 0, 0, 2, -1]])).tolist() == [[1, 3, 5, 13, 16]]
        chain_BN = tree_bits(torch.arange(-1, 63).unsqueeze(0))
        assert [bits % 2**64 for bits in chain_BN[0].tolist()] == [2 ** (n + 1) - 1 for n in range(64)]
        with pytest.raises(ValueError, match="65 nodes a row"):
            tree_bits(torch.zeros(1, 65))

    @pytest.mark.parametrize("name", ["attention", "join", "accept", "bits"])
    def test_it_compiles_for_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """To machine code for sm_90, which needs no GPU; in registers alone, since a spill costs the bandwidth."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        from foretell.kernels import accept_triton, tree_attention_triton

        monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
        queries, keys = tree_attention_triton.tiles(64, 128, torch.bfloat16)
        sizes = {"SIZE": 128, "GROUP": 4, "BLOCK_SIZE": 16, "BLOCK_M": queries, "BLOCK_S": keys, "WIDEN": False}
        kernel, constants, num_warps = {
            "attention": (tree_attention_triton.tree_attention_kernel, {**sizes, "SPLIT": True}, 4),
            "join": (tree_attention_triton.join_kernel, {"SIZE": 128, "BLOCK_P": 32}, 4),
            "accept": (accept_triton.accept_kernel, {"BLOCK_N": 64}, 1),
            "bits": (accept_triton.tree_bits_kernel, {"BLOCK_N": 64}, 1),
        }[name]
        types = dict.fromkeys(
            ("blocks_ptr", "path_ptr", "committed_ptr", "num_accepted_ptr", "new_committed_ptr"), "*i32"
        )
        types |= dict.fromkeys(("query_ptr", "keys_ptr", "values_ptr", "out_ptr"), "*bf16")
        types |= dict.fromkeys(("parts_ptr", "highs_ptr", "totals_ptr"), "*fp32") | {
            "is_end_ptr": "*i1",
            "scale": "fp32",
        }
        signature = {
            arg: "constexpr" if arg in constants else types.get(arg, "*i64" if arg.endswith("_ptr") else "i32")
            for arg in kernel.arg_names
        }
        divisible = [i for i, arg in enumerate(kernel.arg_names) if arg.endswith(("_ptr", "_stride"))]
        attributes = {(i,): [["tt.divisibility", 16]] for i in divisible}
        source = ASTSource(kernel, signature, constants, attributes)
        options = {"num_warps": num_warps, "num_stages": tree_attention_triton.NUM_STAGES}
        built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        assert built.metadata.shared < 96 * 1024
        binary = tmp_path / "kernel.cubin"
        binary.write_bytes(built.asm["cubin"])
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(binary)]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert re.search(r"REG:\d+ STACK:0 ", usage), usage
        if name == "attention":
            assert "wgmma" in built.asm["ptx"] and "cp.async" in built.asm["ptx"]


if INTERPRETED:
    from foretell.kernels.accept_triton import accept
    from foretell.kernels.accept_triton import tree_bits as kernel_tree_bits
    from foretell.kernels.tree_attention_triton import tiles, tree_attention

    SHAPES = [
        (3, 1, 2, 2, 64, 1),
        (2, 9, 3, 1, 128, 1),
        (2, 12, 3, 1, 64, 3),
        (1, 64, 1, 1, 64, 2),
        (2, 21, 4, 2, 16, 1),
        (1, 5, 2, 2, 256, 7),
    ]

    @pytest.mark.parametrize("dtype", TOLERANCE)
    @pytest.mark.parametrize("shape", SHAPES)
    def test_attention(shape: tuple[int, ...], dtype: torch.dtype) -> None:
        *sizes, num_splits = shape
        inputs = attention_inputs(*sizes, dtype, seed=SHAPES.index(shape))
        before = [each.clone() for each in inputs]
        out = tree_attention(*inputs, 0.11, num_splits)
        query, keys, values, *rest = inputs
        right = tree_attention_reference(query.double(), keys.double(), values.double(), *rest, 0.11)
        assert out.dtype == dtype and out.shape == query.shape
        assert (out - right).abs().max() < TOLERANCE[dtype]
        assert all(torch.equal(a.nan_to_num(9), b.nan_to_num(9)) for a, b in zip(before, inputs, strict=True))

    def test_who_sees_nothing() -> None:
        """Zeros; and nobody's entries are not read, not even those of another node."""
        for num_splits in (1, 2):
            query, keys, values, blocks_BK, num_committed_B, tree_BN = attention_inputs(
                1, 4, 2, 1, 16, torch.float32, 0
            )
            tree_BN[0, 3] = 0
            keys[:, blocks_BK[0, 0], 3] = values[:, blocks_BK[0, 0], 3] = torch.nan
            inputs = (query, keys, values, blocks_BK, num_committed_B, tree_BN, 1.0)
            out = tree_attention(*inputs, num_splits)
            assert not out[0, 3].any() and out[0, :3].all()
            assert torch.allclose(out, tree_attention_reference(*inputs), atol=1e-6)

    def test_views_of_larger_tensors() -> None:
        """Queries cut out of a packed projection, buffers out of a larger pool; the shape of a layer's tensors."""
        inputs = attention_inputs(2, 6, 4, 2, 32, torch.float32, 1)
        query, keys, values, *rest = inputs
        packed = torch.cat([query.flatten(2), torch.randn(2, 6, 70)], 2)[..., : 4 * 32].unflatten(2, (4, 32))
        pool = torch.cat([keys, torch.randn_like(keys)], 1)[:, : keys.shape[1]]
        assert not packed.is_contiguous() and not pool.is_contiguous()
        out = tree_attention(packed, pool, values, *rest, 0.2)
        assert torch.equal(out, tree_attention(query, keys, values, *rest, 0.2))

    @pytest.mark.parametrize("seed", range(6))
    def test_accept(seed: int) -> None:
        longest = check_accept(accept, seed)
        assert longest > 3 or seed < 3

    def test_accept_as_the_reference_where_tokens_repeat() -> None:
        """Of two children with the right token, the first."""
        inputs = (torch.tensor([[5, 1, 7]]), torch.tensor([[0, 5, 5]]), torch.tensor([[-1, 0, 0]]))
        rest = (torch.tensor([[30, 31, 32]]), torch.tensor([9]))
        for run in (accept, accept_reference):
            out = run(*inputs, *rest)
            assert [each.tolist() for each in out] == [[[1, -1, -1]], [1], [1], [True], [[30, 31, 32]], [11]]

    @pytest.mark.parametrize("num_nodes", [13, 64])
    def test_bits_as_the_reference(num_nodes: int) -> None:
        parents_BN = random_parents(8, num_nodes, torch.Generator().manual_seed(num_nodes))
        parents_BN[1] = torch.arange(-1, num_nodes - 1)
        assert torch.equal(kernel_tree_bits(parents_BN), tree_bits(parents_BN))

    def test_tiles() -> None:
        assert tiles(5, 128, torch.bfloat16) == (16, 64) and tiles(999, 64, torch.float32) == (16, 32)
        assert tiles(999, 256, torch.float16) == (32, 32)

    @pytest.mark.parametrize("fault", ["dtypes", "size", "nodes", "heads", "masks", "strides"])
    def test_what_it_refuses(fault: str) -> None:
        shapes = {"size": (1, 2, 2, 1, 24), "heads": (1, 2, 3, 2, 16)}
        query, keys, values, *rest = attention_inputs(*shapes.get(fault, (1, 2, 2, 1, 16)), torch.float32, 0)
        if fault == "dtypes":
            query = query.half()
        if fault == "nodes":
            query = query.repeat(1, 33, 1, 1)
        if fault == "masks":
            rest[2] = rest[2].bool()
        if fault == "strides":
            keys = keys.transpose(2, 3).contiguous().transpose(2, 3)
        messages = (
            "give all three",
            "one power of two",
            "smaller tree",
            "do not divide",
            "one int64 a node",
            "contiguous",
        )
        with pytest.raises(ValueError, match="|".join(messages)):
            tree_attention(query, keys, values, *rest, 1.0)
