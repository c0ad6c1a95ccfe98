"""A MosaicML Composer run, logged with OTelLogger: a small CNN that learns scikit-learn's handwritten digits.

    pip install "otel-logger-destination[composer,demo]"
    python examples/composer_digits.py

Half a minute on a CPU, nothing to download. Everything is kept in ./otel_logs, or sent where
OTEL_EXPORTER_OTLP_ENDPOINT says, such as http://localhost:4317 for a Collector on this machine.
"""

import torch
from composer import Callback, Logger, State, Trainer
from composer.algorithms import LabelSmoothing
from composer.callbacks import LRMonitor
from composer.loggers import LoggerDestination
from composer.models import ComposerClassifier
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from otel_logger.composer import OTelLogger

HYPERPARAMETERS = {"train_images": 1500, "batch_size": 64, "channels": 8, "optimizer": {"name": "Adam", "lr": 0.01}}


class Mistakes(Callback):
    """Logs what the model gets wrong in each evaluation: the first images with masks, and a table of all."""

    def eval_start(self, state: State, logger: Logger) -> None:
        self.images: list[torch.Tensor] = []
        self.masks: list[torch.Tensor] = []
        self.rows: list[list[int | float]] = []

    def eval_batch_end(self, state: State, logger: Logger) -> None:
        images, labels = state.batch
        for image, label, scores in zip(images, labels, state.outputs.softmax(dim=1), strict=True):
            if scores.argmax() != label:
                self.images.append(image)
                # Where there is ink, coloured by what it was taken for: 1 to 10, as 0 is the paper.
                self.masks.append((image[0] > 0.3) * (scores.argmax() + 1))
                self.rows.append([int(label), int(scores.argmax()), float(scores.max())])

    def eval_end(self, state: State, logger: Logger) -> None:
        logger.log_table(["digit", "taken for", "confidence"], self.rows, name="mistakes")
        if self.images:
            logger.log_images(
                self.images[:4],
                name="mistakes",
                masks={"taken for": self.masks[:4]},
                mask_class_labels={digit + 1: f"taken for {digit}" for digit in range(10)},
            )


def build_trainer(
    loggers: list[LoggerDestination],
    run_name: str = "digits",
    save_folder: str = "checkpoints/{run_name}",
    max_duration: str = "2ep",
) -> Trainer:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    dataset = TensorDataset(images, torch.tensor(digits.target))
    split = HYPERPARAMETERS["train_images"]

    torch.manual_seed(17)
    channels = HYPERPARAMETERS["channels"]
    model = nn.Sequential(nn.Conv2d(1, channels, 3), nn.ReLU(), nn.Flatten(), nn.Linear(channels * 36, 10))

    return Trainer(
        model=ComposerClassifier(model, num_classes=10),
        train_dataloader=DataLoader(
            Subset(dataset, range(split)), batch_size=HYPERPARAMETERS["batch_size"], shuffle=True
        ),
        eval_dataloader=DataLoader(Subset(dataset, range(split, len(dataset))), batch_size=128),
        optimizers=torch.optim.Adam(model.parameters(), lr=HYPERPARAMETERS["optimizer"]["lr"]),
        max_duration=max_duration,
        eval_interval="10ba",
        algorithms=[LabelSmoothing(0.1)],
        callbacks=[LRMonitor(), Mistakes()],
        loggers=loggers,
        run_name=run_name,
        # A folder without a scheme such as s3:// goes through the loggers too: OTelLogger puts each checkpoint into its
        # blob store, so one on the local disk is enough.
        save_folder=save_folder,
        save_interval="1ep",
        save_num_checkpoints_to_keep=1,
        save_overwrite=True,
        device="cpu",
        seed=17,
    )


def main() -> None:
    trainer = build_trainer([OTelLogger()])
    # What is logged before fit() becomes attributes of every metric and span: training.hparam.<name>.
    trainer.logger.log_hyperparameters(HYPERPARAMETERS)
    trainer.fit()
    # Nothing to close: Composer closes its loggers when the program ends.


if __name__ == "__main__":
    main()
