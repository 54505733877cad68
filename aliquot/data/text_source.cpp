#include "aliquot/data/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "aliquot/data/file_io.h"
#include "aliquot/data/permutation.h"
#include "aliquot/error.h"

namespace aliquot {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBinaryProbe = 8000;  // git's FIRST_FEW_BYTES

/// Files are opened at each read rather than mapped: a corpus may have more files than a process may have
/// mappings (65,530 by default), and a window costs some ten microseconds this way.
class TextSource final : public TokenSource {
 public:
  TextSource(std::string name, std::vector<fs::path> files, std::string left_out)
      : name_(std::move(name)), left_out_(std::move(left_out)) {
    for (fs::path& file : files) {
      const int64_t bytes = size_of_file(file);
      if (bytes == 0) continue;
      documents_.push_back({std::move(file), size_, bytes});
      size_ += bytes + 1;
    }
  }

  int64_t size() const override { return size_; }
  std::optional<int64_t> vocab_size() const override { return kByteVocabulary; }
  std::string name() const override { return name_; }
  void read(int64_t first, std::span<int64_t> out) const override;
  std::string where(int64_t token) const override;
  std::string describe() const override;
  uint64_t fingerprint() const override;

 private:
  struct Document {
    fs::path path;
    int64_t first;  // its first token
    int64_t bytes;  // its document end is token first + bytes
  };

  /// The document that `token` lies in.
  std::vector<Document>::const_iterator find(int64_t token) const {
    check(token >= 0 && token < size_, "a token lies outside its source");
    const auto after = [](int64_t t, const Document& d) { return t < d.first; };
    return std::upper_bound(documents_.begin(), documents_.end(), token, after) - 1;
  }

  std::string name_, left_out_;
  std::vector<Document> documents_;
  int64_t size_ = 0;
};

void TextSource::read(int64_t first, std::span<int64_t> out) const {
  std::vector<std::byte> bytes;
  auto document = find(first);
  for (size_t done = 0; done < out.size(); ++document) {
    const int64_t offset = first + static_cast<int64_t>(done) - document->first;
    bytes.resize(std::min(out.size() - done, static_cast<size_t>(document->bytes - offset)));
    if (!bytes.empty()) read_exactly(document->path, offset, bytes);
    std::transform(bytes.begin(), bytes.end(), out.begin() + static_cast<int64_t>(done),
                   [](std::byte b) { return std::to_integer<int64_t>(b); });
    done += bytes.size();
    if (done < out.size()) out[done++] = kDocumentEnd;
  }
}

std::string TextSource::where(int64_t token) const {
  const auto document = find(token);
  return fmt::format("{}, byte {}", document->path.string(), token - document->first);
}

std::string TextSource::describe() const {
  const auto count = static_cast<int64_t>(documents_.size());
  return fmt::format("text, {} {}, {:.2f} MB as bytes{}", count, count == 1 ? "file" : "files",
                     static_cast<double>(size_ - count) / 1e6, left_out_);
}

uint64_t TextSource::fingerprint() const {
  uint64_t hash = mix64(documents_.size());
  for (const Document& document : documents_) {
    hash = mix64(hash ^ static_cast<uint64_t>(document.bytes));
    for (const char c : document.path.filename().string()) hash = mix64(hash ^ static_cast<unsigned char>(c));
  }
  return hash;
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

}  // namespace

bool is_binary(const fs::path& file) {
  std::array<std::byte, kBinaryProbe> head;
  const size_t count = read_some(file, 0, head);
  return std::find(head.begin(), head.begin() + count, std::byte{0}) != head.begin() + count;
}

FolderListing list_folder(const fs::path& folder) {
  FolderListing listing;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (is_hidden(entry->path())) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code dangling;
    if (!entry->is_regular_file(dangling)) continue;
    if (size_of_file(entry->path()) == 0)
      ++listing.empty;
    else
      (is_binary(entry->path()) ? listing.binary : listing.text).push_back(entry->path());
  }
  if (error) throw IoError(fmt::format("cannot list {}: {}", folder.string(), error.message()));
  std::sort(listing.text.begin(), listing.text.end());
  std::sort(listing.binary.begin(), listing.binary.end());
  return listing;
}

std::unique_ptr<TokenSource> open_text_file(const fs::path& file) {
  if (size_of_file(file) == 0)
    throw IoError(fmt::format("{} is empty; give a file with text in it", file.string()));
  if (is_binary(file))
    throw IoError(
        fmt::format("{} is not text: it holds a NUL byte; for token files say --data-format llmc, nanogpt or "
                    "megatron",
                    file.string()));
  return std::make_unique<TextSource>(file.string(), std::vector{file}, "");
}

std::unique_ptr<TokenSource> open_text_folder(const fs::path& folder, const FolderListing& listing) {
  if (listing.text.empty())
    throw IoError(
        fmt::format("{} holds no text file ({} binary, {} empty); give a folder with text, or name a token "
                    "file",
                    folder.string(), listing.binary.size(), listing.empty));
  const std::string left_out =
      listing.binary.empty() && listing.empty == 0
          ? ""
          : fmt::format(" ({} binary and {} empty files left out)", listing.binary.size(), listing.empty);
  return std::make_unique<TextSource>(folder.string(), listing.text, left_out);
}

}  // namespace aliquot
