#!/usr/bin/env python3
"""Step time of each ZeRO stage over stage 0, pair by pair in one run, and the time from exec to the end of the first step.

    benchmarks/stages.py BIN_FOLDER [--steps 6] [--pairs 3] [--model gpt2-small]

gpt2-small, vocabulary 8,192, sequence 256, micro-batch 4, bf16, two ranks, clipping off: the set-up of the usual peers.
"""
import argparse
import array
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("bin")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--pairs", type=int, default=3)
parser.add_argument("--model", default="gpt2-small")
options = parser.parse_args()


def config(stage):
    return {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "gradient_clipping": 0,
            "zero_optimization": {"stage": stage}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}}


def run(folder, data, stage, steps, model):
    with open(os.path.join(folder, "ds.json"), "w") as f:
        json.dump(config(stage), f)
    out = os.path.join(folder, "out")
    start = time.monotonic()
    subprocess.run([os.path.join(options.bin, "aliquot"), "train", "--model", model, "--data", data, "--data-format", "nanogpt",
                    "--vocab-size", "8192", "--config", os.path.join(folder, "ds.json"), "--ranks", "2", "--steps", str(steps),
                    "--seq-len", "256", "--eval-fraction", "0", "--out", out], check=True, capture_output=True)
    seconds = time.monotonic() - start
    with open(os.path.join(out, "metrics.jsonl")) as f:
        times = [json.loads(line)["ms"]["total"] for line in f]
    return statistics.median(times[1:]) if len(times) > 1 else times[0], seconds


with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "tokens.bin")
    random.seed(1)
    with open(data, "wb") as f:
        array.array("H", (random.randrange(8192) for _ in range(1 << 19))).tofile(f)
    for stage in (1, 2, 3):
        ratios = []
        for _ in range(options.pairs):
            base, _ = run(folder, data, 0, options.steps, options.model)
            other, _ = run(folder, data, stage, options.steps, options.model)
            ratios.append(other / base)
        print(f"stage {stage} / stage 0: {statistics.median(ratios):.3f}  ({min(ratios):.3f} to {max(ratios):.3f}, "
              f"stage 0 {base:.0f} ms)", flush=True)
    start = [run(folder, data, 2, 1, "gpt2-tiny")[1] for _ in range(5)]
    print(f"whole run of one step, gpt2-tiny, two ranks: {statistics.median(start):.2f} s")
