"""Folders of transformers mean the same here, folders written here mean the same there, before and after training.

    transformers_roundtrip.py BIN_FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402
import transformers as tf  # noqa: E402

tf.logging.set_verbosity_error()
tf.logging.disable_progress_bar()
torch.set_num_threads(1)
BIN = sys.argv[1]
IDS = list(range(1, 25))
TEXT = ",".join(map(str, IDS))
NEAR = 1e-5

GPT2 = dict(vocab_size=257, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
SMALL = dict(vocab_size=257, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
CASES = {
    "gpt2": tf.GPT2Config(**GPT2),
    "gpt2-odd": tf.GPT2Config(**{**GPT2, "n_embd": 24, "n_head": 3}, n_inner=40, layer_norm_epsilon=1e-6),
    "gpt2-untied": tf.GPT2Config(**GPT2, tie_word_embeddings=False),
    "llama": tf.LlamaConfig(**SMALL),
    "llama-mqa-tied": tf.LlamaConfig(**{**SMALL, "num_key_value_heads": 1}, tie_word_embeddings=True),
    "llama-rope3": tf.LlamaConfig(**SMALL, rope_parameters=LLAMA3),
    "llama-pad": tf.LlamaConfig(**SMALL, pad_token_id=7),
    "mistral-window": tf.MistralConfig(**SMALL, sliding_window=4, head_dim=16),
    "qwen2-theta": tf.Qwen2Config(**SMALL, rope_parameters=dict(rope_type="default", rope_theta=1e6), rms_norm_eps=1e-5),
    "qwen2-tied": tf.Qwen2Config(**SMALL, tie_word_embeddings=True),
}
TRAINED = ("gpt2", "llama")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def probe(*args):
    return json.loads(run(os.path.join(BIN, "hf_probe"), *map(str, args)))


def answer(model):
    """Loss, logits and gradient norms there, in fp32."""
    ids = torch.tensor([IDS])
    model.float().eval().zero_grad()
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    norms = {name: p.grad.double().norm().item() for name, p in model.named_parameters()}
    return out.loss.item(), out.logits[0].detach(), norms


def opened(folder, **how):
    model, info = tf.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **how)
    assert not any(info.values()), info
    return model


def expect_near(name, ours, theirs):
    loss, logits, norms = theirs
    off = (logits - torch.tensor(ours["logits"])).abs().max().item()
    assert off < NEAR, f"{name}: logits off by {off}"
    assert abs(ours["loss"] - loss) < NEAR * loss, f"{name}: loss {ours['loss']}, there {loss}"
    assert ours["gradient_norms"].keys() == norms.keys(), f"{name}: {ours['gradient_norms'].keys() ^ norms.keys()}"
    for key, norm in norms.items():
        assert abs(ours["gradient_norms"][key] - norm) <= NEAR * norm, f"{name}: gradient of {key}"
    return off


def check_folders(name, config, root):
    """Their random model here; written here, whole, in shards and in bf16, there."""
    torch.manual_seed(1)
    theirs = tf.AutoModelForCausalLM.from_config(config).float().eval()
    for p in theirs.parameters():  # away from the zeros and ones of a new model
        p.data.add_(0.1 * torch.randn_like(p))
    start, whole, shards, narrow = (os.path.join(root, part) for part in ("start", "whole", "shards", "narrow"))
    theirs.save_pretrained(start, max_shard_size="40KB")
    off = expect_near(name, probe(start, TEXT, whole, "float32", 10**9), answer(theirs))
    probe(whole, TEXT, shards, "float32", 20_000)
    probe(whole, TEXT, narrow, "bfloat16", 10**9)
    assert os.path.exists(os.path.join(shards, "model.safetensors.index.json"))
    for folder, dtype in ((whole, torch.float32), (shards, torch.float32), (narrow, torch.bfloat16)):
        state = opened(folder, dtype="auto").state_dict()
        for key, value in theirs.state_dict().items():
            assert state[key].dtype == dtype and torch.equal(state[key], value.to(dtype)), f"{name}: {folder} {key}"
    assert answer(opened(whole, dtype=torch.float32))[0] == answer(theirs)[0], name
    expect_near(name, probe(narrow, TEXT), answer(opened(narrow, dtype=torch.float32)))
    return start, off


def check_training(name, start, root):
    data, ds, out = (os.path.join(root, part) for part in ("text.txt", "ds.json", "out"))
    with open(data, "w") as f:
        f.write("The quick brown fox jumps over the lazy dog. " * 200)
    with open(ds, "w") as f:
        json.dump({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3},
                   "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}, f)
    run(os.path.join(BIN, "aliquot"), "train", "--model", start, "--data", data, "--config", ds, "--ranks", "2",
        "--steps", "5", "--seq-len", "32", "--out", out)
    trained = opened(os.path.join(out, "model"), dtype=torch.float32)
    expect_near(name, probe(os.path.join(out, "model"), TEXT), answer(trained))
    before = opened(start, dtype=torch.float32)
    moved = max((a - b).abs().max().item() for a, b in zip(trained.parameters(), before.parameters()))
    assert moved > 1e-4, f"{name}: training changed nothing"


for name, config in CASES.items():
    with tempfile.TemporaryDirectory() as root:
        start, off = check_folders(name, config, root)
        if name in TRAINED:
            check_training(name, start, root)
        print(f"{name}: logits off by {off:.1e}")
