// Linux control groups, of both versions, as far as they limit this process.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace aliquot {

/// The folders whose limits hold for this process under `controller` ("cpu", "memory"), from its own group up
/// to the root. A container may see fewer than there are; none of them need exist.
std::vector<std::filesystem::path> control_groups(std::string_view controller);

/// The first line of a file; empty if it cannot be read.
std::string first_line(const std::filesystem::path& path);

}  // namespace aliquot
