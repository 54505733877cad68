"""The command line end to end: every stage and transport gives the same losses, norms and weights, bit for bit.

    same_run.py BIN_FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile

BIN = sys.argv[1]
STEPS = 6


def config(stage):
    return {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    }


def train(folder, data, stage, backend):
    with open(os.path.join(folder, "ds.json"), "w") as f:
        json.dump(config(stage), f)
    out = os.path.join(folder, f"{backend}-{stage}")
    command = [os.path.join(BIN, "aliquot"), "train", "--model", "gpt2-tiny", "--data", data, "--config",
               os.path.join(folder, "ds.json"), "--ranks", "2", "--steps", str(STEPS), "--seq-len", "32", "--backend", backend,
               "--out", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    with open(os.path.join(out, "metrics.jsonl")) as f:
        steps = [(r["loss"], r["grad_norm"], r.get("eval_loss")) for r in map(json.loads, f)]
    assert len(steps) == STEPS
    with open(os.path.join(out, "model", "model.safetensors"), "rb") as f:
        return steps, f.read()


def backends():
    done = subprocess.run([os.path.join(BIN, "aliquot"), "env"], capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("backends"))
    return [b for b in ("shm", "gloo") if b in line]


with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "text.txt")
    with open(data, "w") as f:
        f.write("It was the best of times, it was the worst of times. " * 400)
    first = None
    for backend in backends():
        for stage in range(4):
            run = train(folder, data, stage, backend)
            first = first or run
            assert run[0] == first[0], f"{backend}, stage {stage}: {run[0]} instead of {first[0]}"
            assert run[1] == first[1], f"{backend}, stage {stage}: other weights"
            print(f"{backend}, stage {stage}: the same {STEPS} steps and weights")
