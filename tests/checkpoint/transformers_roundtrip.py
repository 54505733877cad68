"""A model trained here opens in transformers with the same logits; a random model of transformers has the same loss here.

    transformers_roundtrip.py BIN_FOLDER SOURCE_FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers  # noqa: E402

BIN, SOURCE = sys.argv[1:3]
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 3},
}
SMALL = dict(vocab_size=257, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
CASES = {
    "gpt2": transformers.GPT2Config(vocab_size=257, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0,
                                    embd_pdrop=0.0, attn_pdrop=0.0),
    "llama": transformers.LlamaConfig(**SMALL),
}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check(name, config, folder):
    kind = transformers.AutoModelForCausalLM
    start = os.path.join(folder, "start")
    torch.manual_seed(1)
    theirs = kind.from_config(config).float().eval()
    theirs.save_pretrained(start)

    data = os.path.join(folder, "text.txt")
    with open(data, "w") as f:
        f.write("The quick brown fox jumps over the lazy dog. " * 200)
    ds = os.path.join(folder, "ds.json")
    with open(ds, "w") as f:
        json.dump(CONFIG, f)
    out = os.path.join(folder, "out")
    probe = os.path.join(BIN, "hf_probe")
    ids = list(range(1, 25))
    text = ",".join(map(str, ids))

    # The same loss and logits as transformers', before training.
    ours = json.loads(run(probe, start, text))
    with torch.no_grad():
        got = theirs(input_ids=torch.tensor([ids]), labels=torch.tensor([ids]))
    assert abs(ours["loss"] - got.loss.item()) < 1e-5, (ours["loss"], got.loss.item())

    # And after training here, from those weights.
    run(os.path.join(BIN, "aliquot"), "train", "--model", start, "--data", data, "--config", ds, "--ranks", "2", "--steps", "5",
        "--seq-len", "32", "--out", out)
    ours = json.loads(run(probe, os.path.join(out, "model"), text))
    trained = kind.from_pretrained(os.path.join(out, "model"), dtype=torch.float32).eval()
    with torch.no_grad():
        logits = trained(input_ids=torch.tensor([ids])).logits[0]
    off = (logits - torch.tensor(ours["logits"])).abs().max().item()
    assert off < 1e-5, off
    moved = max((a - b).abs().max().item() for a, b in zip(trained.parameters(), theirs.parameters()))
    assert moved > 1e-4, "training changed nothing"
    print(f"{name}: logits off by {off:.1e}, parameters moved by {moved:.1e}")


for name, config in CASES.items():
    with tempfile.TemporaryDirectory() as folder:
        check(name, config, folder)
