#include "aliquot/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "aliquot/checkpoint/hf_folder.h"
#include "aliquot/error.h"

namespace aliquot::test {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("aliquot-safetensors-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path file(const std::string& name = "model.safetensors") const { return folder_ / name; }

  // Two matrices, a vector of another dtype, an empty tensor and a scalar.
  std::vector<safetensors::TensorInfo> infos() const {
    return {{"b", "BF16", {3}},
            {"a.weight", "F32", {2, 3}},
            {"none", "F32", {0, 4}},
            {"scale", "F32", {}},
            {"experts", "F32", {2, 2, 2}}};
  }

  void write_all() const {
    safetensors::Writer writer(file(), infos());
    for (const size_t i : safetensors::file_order(infos())) {
      const auto info = infos()[i];
      std::vector<std::byte> bytes(static_cast<size_t>(info.bytes()),
                                   std::byte{static_cast<unsigned char>(i + 1)});
      writer.write(info.name, bytes.data(), bytes.size());
    }
    writer.finish();
  }

  std::string read() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void replace(const std::string& bytes) const { std::ofstream(file(), std::ios::binary) << bytes; }

  std::string problem() const {
    try {
      const safetensors::File f(file());
    } catch (const IoError& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(Safetensors, RoundTrip) {
  write_all();
  EXPECT_FALSE(fs::exists(file("model.safetensors.part")));
  const safetensors::File f(file());
  ASSERT_EQ(f.tensors().size(), infos().size());
  for (size_t i = 0; i < infos().size(); ++i) {
    const auto info = infos()[i];
    EXPECT_EQ(f.tensors().at(info.name).shape, info.shape);
    for (const std::byte b : f.data(info.name)) EXPECT_EQ(b, std::byte{static_cast<unsigned char>(i + 1)});
  }
  uint64_t header = 0;
  std::memcpy(&header, read().data(), 8);
  EXPECT_EQ(header % 8, 0U);
}

TEST_F(Safetensors, AWriterThatDoesNotFinishLeavesNothing) {
  { const safetensors::Writer writer(file(), infos()); }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Safetensors, EveryTruncationIsNamed) {
  write_all();
  const std::string whole = read();
  for (size_t n = 0; n < whole.size(); ++n) {
    replace(whole.substr(0, n));
    EXPECT_NE(problem().find("model.safetensors"), std::string::npos) << n << " bytes";
  }
  replace(whole + "x");
  EXPECT_NE(problem().find("truncated or damaged"), std::string::npos);
}

TEST_F(Safetensors, EveryChangedHeaderByteIsNamedOrHarmless) {
  write_all();
  const std::string whole = read();
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  for (size_t i = 0; i < 8 + header; ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x15);
    replace(changed);
    problem();  // whatever it says, it neither crashes nor reads beyond the file
  }
}

TEST_F(Safetensors, DuplicatesHolesAndUnknownDtypes) {
  const auto with_header = [&](std::string json, size_t data) {
    const uint64_t size = json.size();
    std::string bytes(reinterpret_cast<const char*>(&size), 8);
    replace(bytes + json + std::string(data, '\0'));
    return problem();
  };
  EXPECT_NE(
      with_header(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          4)
          .find("tensor a is listed twice"),
      std::string::npos);
  EXPECT_NE(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8)
                .find("a hole or an overlap"),
            std::string::npos);
  EXPECT_NE(with_header(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4).find("dtype F31"),
            std::string::npos);
  EXPECT_NE(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4).find("need 8"),
            std::string::npos);
  EXPECT_NE(with_header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4).find("negative"),
            std::string::npos);
  EXPECT_NE(with_header("[]", 0).find("no JSON object"), std::string::npos);
  fs::remove(file());
  EXPECT_NE(problem().find("cannot be opened"), std::string::npos);
}

TEST_F(Safetensors, AFullDiskIsNamedAndLeavesNoFile) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{4096, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  {
    const std::vector<safetensors::TensorInfo> big{{"big", "F32", {1 << 20}}};
    safetensors::Writer writer(file(), big);
    const std::vector<float> data(1 << 20);
    try {
      writer.write("big", data.data(), data.size() * 4);
    } catch (const IoError& e) {
      message = e.what();
    }
  }
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Safetensors, AFolderWithoutWeightsIsNamed) {
  EXPECT_THROW(HfFolder{folder_}, IoError);
  std::ofstream(folder_ / "model.safetensors.index.json")
      << R"({"weight_map": {"a": "model-1.safetensors"}})";
  try {
    const HfFolder folder(folder_);
    ADD_FAILURE();
  } catch (const IoError& e) {
    EXPECT_NE(std::string(e.what()).find("model-1.safetensors"), std::string::npos);
  }
}

}  // namespace
}  // namespace aliquot::test
