"""Train a tiny BERT with the Trainer of transformers: does a sequence hold more high tokens than low ones?"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Sequences(Dataset):
    def __init__(self, count, length, tokens, seed):
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(tokens, (count, length), generator=generator)
        self.labels = ((self.ids >= tokens // 2).float().mean(1) > 0.5).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


class EpochPrinter(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, model=None, **kwargs):
        weight = model.classifier.weight
        print(
            f"epoch {state.epoch:.0f}: eval loss {metrics['eval_loss']:.4f}, "
            f"accuracy {metrics['eval_accuracy']:.4f}, classifier {weight.norm().item():.4f}"
        )


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=512)
    args = parser.parse_args()

    set_seed(7)
    config = BertConfig(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=2,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir="out",
            num_train_epochs=args.epochs,
            per_device_train_batch_size=32,
            learning_rate=2e-3,
            eval_strategy="epoch",
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=7,
        ),
        train_dataset=Sequences(args.samples, 16, 32, seed=1),
        eval_dataset=Sequences(128, 16, 32, seed=2),
        compute_metrics=accuracy,
        callbacks=[EpochPrinter()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print(f"{trainer.state.global_step} steps")


if __name__ == "__main__":
    main()
