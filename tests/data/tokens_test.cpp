#include "aliquot/data/tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "aliquot/data/sampler.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A folder of its own for each test, removed at its end.
class Tokens : public testing::Test {
 protected:
  Tokens() {
    std::string pattern = (fs::temp_directory_path() / "aliquot-data-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Tokens() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& contents) {
    fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }

  fs::path write_llmc(const std::string& name, int32_t magic, int32_t version, int32_t count,
                      const std::string& ids) {
    std::vector<int32_t> header(256);
    header[0] = magic, header[1] = version, header[2] = count;
    return write(name, bytes_of(header) + ids);
  }

  /// The message of the IoError that opening (and reading all of) a path throws, with the folder's name left
  /// out.
  std::string error_of(const fs::path& path, DataFormat format = DataFormat::automatic) {
    try {
      read_all(*open_tokens(path, format));
    } catch (const IoError& error) {
      std::string text = error.what();
      for (size_t at; (at = text.find(folder_.string() + "/")) != std::string::npos;)
        text.erase(at, folder_.string().size() + 1);
      return text;
    }
    return "nothing was thrown";
  }

  static std::vector<int64_t> read_all(const TokenSource& source) {
    std::vector<int64_t> tokens(static_cast<size_t>(source.size()));
    source.read(0, tokens);
    return tokens;
  }

  fs::path folder_;
};

constexpr int64_t E = kDocumentEnd;

TEST_F(Tokens, TextIsBytesAndADocumentEnd) {
  const auto source = open_tokens(write("a.txt", "h\xc3\xa9!"));
  EXPECT_EQ(read_all(*source), (std::vector<int64_t>{'h', 0xc3, 0xa9, '!', E}));
  EXPECT_EQ(source->vocab_size(), 257);
  EXPECT_EQ(source->where(2), (folder_ / "a.txt").string() + ", byte 2");
  EXPECT_EQ(source->describe(), "text, 1 file, 0.00 MB as bytes");
}

TEST_F(Tokens, FolderIsReadRecursivelyInPathOrder) {
  write("b.txt", "B");
  write("a/z.py", "AZ");
  write("a/b/c.md", "C");
  write("none.txt", "");
  write("picture.png", std::string("\x89PNG\0", 5));
  write(".git/config", "hidden");
  fs::create_symlink(folder_ / "missing", folder_ / "dangling");
  fs::create_directory_symlink(folder_, folder_ / "loop");
  const auto source = open_tokens(folder_);
  EXPECT_EQ(read_all(*source), (std::vector<int64_t>{'C', E, 'A', 'Z', E, 'B', E}));
  EXPECT_EQ(source->where(3), (folder_ / "a/z.py").string() + ", byte 1");
  EXPECT_EQ(source->describe(), "text, 3 files, 0.00 MB as bytes (1 binary and 1 empty files left out)");
}

TEST_F(Tokens, FingerprintKnowsNamesAndSizes) {
  write("x/a.txt", "one");
  write("y/a.txt", "two");
  write("z/b.txt", "one");
  write("w/a.txt", "four");
  const auto print = [this](const char* name) { return open_tokens(folder_ / name)->fingerprint(); };
  EXPECT_EQ(print("x"), print("y"));
  EXPECT_NE(print("x"), print("z"));
  EXPECT_NE(print("x"), print("w"));
}

TEST_F(Tokens, ReadsAnyPieceOfAFolder) {
  std::vector<int64_t> expected;
  for (int i = 0; i < 20; ++i) {
    const std::string text(static_cast<size_t>(1 + i * 7 % 11), static_cast<char>('a' + i));
    write(fmt::format("{:02}.txt", i), text);
    expected.insert(expected.end(), text.begin(), text.end());
    expected.push_back(E);
  }
  const auto source = open_tokens(folder_);
  ASSERT_EQ(read_all(*source), expected);
  EXPECT_TRUE(rc::check([&] {
    const auto first = *rc::gen::inRange<size_t>(0, expected.size());
    const auto count = *rc::gen::inRange<size_t>(0, expected.size() - first + 1);
    std::vector<int64_t> piece(count);
    source->read(static_cast<int64_t>(first), piece);
    RC_ASSERT(std::equal(piece.begin(), piece.end(), expected.begin() + static_cast<int64_t>(first)));
  }));
}

TEST_F(Tokens, TextThatCannotBeRead) {
  EXPECT_EQ(error_of(folder_ / "no.txt"),
            "no.txt does not exist; give a text file, a folder of text, or a token file");
  EXPECT_EQ(error_of(write("empty.txt", "")), "empty.txt is empty; give a file with data in it");
  EXPECT_EQ(error_of(write("empty.txt", ""), DataFormat::text),
            "empty.txt is empty; give a file with text in it");
  EXPECT_EQ(
      error_of(write("x.npy", std::string("\x93NUMPY\0", 7))),
      "x.npy is not text: it holds a NUL byte; for token files say --data-format llmc, nanogpt or megatron");
  write("folder/x.pyc", std::string("\0\0", 2));
  write("folder/none", "");
  EXPECT_EQ(error_of(folder_ / "folder"),
            "folder holds no text file (1 binary, 1 empty); give a folder with text, or name a token file");
  fs::create_symlink("round", folder_ / "round");
  EXPECT_EQ(error_of(folder_ / "round"), "cannot examine round: Too many levels of symbolic links");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder_ / "pipe"),
            "pipe is neither a file nor a folder; give a text file, a folder of text, or a token file");
}

TEST_F(Tokens, FilesThatShrinkWhileInUse) {
  const fs::path text = write("a.txt", std::string(100, 'a'));
  const auto source = open_tokens(text);
  fs::resize_file(text, 40);
  std::vector<int64_t> tokens(50);
  try {
    source->read(10, tokens);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(std::string(error.what()), text.string() +
                                             ": 50 bytes were expected at offset 10, but the file now ends "
                                             "at 40; it was changed after it was opened");
  }
  const fs::path ids = write("a.bin", std::string(100'000, 'a'));
  const auto mapped = open_tokens(ids, DataFormat::nanogpt);
  fs::resize_file(ids, 0);
  EXPECT_THROW(mapped->read(40'000, tokens), IoError);
}

TEST_F(Tokens, Llmc) {
  const std::vector<uint16_t> small{0, 50256, 65535, 7};
  const std::vector<uint32_t> large{0, 128255, 70000};
  EXPECT_EQ(read_all(*open_tokens(write_llmc("s.bin", 20240520, 1, 4, bytes_of(small)))),
            (std::vector<int64_t>{0, 50256, 65535, 7}));
  const auto source = open_tokens(write_llmc("l.bin", 20240801, 7, 3, bytes_of(large)));
  EXPECT_EQ(read_all(*source), (std::vector<int64_t>{0, 128255, 70000}));
  EXPECT_EQ(source->where(2), (folder_ / "l.bin").string() + ", token 2 (offset 1032)");
  EXPECT_EQ(source->describe(), "llm.c ids, 3 tokens of uint32");
  EXPECT_EQ(source->vocab_size(), std::nullopt);
}

TEST_F(Tokens, LlmcShardsOfAFolder) {
  write_llmc("train_000002.bin", 20240520, 1, 2, bytes_of(std::vector<uint16_t>{5, 6}));
  write_llmc("train_000001.bin", 20240520, 1, 3, bytes_of(std::vector<uint16_t>{1, 2, 3}));
  const auto source = open_tokens(folder_);
  EXPECT_EQ(read_all(*source), (std::vector<int64_t>{1, 2, 3, 5, 6}));
  EXPECT_EQ(source->where(3), (folder_ / "train_000002.bin").string() + ", token 0 (offset 1024)");
  std::vector<int64_t> piece(2);
  source->read(2, piece);
  EXPECT_EQ(piece, (std::vector<int64_t>{3, 5}));
  write("README.md", "about these");
  EXPECT_NE(
      error_of(folder_).find("holds 1 text and 2 llm.c token files; choose with --data-format text or llmc"),
      std::string::npos);
  EXPECT_EQ(open_tokens(folder_, DataFormat::llmc)->size(), 5);
  EXPECT_EQ(open_tokens(folder_, DataFormat::text)->size(), 12);
}

TEST_F(Tokens, LlmcThatIsWrong) {
  const std::string ids = bytes_of(std::vector<uint16_t>{1, 2, 3, 4});
  EXPECT_EQ(error_of(write_llmc("a.bin", 20240520, 1, 5, ids)),
            "a.bin: its header (offset 8) says 5 tokens, which take 1034 bytes, but the file has 1032; it is "
            "truncated: "
            "write it again");
  EXPECT_EQ(error_of(write_llmc("a.bin", 20240520, 1, 3, ids)),
            "a.bin: its header (offset 8) says 3 tokens, which take 1030 bytes, but the file has 1032; it is "
            "too long: "
            "write it again");
  EXPECT_EQ(error_of(write_llmc("a.bin", 20240520, 1, 0, "")),
            "a.bin: 0 tokens by its header (offset 8), expected at least 1; write it again");
  EXPECT_EQ(
      error_of(write_llmc("a.bin", 20240801, 1, 2, ids)),
      "a.bin: version 1 at offset 4, expected 7 after magic 20240801; write it again with a current llm.c");
  EXPECT_EQ(error_of(write_llmc("a.bin", 1234, 1, 4, ids)),
            "a.bin: 1234 at offset 0 is not llm.c's magic (20240520 or 20240801) and there is no a.idx "
            "beside it; for "
            "headerless uint16 ids say --data-format nanogpt");
  EXPECT_EQ(
      error_of(write_llmc("a.bin", 1234, 1, 4, ids), DataFormat::llmc),
      "a.bin: 1234 at offset 0, but llm.c token files begin with 20240520 (uint16) or 20240801 (uint32); for "
      "headerless uint16 ids say --data-format nanogpt");
  EXPECT_EQ(error_of(write_llmc("a.bin", 20240522, 1, 4, ids), DataFormat::llmc),
            "a.bin is an llm.c evaluation file (magic 20240522 at offset 0): questions with answers, not "
            "text to train "
            "on; give a file of tokens");
  EXPECT_EQ(error_of(write("a.bin", bytes_of(std::vector<int32_t>{20240520, 1, 4}))),
            "a.bin has 12 bytes, an llm.c file begins with a header of 1024; it is empty or truncated: write "
            "it again");
  EXPECT_EQ(error_of(write("a.bin", "")), "a.bin is empty; give a file with data in it");
  fs::create_directory(folder_ / "none");
  EXPECT_EQ(error_of(folder_ / "none", DataFormat::llmc), "none holds no llm.c token file (*.bin)");
}

TEST_F(Tokens, NanoGpt) {
  const auto source =
      open_tokens(write("a.bin", bytes_of(std::vector<uint16_t>{50256, 0, 1})), DataFormat::nanogpt);
  EXPECT_EQ(read_all(*source), (std::vector<int64_t>{50256, 0, 1}));
  EXPECT_EQ(source->describe(), "nanoGPT ids, 3 tokens of uint16");
  EXPECT_EQ(
      error_of(write("a.bin", "abc"), DataFormat::nanogpt),
      "a.bin has 3 bytes, an odd number, but nanoGPT's ids take 2 each; it is truncated or another format");
  EXPECT_EQ(error_of(write("a.bin", ""), DataFormat::nanogpt), "a.bin is empty; expected uint16 token ids");
  EXPECT_EQ(
      error_of(write_llmc("a.bin", 20240520, 1, 1, "ab"), DataFormat::nanogpt),
      "a.bin begins with llm.c's magic 20240520: its header would be read as tokens; say --data-format llmc");
  EXPECT_NE(error_of(folder_, DataFormat::nanogpt).find("is a folder; with this data format give one file"),
            std::string::npos);
}

/// An index of Megatron's as a value that tests can spoil.
struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t dtype = 8;
  std::vector<int32_t> lengths{3, 2};
  std::vector<int64_t> pointers{0, 6}, documents{0, 1, 2};

  std::string bytes() const {
    return magic + bytes_of(std::vector{version}) + bytes_of(std::vector{dtype}) +
           bytes_of(std::vector<uint64_t>{lengths.size(), documents.size()}) + bytes_of(lengths) +
           bytes_of(pointers) + bytes_of(documents);
  }
};

class Megatron : public Tokens {
 protected:
  std::string error_with(const Index& index, const std::string& extra = "") {
    write("d.bin", bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 5}));
    return error_of(write("d.idx", index.bytes() + extra));
  }
};

TEST_F(Megatron, IsReadByAnyOfItsNames) {
  write("d_text_document.bin", bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 50256}));
  write("d_text_document.idx", Index().bytes());
  for (const char* name : {"d_text_document", "d_text_document.bin", "d_text_document.idx"})
    EXPECT_EQ(read_all(*open_tokens(folder_ / name)), (std::vector<int64_t>{1, 2, 3, 4, 50256})) << name;
  EXPECT_EQ(open_tokens(folder_ / "d_text_document")->describe(), "Megatron ids, 5 tokens of uint16");
}

template <typename T>
std::vector<T> five() {
  return {1, 2, 3, 4, 127};
}

TEST_F(Megatron, EveryIntegerType) {
  const std::vector<std::pair<uint8_t, std::string>> types{
      {1, bytes_of(five<uint8_t>())}, {2, bytes_of(five<int8_t>())},  {3, bytes_of(five<int16_t>())},
      {4, bytes_of(five<int32_t>())}, {5, bytes_of(five<int64_t>())}, {8, bytes_of(five<uint16_t>())}};
  for (const auto& [code, ids] : types) {
    Index index{.dtype = code};
    index.pointers[1] = static_cast<int64_t>(ids.size()) / 5 * 3;
    write("t.bin", ids);
    EXPECT_EQ(read_all(*open_tokens(write("t.idx", index.bytes()))), five<int64_t>()) << int{code};
  }
}

TEST_F(Megatron, ThatIsWrong) {
  const std::string again = "; make the data set again with Megatron's preprocess_data.py";
  EXPECT_EQ(error_with({.magic = std::string("MMIDIDY\0\0", 9)}),
            "d.idx, offset 0: the magic \"MMIDIDX\" is missing" + again);
  EXPECT_EQ(error_with({.version = 2}), "d.idx, offset 9: version 2, expected 1" + again);
  EXPECT_EQ(error_with({.dtype = 7}),
            "d.idx, offset 17: dtype code 7, expected an integer's (1-5 or 8)" + again);
  EXPECT_EQ(error_with({.lengths = {}, .pointers = {}, .documents = {0}}),
            "d.idx, offset 18: 0 sequences, expected 1 to 0 in an index of 42 bytes" + again);
  EXPECT_EQ(error_with({.lengths = {3, -2}}), "d.idx, offset 38: sequence 1 has length -2" + again);
  EXPECT_EQ(
      error_with({.pointers = {0, 8}}),
      "d.idx, offset 50: sequence 1 begins at byte 8 of the .bin, expected 6, the end of the one before" +
          again);
  EXPECT_EQ(
      error_with({.pointers = {0, -6}}),
      "d.idx, offset 50: sequence 1 begins at byte -6 of the .bin, expected 6, the end of the one before" +
          again);
  EXPECT_EQ(error_with({.documents = {0, 3}}),
            "d.idx, offset 66: document 1 begins at sequence 3, expected 0 to 2" + again);
  EXPECT_EQ(error_with({.documents = {1, 2}}),
            "d.idx, offset 58: document 0 begins at sequence 1, expected 0 to 0" + again);
  EXPECT_EQ(error_with({}, "modes"),
            "d.idx, offset 26: 2 sequences and 3 document indices leave 29 bytes for the "
            "latter, which take 24" +
                again);
  EXPECT_EQ(error_with({}, std::string(2, '\0')),
            "d.idx, offset 26: 2 sequences and 3 document indices leave 26 bytes for the latter, which take "
            "24: it has "
            "multimodal modes, which are not supported since only text can be trained on" +
                again);
  EXPECT_EQ(error_with({.lengths = {3, 3}}),
            "d.bin has 10 bytes, but d.idx describes 6 tokens of uint16, 12 bytes; one of the two is "
            "truncated or of "
            "another data set");
  EXPECT_EQ(error_of(write("d.idx", "MMIDIDX")),
            "d.idx, offset 0: 7 bytes, but the header alone takes 34: truncated" + again);
  fs::remove(folder_ / "d.bin");
  EXPECT_EQ(error_of(folder_ / "d.idx"), "d.bin does not exist; a Megatron data set is d.bin and d.idx");
}

// Every way to cut a file short, or to spoil one of its bytes, ends in tokens or in an IoError.
TEST_F(Megatron, NoSpoiledIndexCrashes) {
  write("d.bin", bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 5}));
  const std::string good = Index().bytes();
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(error_of(write("d.idx", good.substr(0, length))), "nothing was thrown") << length;
  for (size_t at = 0; at < good.size(); ++at)
    for (const int bits : {0x01, 0x80, 0xff}) {
      std::string spoiled = good;
      spoiled[at] = static_cast<char>(spoiled[at] ^ bits);
      error_of(write("d.idx", spoiled));
    }
}

TEST_F(Tokens, FormatsHaveNames) {
  EXPECT_EQ(parse_data_format("auto"), DataFormat::automatic);
  EXPECT_EQ(parse_data_format("nanogpt"), DataFormat::nanogpt);
  try {
    parse_data_format("parquet");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "unknown data format \"parquet\"; expected auto, text, llmc, nanogpt or megatron");
  }
}

TEST_F(Tokens, TextNeedsItsVocabulary) {
  const std::shared_ptr<TokenSource> source = open_tokens(write("a.txt", std::string(100, 'a')));
  const auto with_vocabulary = [&](int64_t size) {
    return Sampler(source, {.seq_len = 8, .train_batch = 1, .vocab_size = size});
  };
  EXPECT_NO_THROW(with_vocabulary(257));
  EXPECT_THROW(with_vocabulary(256), IoError);
}

TEST_F(Tokens, AnIdOutsideTheVocabularyNamesItsFile) {
  const std::shared_ptr<TokenSource> source =
      open_tokens(write_llmc("a.bin", 20240520, 1, 4, bytes_of(std::vector<uint16_t>{1, 2, 300, 4})));
  const Sampler sampler(source, {.seq_len = 3, .train_batch = 1, .vocab_size = 300, .eval_fraction = 0});
  std::vector<int64_t> ids(3), targets(3);
  try {
    sampler.fill(0, {}, ids, targets);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_TRUE(
        std::string(error.what())
            .starts_with((folder_ / "a.bin").string() +
                         ", token 2 (offset 1028): id 300 lies outside the model's vocabulary of 300"))
        << error.what();
  }
}

}  // namespace
}  // namespace aliquot
