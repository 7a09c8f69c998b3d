"""What SkyPilot makes of a task file: run by its own Python, with a catalogue of our own and no cloud.

    HOME=folder python tests/tools/skypilot_choice.py configs/launch/skypilot/pretrain.yaml BUCKET=gs://b

Prints a row per machine in the order in which SkyPilot tries them: each time the one before has no capacity.
"""

import json
import pathlib
import sys
from unittest import mock

# Zones and prices by users' reports, and the hosts that SkyPilot looks for. An H100's row counts twice.
_VMS = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
n1-highmem-8,8.0,52.0,,,,us-central1,us-central1-a,0.473,0.1
a3-highgpu-1g,26.0,234.0,H100,1.0,H100,us-central1,us-central1-a,5.53,2.21
"""
_TPUS = {
    "v4-8": ("us-central2-b", 12.88, 5.15),
    "v5litepod-4": ("us-central1-a", 4.8, 1.36),
    "v5litepod-8": ("us-central1-a", 9.6, 2.72),
    "v6e-4": ("us-east1-d", 10.8, 2.6),
    "v6e-8": ("us-east1-d", 21.6, 5.2),
    "v5p-8": ("us-east5-a", 16.8, 6.72),
}


def write_catalogue(home: pathlib.Path) -> None:
    folder = home / ".sky/catalogs/v8/gcp"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        f",,,tpu-{name},1.0,tpu-{name},{zone[:-2]},{zone},{price},{spot}\n"
        for name, (zone, price, spot) in _TPUS.items()
    ]
    (folder / "vms.csv").write_text(_VMS + "".join(rows))
    common = home / ".sky/catalogs/v8/common"
    common.mkdir(parents=True, exist_ok=True)
    names = "".join(f"tpu-{name},GCP\n" for name in _TPUS)
    (common / "accelerators.csv").write_text(f"AcceleratorName,Clouds\nH100,GCP\n{names}")
    (folder / "images.csv").write_text("Tag,Region,OS,OSVersion,ImageId,CreationDate\n")
    (folder / "accelerator_quota_mapping.csv").write_text("Name,Code,SpotCode\n")


def main(path: str, *given: str) -> None:
    write_catalogue(pathlib.Path.home())
    import sky
    import yaml
    from sky import clouds, optimizer

    fields = yaml.safe_load(pathlib.Path(path).read_text())
    envs = [tuple(text.split("=", 1)) for text in given]
    task = sky.Task.from_yaml_config(fields, env_overrides=envs)
    with sky.Dag() as dag:
        dag.add(task)
    blocked, rows = [], []
    with (
        mock.patch("sky.check.get_cached_enabled_clouds_or_refresh", return_value=[clouds.GCP()]),
        mock.patch("sky.clouds.gcp.GCP.check_credentials", return_value=(True, None), create=True),
    ):
        for _ in task.resources:
            chosen = optimizer.Optimizer.optimize(dag, blocked_resources=blocked, quiet=True)
            best = chosen.tasks[0].best_resources
            blocked.append(best)
            rows.append(
                {
                    "accelerators": best.accelerators,
                    "runtime_version": (best.accelerator_args or {}).get("runtime_version"),
                    "host": best.instance_type,
                    "zone": best.zone or best.region,
                    "dollars_per_hour": round(best.get_cost(3600), 2),
                    "use_spot": best.use_spot,
                    "job_recovery": best.job_recovery,
                    "nodes": task.num_nodes,
                }
            )
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
