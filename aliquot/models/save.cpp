#include "aliquot/models/save.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <vector>

#include "aliquot/error.h"

namespace aliquot {
namespace {

const char* dtype_in_file(const std::string& name, at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "F32";
    case at::kBFloat16:
      return "BF16";
    case at::kHalf:
      return "F16";
    case at::kDouble:
      return "F64";
    default:
      throw UsageError(
          fmt::format("parameter {} is {}, expected a floating dtype", name, c10::toString(type)));
  }
}

}  // namespace

void save_hf_weights(const LanguageModel& model, const std::optional<std::filesystem::path>& folder,
                     const ParameterValue& value, int64_t max_shard_bytes) {
  const c10::AutoGradMode no_grad(false);
  std::vector<safetensors::TensorInfo> infos;
  std::vector<at::ScalarType> types;
  for (const auto& item : model.named_parameters()) {
    types.push_back(item.value().scalar_type());
    infos.push_back({item.key(), dtype_in_file(item.key(), types.back()), item.value().sizes().vec()});
  }
  std::optional<HfFolderWriter> writer;
  if (folder) writer.emplace(*folder, to_hf_config(model.config()), infos, max_shard_bytes);
  for (const size_t i : safetensors::file_order(infos)) {
    const at::Tensor tensor = value(infos[i].name).to(types[i]).contiguous();
    if (writer) writer->write(infos[i].name, tensor.const_data_ptr(), tensor.nbytes());
  }
  if (writer) writer->finish();
}

}  // namespace aliquot
