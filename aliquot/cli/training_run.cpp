#include "aliquot/cli/training_run.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "aliquot/checkpoint/hf_folder.h"
#include "aliquot/config/load.h"
#include "aliquot/data/tokens.h"
#include "aliquot/engine/module.h"
#include "aliquot/error.h"
#include "aliquot/log.h"
#include "aliquot/models/load.h"

namespace aliquot {
namespace {

constexpr int64_t kDefaultSeqLen = 1024;

// A preset has no tokenizer, so text decides its vocabulary; a model from a file has its own.
ModelConfig shape_of(const TrainOptions& options, const TokenSource& source) {
  ModelConfig config = load_model_config(options.model);
  const std::vector<std::string> presets = preset_names();
  const bool preset = std::find(presets.begin(), presets.end(), options.model) != presets.end();
  if (options.vocab_size) {
    if (!preset) throw ConfigError("--vocab-size is for presets; the model's own file says its vocabulary");
    config.vocab_size = *options.vocab_size;
  } else if (preset && source.vocab_size()) {
    config.vocab_size = *source.vocab_size();
  }
  return config;
}

// A folder with weights is where training goes on from; one with a config.json alone says the shape.
bool has_weights(const std::filesystem::path& model) {
  return std::filesystem::exists(model / "model.safetensors") ||
         std::filesystem::exists(model / "model.safetensors.index.json");
}

void check_same_data(const Comm& comm, const TokenSource& source) {
  const uint64_t own = source.fingerprint();
  std::vector<uint64_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&own, all.data(), sizeof(own), "compare data");
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] != own) {
      throw IoError(fmt::format("{}: rank {} and rank {} see different data there (names or sizes differ)",
                                source.name(), comm.rank(), r));
    }
  }
}

}  // namespace

TrainingRun::TrainingRun(const TrainOptions& options_, const Comm& comm_)
    : options(options_),
      comm(comm_),
      source(open_tokens(options_.data, parse_data_format(options_.data_format))) {
  model_config = shape_of(options, *source);
  seq_len = options.seq_len.value_or(std::min(model_config.context, kDefaultSeqLen));
  if (seq_len > model_config.context) {
    throw ConfigError(fmt::format("--seq-len {}: the model's context is {}", seq_len, model_config.context));
  }
  const LoadedConfig loaded = load_config(options.config, {.lenient = options.lenient});
  resolution = resolve_config(loaded, run_facts(options, comm.size(), model_config.hidden));
  const Config& config = resolution.config;
  micro_batch = config.train_micro_batch_size_per_gpu;
  check_same_data(comm, *source);
  sampler = std::make_unique<Sampler>(source, SamplerOptions{.seq_len = seq_len,
                                                             .train_batch = config.train_batch_size,
                                                             .vocab_size = model_config.vocab_size,
                                                             .seed = options.seed,
                                                             .eval_fraction = options.eval_fraction,
                                                             .max_eval_rows = options.eval_rows});
  const bool pretrained = has_weights(options.model);
  model = pretrained ? make_model(model_config, options.seed) : make_unfilled_model(model_config);
  model->set_activation_checkpointing(config.activation_checkpointing);
  if (pretrained) load_weights();
  // Dropout differs between ranks, initial values do not (they have generators of their own).
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(options.seed + 1 + static_cast<uint64_t>(comm.rank()));
  cast_buffers(*model, config);
  EngineOptions engine_options;
  engine_options.set_training = training_switch(*model);
  engine_options.fill = [this](const std::string& name, at::Tensor& value) {
    initialise_parameter(model_config, options.seed, name, value);
  };
  engine = std::make_unique<Engine>(parameters_of(*model), config, comm, std::move(engine_options));
  ids = at::empty({micro_batch, seq_len}, at::kLong);
  targets = at::empty({micro_batch, seq_len}, at::kLong);
}

void TrainingRun::load_weights() {
  const LoadReport report = load_hf_weights(*model, options.model);
  if (comm.rank() != 0) return;
  log::info("{}: {} parameters loaded", options.model, report.loaded.size());
  for (const std::string& name : report.unexpected)
    log::warn("{}: {} is not in the model", options.model, name);
}

BatchSlice TrainingRun::slice(int64_t micro_step) const {
  return {.micro_step = micro_step, .rank = comm.rank(), .world = comm.size(), .micro_batch = micro_batch};
}

std::span<int64_t> TrainingRun::ids_span() {
  return {ids.mutable_data_ptr<int64_t>(), static_cast<size_t>(ids.numel())};
}
std::span<int64_t> TrainingRun::targets_span() {
  return {targets.mutable_data_ptr<int64_t>(), static_cast<size_t>(targets.numel())};
}

double TrainingRun::evaluate() {
  struct Sum {
    double loss = 0;
    int64_t rows = 0;
  };
  const c10::AutoGradMode no_grad(false);
  engine->eval();
  Sum own;
  for (int64_t i = 0; i < sampler->eval_batches(comm.size(), micro_batch); ++i) {
    const int64_t rows = sampler->fill_eval(i, slice(0), ids_span(), targets_span());
    // Rows that do not count still go through the model, so that every rank makes the same gathers.
    targets.slice(0, rows).fill_(-100);
    const double loss = model->loss(ids, targets).item<double>();
    if (rows > 0) own.loss += loss * static_cast<double>(rows);
    own.rows += rows;
  }
  engine->train();
  std::vector<Sum> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&own, all.data(), sizeof(own), "held-out loss");
  Sum total;
  for (const Sum& sum : all) {
    total.loss += sum.loss;
    total.rows += sum.rows;
  }
  return total.loss / static_cast<double>(total.rows);
}

void TrainingRun::save_model(const std::filesystem::path& folder) {
  std::vector<safetensors::TensorInfo> infos;
  const auto parameters = parameters_of(*model);
  for (const NamedTensor& p : parameters) {
    const DType dtype = dtype_of(p.tensor);
    infos.push_back({p.name,
                     dtype == DType::fp32   ? "F32"
                     : dtype == DType::bf16 ? "BF16"
                                            : "F16",
                     p.tensor.sizes().vec()});
  }
  std::unique_ptr<HfFolderWriter> writer;
  if (comm.rank() == 0) writer = std::make_unique<HfFolderWriter>(folder, to_hf_config(model_config), infos);
  const std::vector<size_t> order = safetensors::file_order(infos);
  for (const size_t i : order) {
    const at::Tensor value =
        engine->full_param(parameters[i].name).to(parameters[i].tensor.scalar_type()).contiguous();
    if (writer) writer->write(infos[i].name, value.const_data_ptr(), value.nbytes());
  }
  if (writer) writer->finish();
}

}  // namespace aliquot
