"""Lightning's plug-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import assert_same, state_dict, torch

try:
    from penstock.torch.checkpoint.lightning import PenstockCheckpointIO
except ImportError as missing:
    pytest.skip(f"Lightning is not installed: {missing}", allow_module_level=True)


def test_a_checkpoint_is_saved_loaded_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "last.ckpt"
    plugin = PenstockCheckpointIO()
    plugin.save_checkpoint(state_dict(), path)
    assert_same(plugin.load_checkpoint(path), state_dict())
    assert_same(plugin.load_checkpoint(str(path), map_location=torch.device("cpu")), state_dict())
    plugin.remove_checkpoint(path)
    plugin.remove_checkpoint(path)
    assert not path.exists()


def test_storage_options_are_refused_as_by_lightning(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="storage_options"):
        PenstockCheckpointIO().save_checkpoint({}, tmp_path / "a", storage_options={})


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    pytorch = pytest.importorskip("lightning.pytorch")
    demos = pytest.importorskip("lightning.pytorch.demos.boring_classes")

    def trainer(epochs: int) -> object:
        return pytorch.Trainer(
            max_epochs=epochs,
            limit_train_batches=2,
            limit_val_batches=0,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            default_root_dir=tmp_path,
            plugins=[PenstockCheckpointIO()],
        )

    first = trainer(1)
    first.fit(demos.BoringModel())
    first.save_checkpoint(tmp_path / "last.ckpt")
    second = trainer(2)
    second.fit(demos.BoringModel(), ckpt_path=tmp_path / "last.ckpt")
    assert (second.current_epoch, second.global_step) == (2, 4)
