"""Fine-tunes one model with the Trainer of transformers, as its text-classification script does.

    python benchmarks/hugging_face_finetuning.py CHECKPOINT DATA_DIR OUTPUT LEARNING_RATE SEED \
        BATCH_SIZE EPOCHS LENGTH

The peer of benchmarks/finetuning_speed.py, one process per run, without imports of our code. Unspecified
settings are the script's defaults (examples/pytorch/text-classification/run_glue.py of transformers): pairs
padded to the greatest length, Trainer's own logging and saving, and an evaluation at the end. From the
recipe: linear decay after a warm-up of 10 %, AdamW with weight decay 0.01, clipping at norm 1. Prints one
line of JSON.
"""

import json
import os
import sys
import time

STARTED = time.perf_counter()


def main(
    checkpoint: str,
    data_dir: str,
    output: str,
    learning_rate: float,
    seed: int,
    batch_size: int,
    epochs: int,
    length: int,
) -> None:
    """Runs one fine-tuning; `data_dir` has train.tsv and dev.tsv in the layout of RTE."""
    import numpy as np
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
        default_data_collator,
        set_seed,
    )

    imported = time.perf_counter()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    config = AutoConfig.from_pretrained(checkpoint, num_labels=2)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint, config=config)

    def read(split):
        with open(os.path.join(data_dir, split + ".tsv"), encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines][1:]
        encoded = tokenizer(
            [row[1] for row in rows],
            [row[2] for row in rows],
            padding="max_length",
            max_length=length,
            truncation=True,
        )
        labels = [int(row[3] == "not_entailment") for row in rows]
        return [
            {**{name: encoded[name][number] for name in encoded}, "label": label}
            for number, label in enumerate(labels)
        ]

    train, dev = read("train"), read("dev")
    arguments = TrainingArguments(
        output_dir=output,
        learning_rate=learning_rate,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=64,
        num_train_epochs=epochs,
        warmup_steps=int(0.1 * epochs * len(train) / batch_size),
        weight_decay=0.01,
        max_grad_norm=1.0,
        seed=seed,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )

    def accuracy(prediction):
        return {
            "accuracy": float(np.mean(prediction.predictions.argmax(1) == prediction.label_ids))
        }

    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=dev,
        compute_metrics=accuracy,
        processing_class=tokenizer,
        data_collator=default_data_collator,
    )
    prepared = time.perf_counter()
    trainer.train()
    trainer.save_model()
    trained = time.perf_counter()
    measured = trainer.evaluate()
    ended = time.perf_counter()
    print(
        json.dumps(
            {
                "accuracy": measured["eval_accuracy"],
                "cpu": time.process_time(),
                "start": imported - STARTED,
                "data": prepared - imported,
                "train": trained - prepared,
                "evaluate": ended - trained,
            }
        )
    )


if __name__ == "__main__":
    folder, texts, output, rate, *numbers = sys.argv[1:]
    main(folder, texts, output, float(rate), *map(int, numbers))
