#include "aliquot/data/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "aliquot/data/text_source.h"
#include "aliquot/data/token_file.h"
#include "aliquot/error.h"

namespace aliquot {

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::pair<std::string_view, DataFormat>, 5> kFormats{
    {{"auto", DataFormat::automatic},
     {"text", DataFormat::text},
     {"llmc", DataFormat::llmc},
     {"nanogpt", DataFormat::nanogpt},
     {"megatron", DataFormat::megatron}}};

bool has_index(const fs::path& path) {
  return fs::exists(path.string() + ".idx");
}

std::unique_ptr<TokenSource> open_folder(const fs::path& folder, DataFormat format) {
  if (format == DataFormat::nanogpt || format == DataFormat::megatron)
    throw IoError(fmt::format("{} is a folder; with this data format give one file", folder.string()));
  const FolderListing listing = list_folder(folder);
  std::vector<fs::path> shards;
  for (const fs::path& file : listing.binary)
    if (file.extension() == ".bin" && (format == DataFormat::llmc || is_llmc(first_word(file))))
      shards.push_back(file);
  if (format == DataFormat::llmc) return open_llmc_shards(folder, shards);
  if (format == DataFormat::automatic && !shards.empty()) {
    if (listing.text.empty()) return open_llmc_shards(folder, shards);
    throw IoError(
        fmt::format("{} holds {} text and {} llm.c token files; choose with --data-format text or llmc",
                    folder.string(), listing.text.size(), shards.size()));
  }
  return open_text_folder(folder, listing);
}

DataFormat recognise(const fs::path& file) {
  const fs::path extension = file.extension();
  if (extension == ".idx" || (extension == ".bin" && has_index(fs::path(file).replace_extension())))
    return DataFormat::megatron;
  if (size_of_file(file) == 0)
    throw IoError(fmt::format("{} is empty; give a file with data in it", file.string()));
  const int32_t word = first_word(file);
  if (is_llmc(word)) return DataFormat::llmc;
  if (extension == ".bin")
    throw IoError(
        fmt::format("{}: {} at offset 0 is not llm.c's magic ({} or {}) and there is no {} beside it; for "
                    "headerless uint16 ids say --data-format nanogpt",
                    file.string(), word, kLlmcMagic16, kLlmcMagic32,
                    fs::path(file).replace_extension(".idx").filename().string()));
  return DataFormat::text;
}

}  // namespace

DataFormat parse_data_format(std::string_view name) {
  for (const auto& [known, format] : kFormats)
    if (known == name) return format;
  throw ConfigError(
      fmt::format("unknown data format \"{}\"; expected auto, text, llmc, nanogpt or megatron", name));
}

std::unique_ptr<TokenSource> open_tokens(const fs::path& path, DataFormat format) try {
  const bool by_name = format == DataFormat::automatic || format == DataFormat::megatron;
  if (by_name && !fs::exists(path) && has_index(path)) return open_megatron(path);
  if (!fs::exists(path))
    throw IoError(
        fmt::format("{} does not exist; give a text file, a folder of text, or a token file", path.string()));
  if (fs::is_directory(path)) return open_folder(path, format);
  if (!fs::is_regular_file(path))  // before anything opens it: opening a pipe would wait for its writer
    throw IoError(
        fmt::format("{} is neither a file nor a folder; give a text file, a folder of text, or a token file",
                    path.string()));
  switch (format == DataFormat::automatic ? recognise(path) : format) {
    case DataFormat::llmc:
      return open_llmc(path);
    case DataFormat::nanogpt:
      return open_nanogpt(path);
    case DataFormat::megatron:
      return open_megatron(path);
    default:
      return open_text_file(path);
  }
} catch (const fs::filesystem_error& error) {
  throw IoError(fmt::format("cannot examine {}: {}", path.string(), error.code().message()));
}

}  // namespace aliquot
