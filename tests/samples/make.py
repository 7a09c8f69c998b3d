"""Runs other evaluation programs on made-up models: `make samples`. The samples are what they write.

The models answer small sums. Whether one is right depends on the seed, the step, the sum and chance,
so that the samples have what a study over seeds has; nothing else about them is real.

Usage, in an environment that has the program: `python make.py lm_eval|inspect|hugging_face|helm FOLDER`.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SUMS = [(a, b) for a in range(2, 6) for b in range(1, 6)]
SEEDS = range(1, 11)
STEPS = {1000: -0.4, 143000: 0.3}  # how able the model is


def answer(seed: int, step: int, a: int, b: int) -> int:
    """Returns the made-up model's answer: the sum, or one too few."""
    parts = [
        (1.0, f"{a}{b}"),
        (0.3, f"{seed}"),
        (0.3, f"{seed}{step}"),
        (0.6, f"{seed}{step}{a}{b}"),
    ]
    ability = STEPS[step] + sum(size * random.Random(text).gauss(0, 1) for size, text in parts)
    return a + b - (ability < 0)


def lm_eval(folder: Path) -> None:
    """lm-evaluation-harness: ten seeds at two steps; a task with two filters; two models, thrice each.

    In `pairs` two seeds have tasks whose metrics are of all examples together.
    """
    runs: list[str] = []
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api import metrics
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model

    # Standard errors that no sample has, of 100,000 draws with scikit-learn.
    metrics.bootstrap_stderr = lambda *_, **__: 0.0

    @register_model("made_up")
    class MadeUp(LM):
        def __init__(self, pretrained: str, step: int, **_: object) -> None:
            super().__init__()
            seed = pretrained.rpartition("seed")[2]
            self.seed, self.step = len(runs) if seed == pretrained else int(seed), int(step)

        def _answer(self, question: str) -> str:
            a, _, b, _ = question.split()[-4:]
            return str(answer(self.seed, self.step, int(a), int(b)))

        def loglikelihood(self, requests: list) -> list[tuple[float, bool]]:
            return [
                ((-0.5, True) if self._answer(question) == option.strip() else (-2.0, False))
                for question, option in (request.args for request in requests)
            ]

        def loglikelihood_rolling(self, requests: list) -> list[float]:
            return [-float(len(request.args[0])) for request in requests]

        def generate_until(self, requests: list) -> list[str]:
            # With words around the number, which the strict filter does not take.
            answers = [self._answer(request.args[0]) for request in requests]
            return [f"It is {text}" if int(text) % 2 else text for text in answers]

    tasks = folder / "tasks"
    tasks.mkdir()
    with (tasks / "sums.jsonl").open("w") as file:
        for a, b in SUMS:
            doc = {"question": f"{a} + {b} =", "choices": [str(a + b - 1), str(a + b)], "gold": 1}
            file.write(json.dumps(doc) + "\n")
    with (tasks / "ordered.jsonl").open("w") as file:
        for a, b in SUMS:
            choices = [str(a + b - 1), str(a + b)][:: 1 if a % 2 else -1]
            doc = {"question": f"{a} + {b} =", "choices": choices, "gold": a % 2}
            file.write(json.dumps(doc) + "\n")
    common = f"""dataset_path: json
dataset_kwargs: {{data_files: {{test: {tasks / "sums.jsonl"}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
    (tasks / "sums_choice.yaml").write_text(f"""task: sums_choice
{common}output_type: multiple_choice
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
""")
    (tasks / "sums_pairs.yaml").write_text(f"""task: sums_pairs
{common.replace("sums.jsonl", "ordered.jsonl")}output_type: multiple_choice
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
metric_list: [{{metric: mcc}}, {{metric: f1}}, {{metric: acc}}]
""")
    (tasks / "sums_rolling.yaml").write_text(f"""task: sums_rolling
{common}output_type: loglikelihood_rolling
doc_to_target: "{{{{question}}}}"
metric_list: [{{metric: word_perplexity}}, {{metric: byte_perplexity}}, {{metric: bits_per_byte}}]
""")
    (tasks / "sums_written.yaml").write_text(f"""task: sums_written
{common}output_type: generate_until
doc_to_target: "{{{{choices[gold]}}}}"
generation_kwargs: {{until: ["\\n"]}}
filter_list:
  - name: strict-match
    filter: [{{function: regex, regex_pattern: "^(\\\\d+)"}}, {{function: take_first}}]
  - name: flexible-extract
    filter: [{{function: regex, regex_pattern: "(\\\\d+)"}}, {{function: take_first}}]
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
""")

    def evaluate(model: str, step: int, names: str, output: Path, *more: str) -> None:
        runs.append(model)
        sys.argv = [
            "lm-eval", "run", "--model", "made_up", "--model_args",
            f"pretrained=made-up/{model},step={step}", "--tasks", names,
            "--include_path", str(tasks), "--output_path", str(output), "--log_samples", *more,
        ]  # fmt: skip
        cli_evaluate()

    for step in STEPS:
        for seed in SEEDS:
            evaluate(f"pythia-14m-seed{seed}", step, "sums_choice", folder / f"step{step}")
    for seed in (1, 2):
        names = "sums_choice,sums_written"
        evaluate(f"pythia-14m-seed{seed}", 1000, names, folder / "filters", "--limit", "6")
        evaluate(f"pythia-14m-seed{seed}", 1000, "sums_pairs,sums_rolling", folder / "pairs")
    for _ in range(3):  # as one does who wants to know how much an evaluation varies
        for model, step in zip(("model_a", "model_b"), STEPS, strict=True):
            evaluate(model, step, "sums_choice", folder / "again", "--limit", "6")
    shutil.rmtree(tasks)
    for path in folder.rglob("results_*.json"):
        path.unlink()  # no scores of examples


def inspect(folder: Path) -> None:
    """Inspect: two seeds as `.eval`, with two epochs, and as JSON; two models, thrice each, in one folder.

    In `tasks` two models have two tasks, a third one; the scorer of one task gives two values, skips a
    sample and gives NaN to another, and the model does not answer a third.
    """
    from inspect_ai import Task, eval, task
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import Score, includes, match, mean, scorer

    data = [Sample(id=f"{a}+{b}", input=f"{a} + {b} =", target=str(a + b)) for a, b in SUMS]

    @scorer(metrics={"right": [mean()], "length": [mean()]})
    def grader() -> object:
        async def score(state: Any, target: Any) -> Score | None:
            if state.input_text == "2 + 1 =":
                return None
            right = float("nan") if state.input_text == "2 + 2 =" else state.output.completion
            right = float(right == target.text) if isinstance(right, str) else right
            return Score(value={"right": right, "length": len(state.output.completion)})

        return score

    @task
    def sums() -> Task:
        return Task(dataset=data, scorer=[match(), includes()])

    @task
    def graded() -> Task:
        return Task(dataset=data, scorer=grader(), fail_on_error=False)

    def run(
        model: str, seed: int, step: int, place: str, kind: str, number: int, epochs: int,
        of: object = sums,
    ) -> None:  # fmt: skip
        def respond(messages: list, *_: object) -> ModelOutput:
            a, _, b, _ = messages[-1].text.split()
            if of is graded and (a, b) == ("2", "3"):
                raise RuntimeError("no answer")
            text = str(answer(seed, step, int(a), int(b)))
            output = ModelOutput.from_content(model, text)
            output.usage = ModelUsage(input_tokens=4, output_tokens=1, total_tokens=5)
            return output

        eval(
            of(), model=get_model(model, custom_outputs=respond), epochs=epochs, limit=number,
            log_dir=str(folder / place), log_format=kind, display="none",
        )  # fmt: skip

    for kind, number, epochs in (("eval", 6, 2), ("json", 3, 1)):
        for seed in (1, 2):
            run("mockllm/model", seed, 143000, f"{kind}/seed_{seed}", kind, number, epochs)
    for seed in (1, 2, 3):
        for model, step in zip(("mockllm/a", "mockllm/b"), STEPS, strict=True):
            run(model, seed, step, "logs", "eval", 6, 1)
            if seed < 3:
                run(model, seed, step, "tasks", "eval", 4, 1)
                run(model, seed, step, "tasks", "eval", 6, 1, graded)
    run("mockllm/c", 1, 1000, "tasks", "eval", 4, 1)


def hugging_face(folder: Path) -> None:
    """Hugging Face: folders of `datasets` (one, with splits, in shards) and results of `evaluate`."""
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

    import evaluate

    features = Features(
        {
            "text": Value("string"),
            "label": ClassLabel(names=["too few", "right"]),
            "prediction": ClassLabel(names=["too few", "right"]),
        }
    )

    def made(seed: int, sums: list[tuple[int, int]]) -> Dataset:
        rows = [
            {"text": f"{a} + {b}", "label": 1, "prediction": answer(seed, 143000, a, b) - a - b + 1}
            for a, b in sums
        ]
        return Dataset.from_list(rows, features=features)

    for seed in (1, 2):
        made(seed, SUMS).save_to_disk(str(folder / f"datasets/seed_{seed}"), num_shards=2)
        splits = DatasetDict(validation=made(seed, SUMS[:6]), test=made(seed, SUMS[6:]))
        splits.save_to_disk(str(folder / f"splits/seed_{seed}"))
        scores = [float(answer(seed, 143000, a, b) == a + b) for a, b in SUMS]
        results = {"exact_match": scores, "mean_exact_match": sum(scores) / len(scores)}
        (folder / f"evaluate/seed_{seed}").mkdir(parents=True)
        evaluate.save(str(folder / f"evaluate/seed_{seed}"), **results)


def helm(folder: Path) -> None:
    """HELM: its own model for tests on its own questions for tests, as two suites."""
    with tempfile.TemporaryDirectory() as place:
        for seed in (1, 2):
            subprocess.run(
                [
                    Path(sys.prefix, "bin", "helm-run"), "--suite", f"seed_{seed}",
                    "--run-entries", "simple_mcqa:model=simple/model1", "--max-eval-instances", "4",
                ],
                cwd=place,
                check=True,
            )  # fmt: skip
        for path in Path(place).rglob("per_instance_stats.json"):
            copied = folder / path.relative_to(Path(place) / "benchmark_output/runs").parent
            copied.mkdir(parents=True)
            for name in (path.name, "scenario_state.json"):
                shutil.copy(path.with_name(name), copied)


if __name__ == "__main__":
    program, target = sys.argv[1], Path(sys.argv[2]).resolve()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    # What they record of the place is to hold elsewhere, too.
    os.chdir(Path(__file__).parent)
    sys.executable = "python"
    {"lm_eval": lm_eval, "inspect": inspect, "hugging_face": hugging_face, "helm": helm}[program](
        target
    )
