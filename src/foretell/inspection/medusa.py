"""Facts about Medusa heads in a file of torch's: name, size and the list of its entries. Nothing is unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path

from foretell.checkpoints.families import ENGINES, family_named
from foretell.checkpoints.files import one_line, read_json
from foretell.errors import CheckpointError
from foretell.inspection.inspection import Inspection


def medusa_file(path: Path) -> Path | None:
    """The file of Medusa heads that ``path`` is, or that lies in the folder ``path``; None where there is none."""
    if path.is_file():
        return path if path.suffix == ".pt" and "medusa" in path.name else None
    return next(iter(sorted(path.glob("*medusa*.pt"))), None)


def inspect_medusa(file: Path) -> Inspection:
    """Inspect ``medusa_lm_head.pt``. Raises CheckpointError where it is damaged, or no archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            sizes = [entry.file_size for entry in archive.infolist() if "/data/" in entry.filename]
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise CheckpointError(
            f"{file}: not a zip archive, as torch has written since 1.6 ({one_line(error)}); it is damaged, or older"
        ) from error
    config_file = file.parent / "config.json"
    config = read_json(config_file) if config_file.is_file() else {}
    family = family_named("medusa")
    claimed = config.get("medusa_num_heads")
    problems = ["a file of pickled tensors: what is in it is not looked at, as opening it could run code"]
    if not sizes:
        problems.append("it lists no tensor")
    return Inspection(
        kind="medusa",
        path=str(file),
        num_tensors=len(sizes),
        num_parameters=0,
        num_bytes=file.stat().st_size,
        dtypes={},
        architecture=str(config.get("base_model_name_or_path") or ""),
        family=family.name,
        models=family.models,
        claimed_heads=claimed if isinstance(claimed, int) else None,
        engines=dict(zip(ENGINES, family.engines, strict=True)),
        problems=problems,
    )
