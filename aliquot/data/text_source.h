// Text as bytes, from one file or a folder (internal to the folder; users call open_tokens).
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "aliquot/data/tokens.h"

namespace aliquot {

/// What a folder holds, by git's rule for text; sorted by path.
struct FolderListing {
  std::vector<std::filesystem::path> text, binary;
  int64_t empty = 0;  ///< regular files of zero bytes
};

FolderListing list_folder(const std::filesystem::path& folder);

/// Whether the first 8,000 bytes hold a NUL: what git and grep call a binary file.
bool is_binary(const std::filesystem::path& file);

std::unique_ptr<TokenSource> open_text_file(const std::filesystem::path& file);
std::unique_ptr<TokenSource> open_text_folder(const std::filesystem::path& folder,
                                              const FolderListing& listing);

}  // namespace aliquot
