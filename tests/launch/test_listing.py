"""`multiberts list` names what parameters take."""

from multiberts.evaluate.metrics.register import METRICS
from multiberts.finetune.task import registered_tasks
from multiberts.launch.listing import list_names


def test_every_name_is_listed_with_a_meaning() -> None:
    tasks = dict(line.partition(" ")[::2] for line in list_names(kind="tasks").splitlines())
    assert list(tasks) == list(registered_tasks())
    assert "num_hidden_units=" in tasks["coreference"]
    listed = list_names(kind="metrics").splitlines()
    metrics = [line.split(maxsplit=1) for line in listed if line.startswith("  ")]
    assert {*METRICS} <= {name for name, _ in metrics}  # each line has a meaning, too
    assert "Classes or numbers:" in listed
    configs = list_names(kind="configs").splitlines()
    assert any(line.startswith("configs/demo.gin  ") for line in configs)
