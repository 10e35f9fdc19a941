"""Reading and writing model weights: safetensors in full precision, or int8 with one scale per row."""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from sparta.base.checks import check_vocabulary
from sparta.base.errors import ModelError
from sparta.base.files import atomic_write, make_folder
from sparta.neural.encoding import one_thread
from sparta.neural.stored import ROW_SCALE, read_json

logger = logging.getLogger(__name__)
_SMALLEST_QUANTIZED = 4096


def quantize_rows(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize `(r, c)` floats to `(r, c) int8` and `(r,) float32` scales: value ≈ integer · scale."""
    scale = tensor.abs().amax(dim=1).float().clamp_min(1e-12) / 127
    return torch.round(tensor.float() / scale[:, None]).to(torch.int8), scale


def save_state(path: Path, state: dict[str, torch.Tensor], *, int8: bool = False) -> None:
    """Write a state dict atomically; with `int8`, matrices are stored in 8 bits with row scales."""
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        tensor = tensor.detach().cpu().contiguous()
        if (
            int8
            and tensor.dim() == 2
            and tensor.is_floating_point()
            and tensor.numel() >= _SMALLEST_QUANTIZED
        ):
            stored[name], stored[name + ROW_SCALE] = quantize_rows(tensor)
        else:
            stored[name] = tensor.clone()
    # Only one metadata entry: safetensors writes several in random order, but equal states must give equal
    # files. safetensors' file writer is not used, because only the file's owner could read the result.
    atomic_write(path, save(stored, metadata={"format": "pt"}))


def load_state(path: Path) -> dict[str, torch.Tensor]:
    """Read a state dict that `save_state` wrote; 8-bit matrices become float32.

    :raises ModelError: the file cannot be read.
    """
    try:
        with safe_open(str(path), framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"expected model weights in safetensors format, could not read them: {error}",
            where=str(path),
            remedy="copy the complete model folder again",
        ) from error
    state = {name: tensor for name, tensor in tensors.items() if not name.endswith(ROW_SCALE)}
    with one_thread():
        for name in state:
            if name + ROW_SCALE in tensors:
                state[name] = state[name] * tensors[name + ROW_SCALE][:, None]
    return state


def save_model(
    folder: str | Path, model: nn.Module, config: dict[str, Any], *, without: str = "", int8: bool = False
) -> None:
    """Write a model folder. config.json comes last, since it marks the folder as complete.

    :param without: the prefix of weights that are not saved, because other weights replace them
    :param int8: store matrices in 8 bits with row scales
    """
    folder = Path(folder)
    make_folder(folder)
    state = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not (without and name.startswith(without))
    }
    save_state(folder / "model.safetensors", state, int8=int8)
    tokenizer: Any = model.tokenizer
    atomic_write(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
    atomic_write(folder / "config.json", (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())


def with_weights[M: nn.Module](model: M, state: dict[str, torch.Tensor], where: str) -> M:
    """Load weights into a model and return it in evaluation mode.

    :raises ModelError: the weights do not fit the model's configuration.
    """
    check_vocabulary(cast(Any, model).tokenizer, where)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ModelError(
            f"expected weights that fit config.json: {error}",
            where=where,
            remedy="copy the complete model folder again",
        ) from error
    return model.eval()


def check_torch_files(*paths: Path) -> None:
    """Check that torch files are not compressed, since a small file could otherwise fill the memory.

    :param paths: files, or folders whose *.bin files are checked
    :raises ModelError: a file unpacks to more bytes than it has.
    """
    for path in (
        file
        for folder_or_file in paths
        for file in (folder_or_file.glob("*.bin") if folder_or_file.is_dir() else (folder_or_file,))
    ):
        if not zipfile.is_zipfile(path):
            continue  # torch's older format is never compressed
        with zipfile.ZipFile(path) as stored:
            unpacked = sum(entry.file_size for entry in stored.infolist())
        if unpacked > path.stat().st_size:
            raise ModelError(
                f"the weights are compressed: {path.stat().st_size:,} bytes unpack to {unpacked:,}",
                where=str(path),
                remedy="copy or download the file again: torch never compresses weights",
            )


def load_torch_file(path: Path) -> Any:
    """Return the content of a torch file, which may hold only weights and plain objects.

    :raises ModelError: the file is damaged, or holds other objects.
    """
    try:
        check_torch_files(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except ModelError:
        raise
    except Exception as error:  # unpickling, zip files and torch raise various errors
        raise ModelError(
            f"expected weights and plain objects, could not read them: {_reason(error)}",
            where=str(path),
            remedy="copy the complete file again",
        ) from error


def _reason(error: Exception) -> str:
    """Return the first sentence of an error message of torch; the rest is advice for programmers."""
    return (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0][:200]


@contextmanager
def _silence() -> Iterator[None]:
    """Hide transformers' progress bars, and its reports of unused weights such as a pooler's."""
    from transformers.utils import logging

    level, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shows_bars:
            logging.enable_progress_bar()


def from_pretrained(auto: Any, name: str | Path, **arguments: Any) -> nn.Module:
    """Load a model by an Auto class of transformers, in float32 and without code from the folder.

    :raises ModelError: the model cannot be loaded, or lacks weights.
    """
    if (config := Path(name, "config.json")).is_file():
        read_json(config)
    check_torch_files(Path(name))
    try:
        with _silence():
            model, report = auto.from_pretrained(
                str(name),
                dtype=torch.float32,
                trust_remote_code=False,
                output_loading_info=True,
                **arguments,
            )
    except Exception as error:  # several packages raise various errors
        raise ModelError(
            f"expected a transformers model, could not load it: {error}",
            where=str(name),
            remedy="check the name, or copy the complete model folder again",
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"the model lacks weights of {type(model).__name__}: {', '.join(missing[:3])}",
            where=str(name),
            remedy="use a model that has these weights",
        )
    unread = sorted(key for key in report["unexpected_keys"] if ".layer." in key)
    if any("distance_embedding" in key for key in unread):
        raise ModelError(
            f"{type(model).__name__} has no relative positions, but the model has them ({unread[0]})",
            where=str(name),
            remedy="use a model with absolute positions (position_embedding_type in config.json)",
        )
    if unread:
        logger.warning(
            "%s: %s leaves out %d weights of the model's layers, such as %s",
            name,
            type(model).__name__,
            len(unread),
            unread[0],
        )
    return model.float().eval()
