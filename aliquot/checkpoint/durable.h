// Files that are there whole or not at all, also after a power failure.
#pragma once

#include <filesystem>
#include <string_view>

namespace aliquot {

/// Gives `from`, whose contents are on the disk, the name `to` in the same folder, replacing what has it.
/// Throws IoError.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Replaces the file at `path`, by way of path + ".part". Throws IoError; the old file is then as it was.
void write_durably(const std::filesystem::path& path, std::string_view contents);

}  // namespace aliquot
