#include "aliquot/checkpoint/durable.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "aliquot/error.h"

namespace aliquot {
namespace {

bool put(int fd, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t n = ::write(fd, contents.data(), contents.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    contents.remove_prefix(static_cast<size_t>(n));
  }
  return fsync(fd) == 0;
}

}  // namespace

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw IoError(fmt::format("{}: cannot be given its name: {}", to.string(), std::strerror(errno)));
  }
  // The new name is in the folder's own data. Not every file system can sync a folder; the rename holds then
  // all the same.
  const std::filesystem::path folder = to.parent_path().empty() ? "." : to.parent_path();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

void write_durably(const std::filesystem::path& path, std::string_view contents) {
  const std::string temporary = path.string() + ".part";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) throw IoError(fmt::format("{}: cannot be created: {}", temporary, std::strerror(errno)));
  bool written = put(fd, contents);
  int error = errno;
  if (close(fd) != 0 && written) {
    written = false;
    error = errno;
  }
  if (!written) {
    unlink(temporary.c_str());
    throw IoError(fmt::format("{}: {} bytes cannot be written: {}", path.string(), contents.size(),
                              std::strerror(error)));
  }
  rename_durably(temporary, path);
}

}  // namespace aliquot
