// Megatron-LM's indexed data set: ids in NAME.bin, one sequence after the other, and an index in NAME.idx:
//
//   "MMIDIDX\0\0", u64 version = 1, u8 dtype, u64 sequences, u64 documents + 1 (18 + 16 = 34 bytes,
//   little-endian), then i32 lengths[sequences], i64 pointers[sequences] (bytes into NAME.bin), i64
//   document_indices[documents + 1].
//
// The sequences are read as one stream, so the pointers must say that they follow each other without a gap,
// as every Megatron tool writes them; the whole index is checked here, since a wrong one would be silently
// wrong text later.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "aliquot/data/token_file.h"
#include "aliquot/error.h"

namespace aliquot {

namespace fs = std::filesystem;

namespace {

constexpr std::array<char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr int64_t kVersionAt = 9, kDtypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26, kArraysAt = 34;

/// Megatron's DType codes; 6 and 7 are floating point.
std::optional<IdType> id_type(uint8_t code) {
  switch (code) {
    case 1:
      return IdType::u8;
    case 2:
      return IdType::i8;
    case 3:
      return IdType::i16;
    case 4:
      return IdType::i32;
    case 5:
      return IdType::i64;
    case 8:
      return IdType::u16;
    default:
      return std::nullopt;
  }
}

template <typename... Args>
[[noreturn]] void fail(const MappedFile& index, int64_t offset, fmt::format_string<Args...> format,
                       Args&&... args) {
  throw IoError(fmt::format("{}, offset {}: {}; make the data set again with Megatron's preprocess_data.py",
                            index.path().string(), offset, fmt::format(format, std::forward<Args>(args)...)));
}

struct Index {
  IdType type;
  int64_t sequences, document_indices;
};

Index read_header(const MappedFile& index) {
  if (index.size() < kArraysAt)
    fail(index, 0, "{} bytes, but the header alone takes {}: truncated", index.size(), kArraysAt);
  if (index.read<std::array<char, 9>>(0) != kMagic) fail(index, 0, "the magic \"MMIDIDX\" is missing");
  if (const auto version = index.read<uint64_t>(kVersionAt); version != 1)
    fail(index, kVersionAt, "version {}, expected 1", version);
  const auto code = index.read<uint8_t>(kDtypeAt);
  const auto type = id_type(code);
  if (!type) fail(index, kDtypeAt, "dtype code {}, expected an integer's (1-5 or 8)", code);
  const auto sequences = index.read<uint64_t>(kSequencesAt), documents = index.read<uint64_t>(kDocumentsAt);
  // Compared by division first: a corrupt count must not overflow the product.
  const auto room = static_cast<uint64_t>(index.size() - kArraysAt);
  if (sequences == 0 || sequences > room / 12)
    fail(index, kSequencesAt, "{} sequences, expected 1 to {} in an index of {} bytes", sequences, room / 12,
         index.size());
  const uint64_t left = room - sequences * 12;
  if (documents > left / 8 || left != documents * 8) {
    const bool modes = documents <= left / 8 && left == documents * 8 + sequences;
    fail(index, kDocumentsAt,
         "{} sequences and {} document indices leave {} bytes for the latter, which take {}{}", sequences,
         documents, left, documents * 8,
         modes ? ": it has multimodal modes, which are not supported since only text can be trained on" : "");
  }
  return {*type, static_cast<int64_t>(sequences), static_cast<int64_t>(documents)};
}

constexpr int64_t kPiece = 1 << 16;  // values looked at at once: a large index has hundreds of millions

/// Values first … first + kPiece − 1, or to the end, of the array of `count` at `offset`.
template <typename T>
std::vector<T> read_piece(const MappedFile& index, int64_t offset, int64_t first, int64_t count) {
  std::vector<T> piece(static_cast<size_t>(std::min(kPiece, count - first)));
  index.copy(offset + first * static_cast<int64_t>(sizeof(T)), std::as_writable_bytes(std::span(piece)));
  return piece;
}

/// The bytes of all sequences, after a look at every length and pointer.
int64_t check_sequences(const MappedFile& index, const Index& header) {
  const int64_t lengths_at = kArraysAt, pointers_at = kArraysAt + header.sequences * 4;
  int64_t end = 0;
  for (int64_t first = 0; first < header.sequences; first += kPiece) {
    const auto lengths = read_piece<int32_t>(index, lengths_at, first, header.sequences);
    const auto pointers = read_piece<int64_t>(index, pointers_at, first, header.sequences);
    for (size_t j = 0; j < lengths.size(); ++j) {
      const int64_t i = first + static_cast<int64_t>(j);
      if (lengths[j] < 0) fail(index, lengths_at + i * 4, "sequence {} has length {}", i, lengths[j]);
      if (pointers[j] != end)
        fail(index, pointers_at + i * 8,
             "sequence {} begins at byte {} of the .bin, expected {}, the end of the one "
             "before",
             i, pointers[j], end);
      end += lengths[j] * size_of(header.type);
    }
  }
  return end;
}

void check_documents(const MappedFile& index, const Index& header) {
  const int64_t at = kArraysAt + header.sequences * 12;
  int64_t previous = 0;
  for (int64_t first = 0; first < header.document_indices; first += kPiece) {
    int64_t i = first;
    for (const int64_t sequence : read_piece<int64_t>(index, at, first, header.document_indices)) {
      const int64_t most = i == 0 ? 0 : header.sequences;
      if (sequence < previous || sequence > most)
        fail(index, at + i * 8, "document {} begins at sequence {}, expected {} to {}", i, sequence, previous,
             most);
      previous = sequence;
      ++i;
    }
  }
}

/// NAME of NAME.bin or NAME.idx.
fs::path stem_of(const fs::path& path) {
  return path.extension() == ".bin" || path.extension() == ".idx" ? fs::path(path).replace_extension() : path;
}

}  // namespace

std::unique_ptr<TokenSource> open_megatron(const fs::path& path) {
  const fs::path stem = stem_of(path), bin = stem.string() + ".bin", idx = stem.string() + ".idx";
  for (const fs::path& part : {bin, idx})
    if (!fs::exists(part))
      throw IoError(fmt::format("{} does not exist; a Megatron data set is {}.bin and {}.idx", part.string(),
                                stem.filename().string(), stem.filename().string()));
  const MappedFile index(idx, Access::sequential);
  const Index header = read_header(index);
  const int64_t expected = check_sequences(index, header), bytes = size_of_file(bin);
  const int64_t tokens = expected / size_of(header.type);
  check_documents(index, header);
  if (bytes != expected)
    throw IoError(fmt::format(
        "{} has {} bytes, but {} describes {} tokens of {}, {} bytes; one of the two is truncated or "
        "of another data set",
        bin.string(), bytes, idx.filename().string(), tokens, name_of(header.type), expected));
  if (tokens == 0) throw IoError(fmt::format("{} describes no token at all", idx.string()));
  return std::make_unique<TokenFile>("Megatron ids", bin, 0, tokens, header.type);
}

}  // namespace aliquot
