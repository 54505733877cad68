// A model's values from a Hugging Face folder, one tensor at a time.
#pragma once

#include <filesystem>

#include "aliquot/checkpoint/hf_folder.h"
#include "aliquot/models/model.h"

namespace aliquot {

struct HfLoadOptions {
  bool allow_missing = false;  ///< parameters that the folder lacks keep their values
};

/// Copies the folder's weights into `model`, converting between floating dtypes. Call it before an engine
/// takes the model.
///
/// Accepted beside the model's own names: those without the head's prefix ("wte.weight"), as a model saved
/// without its head has; a tied head, if it equals the embedding, or in its place. Throws IoError if a
/// parameter is missing, of another shape or no floating point; tensors that the model does not have are
/// reported.
LoadReport load_hf_weights(LanguageModel& model, const std::filesystem::path& folder,
                           const HfLoadOptions& options = {});

}  // namespace aliquot
