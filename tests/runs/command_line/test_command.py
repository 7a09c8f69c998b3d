"""Arguments from flags, texts without names and Gin, and what a command says while it works."""

import re
import subprocess

from multiberts.runs.command_line.command import positional_texts
from multiberts.tests.tools import warm


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments)


TABLE = "model,seed,id,score\n" + "\n".join(
    f"{model},{seed},{example},{(3 * seed + example + len(model)) % 5}"
    for model in ("old", "newer")
    for seed in range(3)
    for example in range(6)
)


def test_a_flag_that_is_true_or_false_needs_no_value(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(TABLE)
    given = ["compare", str(table), "--arm=model"]
    shown = [call(*given, flag) for flag in ("--json", "--json=true")]
    assert shown[0].returncode == 0, shown[0].stderr
    assert shown[0].stdout == shown[1].stdout and shown[0].stdout.startswith("[")
    text = call(*given, "--nojson").stdout
    assert text and not text.startswith("[")
    wrong = call(*given, "--json=yes")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: compare.json is 'yes',")


def test_messages_name_parameters_as_gin_has_them_under_either_name(tmp_path):
    missing = call("stats")
    assert " stats.predictions, stats.run_dir" in missing.stderr
    for name in ("evaluate", "score"):
        wrong = call("evaluate", f"--gin_param={name}.run_dir = 3", "--predictions=report.run_dir")
        assert wrong.stderr.startswith("error: evaluate.run_dir is 3,")


def test_a_sweep_from_flags_alone(tmp_path):
    given = ["--root=sweep", "--tasks=RTE", "--learning_rates=1e-4,2e-4", "--data_dir=nowhere"]
    refused = call("sweep", *given, f"--checkpoints={tmp_path}")
    assert refused.returncode == 2 and str(tmp_path) in refused.stderr
    wrong = call("sweep", *given, "--checkpoints=a,b", "--finetune_seeds=0,x")
    assert wrong.stderr.startswith("error: launch.finetune_seeds is [0, 'x'],")
    assert "no checkpoint to start from" in call("sweep", "--root=sweep", "--tasks=RTE").stderr


def test_quiet_and_verbose(tmp_path):
    run_dir = f"--run_dir={tmp_path / 'world'}"
    made = call("-q", "world", run_dir, "--num_documents=2")
    assert made.stderr == "" and f"{tmp_path / 'world'}: 13 files, " in made.stdout
    again = call("world", run_dir, "--num_documents=2", "-v").stderr
    assert "make_world.num_documents = 2\n" in again and "was done already" in again
    assert "make_world took " in again
    assert call("world", run_dir, "--num_documents=2", "--quiet").stderr == ""
    wrong = call("world", run_dir, "--num_documents=3", "-v").stderr
    assert wrong.startswith("make_world.run_dir") and "Traceback" in wrong
    assert wrong.splitlines()[-1].startswith("error: ")


def test_compare_takes_any_number_of_files(tmp_path):
    rows = TABLE.splitlines()
    for model in ("old", "newer"):
        kept = [row for row in rows if row.startswith((model, "model"))]
        (tmp_path / f"{model}.csv").write_text("\n".join(kept))
    (tmp_path / "third.csv").write_text((tmp_path / "old.csv").read_text().replace("old", "third"))
    files = [str(tmp_path / f"{name}.csv") for name in ("old", "newer", "third")]
    by_place, by_name = call("compare", *files), call("compare", files[0], ",".join(files[1:]))
    assert by_place.returncode == 0, by_place.stderr
    assert "Among 3 arms" in by_place.stdout and by_place.stdout == by_name.stdout


def test_a_flag_may_have_hyphens(tmp_path):
    made = call("world", f"--run-dir={tmp_path / 'a-b'}", "--num-documents=3")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "a-b" / "corpus.txt").is_file()
    wrong = call("world", "--num-document=3")
    assert re.search(r"--num_document; .*num_documents", wrong.stderr)


def test_gin_binds_a_command_under_its_name_or_its_functions(tmp_path):
    listed = [
        call("list", f"--gin_param={name}.kind = 'metrics'") for name in ("list", "list_names")
    ]
    assert listed[0].stdout == listed[1].stdout and listed[0].stdout.startswith("Classes ")
    both = call(
        "list", "--gin_param=list_names.kind = 'tasks'", "--gin_param=list.kind = 'metrics'"
    )
    assert both.stdout == listed[0].stdout


def test_arguments_without_names_may_stand_around_a_list():
    assert positional_texts(["a", "b", "c"], ("sources...", "target")) == {
        "sources": ["a", "b"],
        "target": ["c"],
    }
    assert positional_texts(["m", "x", "y"], ("model", "files...")) == {
        "model": ["m"],
        "files": ["x", "y"],
    }
    assert positional_texts(["a"], ("sources...", "target")) == {"target": ["a"]}


def test_a_missing_parameter_is_told_with_its_choices() -> None:
    said = call("prepare", "--run_dir=corpus", "--sources=text.txt").stderr
    assert "lacks prepare.source_format ('sentences' or 'blank_lines' or" in said
    assert call("show").stderr.startswith("error: show lacks show.paths; give")
