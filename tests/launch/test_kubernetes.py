"""The manifest for Dask's operator, against the operator's own definitions."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFEST = Path(__file__).resolve().parents[2] / "configs/launch/dask_kubernetes.yaml"
DEFINITION = "operator/deployment/helm/dask-kubernetes-operator/crds/daskcluster.yaml"
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def misfits(value: Any, schema: dict[str, Any], place: str) -> Iterator[str]:
    """What Kubernetes would refuse, or drop without a word as a field that it does not know."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{place} is {value!r}"
    elif not isinstance(value, _TYPES[schema["type"]]):
        yield f"{place} is {value!r}, not {schema['type']}"
    elif isinstance(value, dict):
        yield from (
            f"{place} lacks {name}" for name in set(schema.get("required", ())) - set(value)
        )
        for name, part in value.items():
            further = schema.get("additionalProperties")
            known = schema.get("properties", {}).get(name, further)
            if known is not None:
                yield from misfits(part, known, f"{place}.{name}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{place}.{name} is unknown"
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from misfits(part, schema["items"], f"{place}[{number}]")


def test_the_operator_s_definitions_know_all_of_the_manifest() -> None:
    found = importlib.util.find_spec("dask_kubernetes")
    if found is None or found.origin is None:
        pytest.skip("needs the files of dask-kubernetes, which is not among the requirements")
    definition = yaml.safe_load((Path(found.origin).parent / DEFINITION).read_text())
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    manifest = yaml.safe_load(MANIFEST.read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == (
        f"{definition['spec']['group']}/{version['name']}",
        definition["spec"]["names"]["kind"],
    )
    del manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    assert list(misfits(manifest, schema, "manifest")) == []
    # The check itself notices what is misspelt.
    manifest["spec"]["worker"]["spec"]["containers"][0]["resource"] = {}
    manifest["spec"]["worker"]["replicas"] = "4"
    assert len(list(misfits(manifest, schema, "manifest"))) == 2
