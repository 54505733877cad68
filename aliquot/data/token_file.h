// Files of token ids as llm.c, nanoGPT and Megatron-LM write them (internal; users call open_tokens).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "aliquot/data/file_io.h"
#include "aliquot/data/tokens.h"

namespace aliquot {

/// The integer an id is stored as, little-endian.
enum class IdType { u8, i8, u16, i16, u32, i32, i64 };

int64_t size_of(IdType type);
const char* name_of(IdType type);

/// `count` ids of `type` from byte `offset` of a mapped file.
class TokenFile final : public TokenSource {
 public:
  /// `label` begins describe(): "llm.c ids". The caller has checked that the file is long enough.
  TokenFile(std::string label, std::filesystem::path path, int64_t offset, int64_t count, IdType type);

  int64_t size() const override { return count_; }
  void read(int64_t first, std::span<int64_t> out) const override;
  std::optional<int64_t> vocab_size() const override { return std::nullopt; }
  std::string where(int64_t token) const override;
  std::string name() const override { return file_.path().string(); }
  std::string describe() const override;
  uint64_t fingerprint() const override;

 private:
  std::string label_;
  MappedFile file_;
  int64_t offset_, count_;
  IdType type_;
};

/// llm.c's first word of a file of uint16 (GPT-2) or uint32 (Llama 3) ids.
inline constexpr int32_t kLlmcMagic16 = 20240520, kLlmcMagic32 = 20240801;

/// The first little-endian int32 of a file, 0 when it is shorter.
int32_t first_word(const std::filesystem::path& path);
inline bool is_llmc(int32_t word) {
  return word == kLlmcMagic16 || word == kLlmcMagic32;
}

std::unique_ptr<TokenSource> open_llmc(const std::filesystem::path& file);
/// The shards of a folder as one source, in the order given.
std::unique_ptr<TokenSource> open_llmc_shards(const std::filesystem::path& folder,
                                              const std::vector<std::filesystem::path>& files);
std::unique_ptr<TokenSource> open_nanogpt(const std::filesystem::path& file);
/// `path` is NAME.bin, NAME.idx or NAME.
std::unique_ptr<TokenSource> open_megatron(const std::filesystem::path& path);

}  // namespace aliquot
