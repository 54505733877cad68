#include "aliquot/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "aliquot/data/permutation.h"
#include "aliquot/error.h"

namespace aliquot {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kLlmcHeader = 256 * sizeof(int32_t);
constexpr int32_t kLlmcEvalMagic = 20240522;

template <typename T>
void widen(const MappedFile& file, int64_t offset, std::span<int64_t> out) {
  std::vector<T> ids(out.size());
  file.copy(offset, std::as_writable_bytes(std::span(ids)));
  std::copy(ids.begin(), ids.end(), out.begin());
}

/// Several files one after the other.
class TokenShards final : public TokenSource {
 public:
  TokenShards(std::string name, std::vector<std::unique_ptr<TokenSource>> shards)
      : name_(std::move(name)), shards_(std::move(shards)) {
    for (const auto& shard : shards_) {
      first_.push_back(size_);
      size_ += shard->size();
    }
  }

  int64_t size() const override { return size_; }
  std::optional<int64_t> vocab_size() const override { return std::nullopt; }
  std::string name() const override { return name_; }

  void read(int64_t first, std::span<int64_t> out) const override {
    size_t shard = find(first);
    for (; !out.empty(); ++shard) {
      const int64_t begin = first - first_[shard];
      const auto count = std::min(out.size(), static_cast<size_t>(shards_[shard]->size() - begin));
      shards_[shard]->read(begin, out.first(count));
      out = out.subspan(count);
      first += static_cast<int64_t>(count);
    }
  }

  std::string where(int64_t token) const override {
    const size_t shard = find(token);
    return shards_[shard]->where(token - first_[shard]);
  }

  std::string describe() const override {
    return fmt::format("llm.c ids, {} shards, {} tokens", shards_.size(), size_);
  }

  uint64_t fingerprint() const override {
    uint64_t hash = mix64(shards_.size());
    for (const auto& shard : shards_) hash = mix64(hash ^ shard->fingerprint());
    return hash;
  }

 private:
  size_t find(int64_t token) const {
    check(token >= 0 && token < size_, "a token lies outside its source");
    return static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), token) - first_.begin()) - 1;
  }

  std::string name_;
  std::vector<std::unique_ptr<TokenSource>> shards_;
  std::vector<int64_t> first_;
  int64_t size_ = 0;
};

/// The header's int32 words 0 to 2: magic, version, token count.
std::array<int32_t, 3> read_llmc_header(const fs::path& path) {
  const int64_t bytes = size_of_file(path);
  if (bytes < kLlmcHeader)
    throw IoError(
        fmt::format("{} has {} bytes, an llm.c file begins with a header of {}; it is empty or truncated: "
                    "write it again",
                    path.string(), bytes, kLlmcHeader));
  std::array<int32_t, 3> words{};
  read_exactly(path, 0, std::as_writable_bytes(std::span(words)));
  return words;
}

void check_llmc_magic(const fs::path& path, int32_t magic, int32_t version) {
  if (magic == kLlmcEvalMagic)
    throw IoError(
        fmt::format("{} is an llm.c evaluation file (magic {} at offset 0): questions with answers, not text "
                    "to train on; give a file of tokens",
                    path.string(), magic));
  if (!is_llmc(magic))
    throw IoError(
        fmt::format("{}: {} at offset 0, but llm.c token files begin with {} (uint16) or {} (uint32); for "
                    "headerless uint16 ids say --data-format nanogpt",
                    path.string(), magic, kLlmcMagic16, kLlmcMagic32));
  const int32_t expected = magic == kLlmcMagic16 ? 1 : 7;
  if (version != expected)
    throw IoError(
        fmt::format("{}: version {} at offset 4, expected {} after magic {}; write it again with a current "
                    "llm.c",
                    path.string(), version, expected, magic));
}

}  // namespace

int64_t size_of(IdType type) {
  switch (type) {
    case IdType::u8:
    case IdType::i8:
      return 1;
    case IdType::u16:
    case IdType::i16:
      return 2;
    case IdType::u32:
    case IdType::i32:
      return 4;
    case IdType::i64:
      return 8;
  }
  throw InternalError("an unknown id type");
}

const char* name_of(IdType type) {
  switch (type) {
    case IdType::u8:
      return "uint8";
    case IdType::i8:
      return "int8";
    case IdType::u16:
      return "uint16";
    case IdType::i16:
      return "int16";
    case IdType::u32:
      return "uint32";
    case IdType::i32:
      return "int32";
    case IdType::i64:
      return "int64";
  }
  throw InternalError("an unknown id type");
}

TokenFile::TokenFile(std::string label, fs::path path, int64_t offset, int64_t count, IdType type)
    : label_(std::move(label)),
      file_(std::move(path), Access::random),
      offset_(offset),
      count_(count),
      type_(type) {
  check(offset_ + count_ * size_of(type_) <= file_.size(), "a token file is shorter than its tokens");
}

void TokenFile::read(int64_t first, std::span<int64_t> out) const {
  check(first >= 0 && first + static_cast<int64_t>(out.size()) <= count_, "tokens lie outside their source");
  const int64_t at = offset_ + first * size_of(type_);
  switch (type_) {
    case IdType::u8:
      return widen<uint8_t>(file_, at, out);
    case IdType::i8:
      return widen<int8_t>(file_, at, out);
    case IdType::u16:
      return widen<uint16_t>(file_, at, out);
    case IdType::i16:
      return widen<int16_t>(file_, at, out);
    case IdType::u32:
      return widen<uint32_t>(file_, at, out);
    case IdType::i32:
      return widen<int32_t>(file_, at, out);
    case IdType::i64:
      return widen<int64_t>(file_, at, out);
  }
}

std::string TokenFile::where(int64_t token) const {
  return fmt::format("{}, token {} (offset {})", file_.path().string(), token,
                     offset_ + token * size_of(type_));
}

std::string TokenFile::describe() const {
  return fmt::format("{}, {} tokens of {}", label_, count_, name_of(type_));
}

uint64_t TokenFile::fingerprint() const {
  uint64_t hash = mix64(static_cast<uint64_t>(file_.size()) ^ mix64(static_cast<uint64_t>(type_)));
  for (const char c : file_.path().filename().string()) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

int32_t first_word(const fs::path& path) {
  int32_t word = 0;
  return read_some(path, 0, std::as_writable_bytes(std::span(&word, 1))) == sizeof word ? word : 0;
}

std::unique_ptr<TokenSource> open_llmc(const fs::path& file) {
  const auto [magic, version, count] = read_llmc_header(file);
  check_llmc_magic(file, magic, version);
  if (count <= 0)
    throw IoError(fmt::format("{}: {} tokens by its header (offset 8), expected at least 1; write it again",
                              file.string(), count));
  const IdType type = magic == kLlmcMagic16 ? IdType::u16 : IdType::u32;
  const int64_t expected = kLlmcHeader + count * size_of(type), bytes = size_of_file(file);
  if (bytes != expected)
    throw IoError(fmt::format(
        "{}: its header (offset 8) says {} tokens, which take {} bytes, but the file has {}; it is "
        "{}: write it again",
        file.string(), count, expected, bytes, bytes < expected ? "truncated" : "too long"));
  return std::make_unique<TokenFile>("llm.c ids", file, kLlmcHeader, count, type);
}

std::unique_ptr<TokenSource> open_llmc_shards(const fs::path& folder, const std::vector<fs::path>& files) {
  if (files.empty()) throw IoError(fmt::format("{} holds no llm.c token file (*.bin)", folder.string()));
  std::vector<std::unique_ptr<TokenSource>> shards;
  shards.reserve(files.size());
  for (const fs::path& file : files) shards.push_back(open_llmc(file));
  return std::make_unique<TokenShards>(folder.string(), std::move(shards));
}

std::unique_ptr<TokenSource> open_nanogpt(const fs::path& file) {
  const int64_t bytes = size_of_file(file);
  if (bytes == 0) throw IoError(fmt::format("{} is empty; expected uint16 token ids", file.string()));
  if (bytes % 2 != 0)
    throw IoError(fmt::format(
        "{} has {} bytes, an odd number, but nanoGPT's ids take 2 each; it is truncated or another "
        "format",
        file.string(), bytes));
  if (const int32_t word = first_word(file); is_llmc(word))
    throw IoError(
        fmt::format("{} begins with llm.c's magic {}: its header would be read as tokens; say --data-format "
                    "llmc",
                    file.string(), word));
  return std::make_unique<TokenFile>("nanoGPT ids", file, 0, bytes / 2, IdType::u16);
}

}  // namespace aliquot
