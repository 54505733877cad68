// A file that only grows, by whole records: the form of everything a run writes while it runs.
//
// Training outlives its disk: a record that cannot be written is taken back whole, said once, and counted;
// later ones are tried again. So every record in the file is complete, whatever happened in between.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace aliquot {

/// Creates a folder and its parents, and writes and removes a small file in it. Throws IoError naming the
/// folder and the system's reason, so that a run which could not keep its results ends before it trains.
void prepare_output_folder(const std::filesystem::path& folder);

/// Replaces a file by `contents`, which is there whole or not at all. Throws IoError.
void replace_file(const std::filesystem::path& path, std::string_view contents);

class AppendFile {
 public:
  /// Opens a file, created if missing, to append to. Throws IoError.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Appends `record` whole and hands it to the system, or leaves the file as it was and returns false; the
  /// first time with a warning.
  bool append(std::string_view record);

  /// Shortens the file to its first `size` bytes.
  void truncate(int64_t size);

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }
  /// Records that could not be written.
  int64_t lost() const { return lost_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0, lost_ = 0;
};

}  // namespace aliquot
