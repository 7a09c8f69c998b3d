import numpy as np

from multiberts.evaluate.metrics.parts import parts_of


def test_parts_of_made_up_examples():
    labels = np.array([0.0, 1, 0, 1, 1, 0])
    columns = {
        "heuristic": np.array(["a", "a", "b", "b", "b", "b"]),
        "constant": np.array(["x"] * 6),
        "each_its_own": np.array(list("uvwxyz")),
        "share": np.arange(6.0),
    }
    found = {
        (part.by, part.part, part.label): part.rows.tolist() for part in parts_of(labels, columns)
    }
    assert found == {
        ("label", "0", 0.0): [0, 2, 5],
        ("label", "1", 1.0): [1, 3, 4],
        ("heuristic", "a", None): [0, 1],
        ("heuristic", "a", 0.0): [0],
        ("heuristic", "a", 1.0): [1],
        ("heuristic", "b", None): [2, 3, 4, 5],
        ("heuristic", "b", 0.0): [2, 5],
        ("heuristic", "b", 1.0): [3, 4],
    }


def test_labels_on_a_scale_are_no_parts():
    columns = {"genre": np.array(["a", "b"] * 10)}
    found = [(part.by, part.label) for part in parts_of(np.linspace(0, 5, 20), columns)]
    assert found == [("genre", None), ("genre", None)]
