"""Cells with annotations of each kind."""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import pandas as pd
import scipy.sparse as sp

CELLS, GENES = 150, 40


def matrix(cells: int = CELLS, genes: int = GENES, seed: int = 0, density: float = 0.2) -> Any:
    """Return a CSR matrix with empty rows among others."""
    rng = np.random.default_rng(seed)
    made = sp.random(cells, genes, density, "csr", np.float32, rng)
    made.data = np.arange(1, len(made.data) + 1, dtype=np.float32)
    return made


def cells_of(x: Any, seed: int = 0, genes: list[str] | None = None) -> anndata.AnnData:
    """Return cells with annotations of each kind."""
    rng = np.random.default_rng(seed)
    count, width = x.shape
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(rng.choice(["B", "T", "NK"], count)),
            "depth": rng.random(count),
            "batch": rng.choice(["one", "two"], count),
        },
        index=[f"cell{seed}-{at}" for at in range(count)],
    )
    names = [f"gene{at}" for at in range(width)] if genes is None else genes
    return anndata.AnnData(x, obs, pd.DataFrame(index=names))


def same(found: Any, wanted: Any) -> bool:
    """Whether two sparse matrices have the same elements, in whatever order in a row."""
    a, b = sp.csr_matrix(found), sp.csr_matrix(wanted)
    a.sort_indices()
    b.sort_indices()
    return bool(
        a.shape == b.shape
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and np.array_equal(a.data, b.data)
    )
