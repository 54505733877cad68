// A model's values from a Hugging Face folder, one tensor at a time.
#pragma once

#include <filesystem>

#include "aliquot/checkpoint/hf_folder.h"
#include "aliquot/models/model.h"

namespace aliquot {

/// Copies the folder's weights into `model`, converting between floating dtypes. A tied head in the file is
/// accepted if the model ties it. Throws IoError if a parameter is missing or of another shape; tensors the
/// model does not have are reported.
LoadReport load_hf_weights(LanguageModel& model, const std::filesystem::path& folder);

}  // namespace aliquot
