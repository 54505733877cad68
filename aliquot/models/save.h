// A model as a Hugging Face folder, one parameter at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "aliquot/checkpoint/hf_folder.h"
#include "aliquot/models/model.h"

namespace aliquot {

/// The whole value of a parameter, of any floating dtype: itself, or what an engine gathers for its name.
using ParameterValue = std::function<at::Tensor(const std::string& name)>;

/// Writes config.json and the weights in the parameters' dtypes, a tied head once. `value` is asked for every
/// parameter, one after the other in the same order on all ranks, so it may be collective; a rank without
/// `folder` writes nothing. Throws IoError.
void save_hf_weights(const LanguageModel& model, const std::optional<std::filesystem::path>& folder,
                     const ParameterValue& value, int64_t max_shard_bytes = kMaxShardBytes);

}  // namespace aliquot
