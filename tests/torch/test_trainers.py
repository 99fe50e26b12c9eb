"""The callbacks of Lightning and of Hugging Face's Trainer, with the real packages."""

import pytest
import torch

from accelegrad.torch import AcceleGrad

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of these packages, about each other and the machine
]
torch.manual_seed(0)
DATA = torch.randn(64, 5)
TARGET = DATA @ torch.tensor([1.0, -1.0, 0.5, 0.0, 2.0])
OPTIONS = {"diameter": 4.0}


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 1)
        with torch.no_grad():
            for param in self.parameters():
                param.zero_()

    def forward(self, x, labels=None):
        prediction = self.layer(x).squeeze(-1)
        if labels is None:
            return prediction
        return {"loss": (prediction - labels).square().mean(), "logits": prediction}


def plain(steps, batch=16):
    """The weights for evaluation after a plain loop over the rows in order."""
    model = Linear()
    optimizer = AcceleGrad(model.parameters(), **OPTIONS)
    for i in range(steps):
        rows = torch.arange(i * batch, (i + 1) * batch) % 64
        optimizer.zero_grad()
        model(DATA[rows], TARGET[rows])["loss"].backward()
        optimizer.step()
    optimizer.eval()
    return model.layer.weight.detach()


def test_lightning(tmp_path):
    pytest.importorskip("lightning")
    import lightning.pytorch as pl

    from accelegrad.torch.lightning import Averaging

    seen = []

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Linear()

        def training_step(self, batch, index):
            return self.model(*batch)["loss"]

        def validation_step(self, batch, index):
            seen.append(self.model.layer.weight.detach().clone())

        def configure_optimizers(self):
            return AcceleGrad(self.parameters(), **OPTIONS)

    rows = torch.utils.data.TensorDataset(DATA, TARGET)
    loader = torch.utils.data.DataLoader(rows, batch_size=16)
    silent = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)

    def trainer(epochs):
        callbacks = [Averaging(), pl.callbacks.ModelCheckpoint(tmp_path, save_last=True)]
        options = {"accelerator": "cpu", "default_root_dir": tmp_path, "num_sanity_val_steps": 0}
        return pl.Trainer(max_epochs=epochs, callbacks=callbacks, **options, **silent)

    module = Module()
    trainer(2).fit(module, loader, loader)
    torch.testing.assert_close(seen[0], plain(4))
    torch.testing.assert_close(seen[-1], plain(8))
    torch.testing.assert_close(module.model.layer.weight.detach(), plain(8))
    resumed = Module()
    trainer(3).fit(resumed, loader, loader, ckpt_path=tmp_path / "last.ckpt")
    torch.testing.assert_close(resumed.model.layer.weight.detach(), plain(12))


def test_transformers(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    from accelegrad.torch.transformers import Averaging

    rows = [{"x": DATA[i], "labels": TARGET[i]} for i in range(64)]
    seen = []

    class InOrder(Trainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(rows)

        def evaluate(self, *args, **kwargs):
            seen.append(self.model.layer.weight.detach().clone())
            return super().evaluate(*args, **kwargs)

    def trainer(epochs):
        model = Linear()
        arguments = TrainingArguments(
            output_dir=tmp_path,
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to=[],
            use_cpu=True,
            max_grad_norm=0.0,
            disable_tqdm=True,
            lr_scheduler_type="constant",
        )
        optimizer = AcceleGrad(model.parameters(), **OPTIONS)
        return InOrder(
            model,
            arguments,
            train_dataset=rows,
            eval_dataset=rows,
            optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
            callbacks=[Averaging()],
        )

    first = trainer(2)
    first.train()
    torch.testing.assert_close(seen[0], plain(4))
    torch.testing.assert_close(first.model.layer.weight.detach(), plain(8))
    resumed = trainer(3)
    resumed.train(resume_from_checkpoint=True)
    torch.testing.assert_close(resumed.model.layer.weight.detach(), plain(12))
