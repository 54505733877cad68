#include "aliquot/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <random>
#include <vector>

#include "aliquot/error.h"
#include "tests/checkpoint/scratch.h"

namespace aliquot::test {
namespace {

namespace fs = std::filesystem;
using safetensors::TensorInfo;

// Two matrices, a vector of another dtype, an empty tensor, a scalar, a three-dimensional one.
std::vector<TensorInfo> infos() {
  return {{"b", "BF16", {3}},
          {"a.weight", "F32", {2, 3}},
          {"none", "F32", {0, 4}},
          {"scale", "F32", {}},
          {"experts", "F32", {2, 2, 2}}};
}

std::vector<std::byte> filled(const TensorInfo& info, size_t i) {
  return std::vector<std::byte>(static_cast<size_t>(info.bytes()),
                                std::byte{static_cast<unsigned char>(i + 1)});
}

void write_all(const fs::path& path) {
  safetensors::Writer writer(path, infos());
  for (const size_t i : safetensors::file_order(infos())) {
    const auto bytes = filled(infos()[i], i);
    writer.write(infos()[i].name, bytes.data(), bytes.size());
  }
  writer.finish();
}

std::string problem(const fs::path& path) {
  return message_of<IoError>([&] { const safetensors::File f(path); });
}

std::string with_header(const std::string& json, size_t data) {
  const uint64_t size = json.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + json + std::string(data, '\0');
}

TEST(Safetensors, RoundTrip) {
  const Scratch scratch;
  const fs::path path = scratch / "model.safetensors";
  write_all(path);
  EXPECT_FALSE(fs::exists(scratch / "model.safetensors.part"));
  const safetensors::File f(path);
  ASSERT_EQ(f.tensors().size(), infos().size());
  for (size_t i = 0; i < infos().size(); ++i) {
    const TensorInfo info = infos()[i];
    EXPECT_EQ(f.tensors().at(info.name).shape, info.shape);
    EXPECT_EQ(f.tensors().at(info.name).dtype, info.dtype);
    const auto data = f.data(info.name);
    EXPECT_EQ(data.size(), static_cast<size_t>(info.bytes()));
    for (const std::byte b : data) EXPECT_EQ(b, std::byte{static_cast<unsigned char>(i + 1)});
  }
  expect_says(message_of<IoError>([&] { (void)f.data("c"); }), "has no tensor c");
}

// Files of the reference implementation, read and written again, are the same byte for byte.
TEST(Safetensors, WritesWhatTheReferenceWrites) {
  const Scratch scratch;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(ALIQUOT_TEST_DATA) / "hf")) {
    if (entry.path().extension() != ".safetensors") continue;
    const safetensors::File original(entry.path());
    std::vector<TensorInfo> all;
    for (const auto& [name, info] : original.tensors()) all.push_back(info);
    const fs::path copy = scratch / entry.path().filename();
    safetensors::Writer writer(copy, all);
    for (const size_t i : safetensors::file_order(all)) {
      const auto bytes = original.data(all[i].name);
      writer.write(all[i].name, bytes.data(), bytes.size());
    }
    writer.finish();
    EXPECT_TRUE(read_file(copy) == read_file(entry.path())) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 8);
}

TEST(Safetensors, AWriterThatDoesNotFinishLeavesTheOldFile) {
  const Scratch scratch;
  const fs::path path = scratch / "model.safetensors";
  write_file(path, "old");
  {
    safetensors::Writer writer(path, infos());
    const auto bytes = filled(infos()[1], 1);
    writer.write("a.weight", bytes.data(), bytes.size());
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_FALSE(fs::exists(scratch / "model.safetensors.part"));
}

TEST(Safetensors, ATensorOutOfTurnOrOfAnotherSizeIsRefused) {
  const Scratch scratch;
  safetensors::Writer writer(scratch / "model.safetensors", infos());
  const std::vector<std::byte> bytes(64);
  EXPECT_THROW(writer.write("b", bytes.data(), 6), InternalError);
  EXPECT_THROW(writer.write("a.weight", bytes.data(), 23), InternalError);
  EXPECT_THROW(writer.finish(), InternalError);
  const std::vector<TensorInfo> twice{{"a", "F32", {1}}, {"a", "F32", {1}}}, unknown{{"a", "F31", {1}}};
  EXPECT_THROW(safetensors::Writer(scratch / "twice", twice), InternalError);
  EXPECT_THROW(safetensors::Writer(scratch / "unknown", unknown), InternalError);
}

TEST(Safetensors, EveryTruncationIsNamed) {
  const Scratch scratch;
  const fs::path path = scratch / "model.safetensors";
  write_all(path);
  const std::string whole = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  EXPECT_EQ(header % 8, 0U);
  for (size_t n = 0; n < whole.size(); ++n) {
    write_file(path, whole.substr(0, n));
    expect_says(problem(path), path.string());
    if (n >= 8 + header) expect_says(problem(path), "is truncated: tensor ");
  }
  // The last tensor in the file is the one that suffers.
  expect_says(problem(path), "tensor b ends at byte 66 of the data, of which there are 65");
  write_file(path, whole + "x");
  expect_says(problem(path), "has 1 bytes after its last tensor");
}

// Whatever such a file says, reading it neither crashes nor leaves the mapping.
TEST(Safetensors, AnyDamageToTheHeaderIsNamedOrHarmless) {
  const Scratch scratch;
  const fs::path path = scratch / "model.safetensors";
  write_all(path);
  const std::string whole = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    std::string changed = whole;
    for (unsigned k = 0; k < 1 + round % 4U; ++k)
      changed[random() % (8 + header)] = static_cast<char>(random());
    write_file(path, changed);
    try {
      const safetensors::File f(path);
      for (const auto& [name, info] : f.tensors()) {
        unsigned sum = 0;
        for (const std::byte b : f.data(name)) sum += std::to_integer<unsigned>(b);
        EXPECT_LE(sum, 255 * f.data(name).size());
      }
    } catch (const IoError& e) {
      expect_says(e.what(), path.string());
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(Safetensors, WrongHeadersAreNamed) {
  const Scratch scratch;
  const fs::path path = scratch / "model.safetensors";
  const auto says = [&](const std::string& json, size_t data, const std::string& part) {
    write_file(path, with_header(json, data));
    expect_says(problem(path), part);
  };
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"("a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const std::string good = entry("F32", "[1]", "[0,4]");
  write_file(path, with_header("{" + good + "}", 4));
  EXPECT_EQ(problem(path), "");

  says("{" + good + "," + good + "}", 4, "tensor a is listed twice");
  says("{" + entry("F32", "[1]", "[4,8]") + "}", 8, "tensor a begins at 4, expected 0: a hole or an overlap");
  says("{" + good + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6,
       "tensor b begins at 2, expected 4");
  says("{" + good + R"(,"b":{"dtype":"F32","shape":[0],"data_offsets":[9,9]}})", 9,
       "tensor b begins at 9, expected 4");
  says("{" + entry("F31", "[1]", "[0,4]") + "}", 4, "tensor a: dtype F31 is not supported");
  says("{" + entry("F4", "[8]", "[0,4]") + "}", 4, "dtype F4 is not supported");
  says("{" + entry("F32", "[2]", "[0,4]") + "}", 4,
       "data_offsets are [0, 4], but F32 of shape [2] needs 8 bytes");
  says("{" + entry("F32", "[4611686018427387904,4]", "[0,0]") + "}", 0, "needs too many bytes");
  says("{" + entry("F32", "[1]", "[4,0]") + "}", 4, "data_offsets are [4, 0]");
  const std::string numbers = "tensor a: expected \"dtype\", \"shape\" and \"data_offsets\"";
  says("{" + entry("F32", "[-1]", "[0,4]") + "}", 4, numbers);
  says("{" + entry("F32", "[1.5]", "[0,6]") + "}", 6, numbers);
  says("{" + entry("F32", "[true]", "[0,4]") + "}", 4, numbers);
  says("{" + entry("F32", "[1]", "[0,4,4]") + "}", 4, numbers);
  says("{" + entry("F32", "[1]", "[0]") + "}", 4, numbers);
  says("{" + entry("F32", "[1]", "[0,18446744073709551615]") + "}", 4, numbers);
  says(R"({"a":{"dtype":"F32","shape":[1]}})", 4, numbers);
  says(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, numbers);
  says(R"({"a":3})", 0, numbers);
  says(R"({"a":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}", 0, numbers);
  says("[]", 0, "does not begin with '{'");
  says("{\"a\":", 0, "is no JSON object");
  write_file(path, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  expect_says(problem(path), "its header claims 9223372036854775807 bytes, the file has 10");
  expect_says(problem(scratch.path()), "is no safetensors file");
  fs::remove(path);
  expect_says(problem(path), "cannot be opened: No such file");
}

TEST(Safetensors, AFullDiskIsNamedAndLeavesNoFile) {
  const Scratch scratch;
  signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{4096, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of<IoError>([&] {
    const std::vector<TensorInfo> big{{"big", "F32", {1 << 20}}};
    safetensors::Writer writer(scratch / "model.safetensors", big);
    const std::vector<float> data(1 << 20);
    writer.write("big", data.data(), data.size() * 4);
  });
  setrlimit(RLIMIT_FSIZE, &old);
  expect_says(message, (scratch / "model.safetensors").string() + ": cannot write big (");
  expect_says(message, " of its 4194304 bytes are missing): File too large");
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  // The kernel's own full disk.
  if (fs::exists("/dev/full")) {
    fs::create_symlink("/dev/full", scratch / "full.part");
    expect_says(message_of<IoError>([&] { write_all(scratch / "full"); }), "No space left on device");
  }
}

}  // namespace
}  // namespace aliquot::test
