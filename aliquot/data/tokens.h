// Where token ids come from: text taken as bytes, or a file of ids that another program wrote.
//
// A source is one long row of token ids that never lies whole in memory: a read touches only what it returns,
// and all ranks of a host share the page cache. Sources are immutable; several threads may read them at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace aliquot {

/// Text as bytes: ids 0-255 are the byte, 256 ends a document.
inline constexpr int64_t kDocumentEnd = 256;
inline constexpr int64_t kByteVocabulary = 257;

enum class DataFormat {
  automatic,  ///< decided by the file itself; what cannot be told apart is an error that says how to choose
  text,       ///< a file, or a folder of files, as bytes
  llmc,  ///< llm.c: 1,024 bytes of header, then uint16 or uint32 ids; a folder of them is read in path order
  nanogpt,  ///< nanoGPT: uint16 ids and nothing else
  megatron  ///< Megatron-LM: ids in NAME.bin, their dtype and documents in NAME.idx
};

/// "auto", "text", "llmc", "nanogpt", "megatron"; another name is a ConfigError that lists these.
DataFormat parse_data_format(std::string_view name);

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// The number of tokens.
  virtual int64_t size() const = 0;

  /// Copies tokens first … first + out.size() − 1. A file that shrank since it was opened is an IoError.
  virtual void read(int64_t first, std::span<int64_t> out) const = 0;

  /// 257 for text. Nothing for token files, whose tokenizer lies elsewhere: there every batch is checked.
  virtual std::optional<int64_t> vocab_size() const = 0;

  /// Where token `token` lies, for messages: "corpus/a.txt, byte 17".
  virtual std::string where(int64_t token) const = 0;

  /// The path it was opened by, for messages.
  virtual std::string name() const = 0;

  /// One line for the start-up summary: "text, 1832 files, 31.2 MB (12 binary files skipped)".
  virtual std::string describe() const = 0;

  /// Equal where names, sizes and format are: ranks compare it to see that all of them read the same data.
  virtual uint64_t fingerprint() const = 0;
};

/// Opens a file or a folder. Throws IoError, naming the file, the offset, what was expected there and what to
/// do, when it is missing, empty, truncated or not what `format` says.
///
/// `automatic` takes a file with llm.c's magic as llm.c's; NAME.bin beside NAME.idx (or the bare NAME,
/// Megatron's own way to say it) as Megatron's; other files without a NUL in their first 8,000 bytes (git's
/// rule) as text; a folder as text, or as llm.c shards if it holds those and no text. Headerless ids look
/// like any binary file: nanoGPT's are read only when `format` says so.
///
/// A text folder is read recursively, sorted by path, every regular file that is text; binary files, empty
/// files and names that begin with a dot are left out, the former two counted in describe(). Links to folders
/// are not followed.
std::unique_ptr<TokenSource> open_tokens(const std::filesystem::path& path,
                                         DataFormat format = DataFormat::automatic);

}  // namespace aliquot
