import torch
from torch.utils.data import Dataset
from transformers import PreTrainedConfig, PreTrainedModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed

set_seed(21)


class Config(PreTrainedConfig):
    model_type = "tiny"


class Net(PreTrainedModel):
    config_class = Config
    seen = 0

    def __init__(self, config):
        super().__init__(config)
        self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.post_init()

    def forward(self, x=None, labels=None):
        hidden = torch.nn.functional.dropout(torch.relu(self.first(x)), 0.2, self.training)
        logits = self.last(hidden)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        Net.seen += len(labels) * self.training
        return {"loss": loss, "logits": logits}


class Points(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 4, generator=g)
        self.served = 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.served += 1
        return {"x": self.x[i], "labels": int(self.x[i].sum() > 0)}


class Watcher(TrainerCallback):
    def __init__(self):
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1

    def on_epoch_end(self, args, state, control, model=None, **kwargs):
        norm = model.last.weight.norm().item()
        print("epoch", state.epoch, f"{norm:.5f}")

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        print("eval", f"{metrics['eval_loss']:.5f}")


train, val = Points(96, 1), Points(40, 2)
args = TrainingArguments(output_dir="out", num_train_epochs=4, per_device_train_batch_size=16, learning_rate=0.02,
                         gradient_accumulation_steps=2, eval_strategy="epoch", save_strategy="no", logging_steps=2,
                         report_to=[], use_cpu=True, disable_tqdm=True, seed=21)
watcher = Watcher()
model = Net(Config())
trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=val, callbacks=[watcher])
trainer.remove_callback(PrinterCallback)  # it prints run times
result = trainer.train()
print("done", result.global_step, f"{result.training_loss:.5f}", Net.seen, train.served)
