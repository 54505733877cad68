#include "aliquot/observe/monitor.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>

#include "aliquot/error.h"
#include "aliquot/observe/csv_monitor.h"
#include "aliquot/observe/tensorboard.h"
#include "tests/observe/scratch.h"

namespace aliquot {
namespace {

namespace fs = std::filesystem;

/// An event file read by the formats' own descriptions, sharing nothing with the writer.
class EventFileReader {
 public:
  struct Event {
    double wall_time = 0;
    uint64_t step = 0;
    std::string version;
    std::map<std::string, float> values;
  };

  static std::vector<Event> read(std::string_view file) {
    std::vector<Event> events;
    while (!file.empty()) {
      const auto length = take<uint64_t>(file, 8);
      check_crc(file.data() - 8, 8, file);
      const std::string_view data = file.substr(0, length);
      file.remove_prefix(length);
      check_crc(data.data(), data.size(), file);
      events.push_back(event(data));
    }
    return events;
  }

 private:
  template <typename T>
  static T take(std::string_view& bytes, size_t size) {
    if (bytes.size() < size) throw std::runtime_error("truncated");
    T value{};
    std::memcpy(&value, bytes.data(), size);
    bytes.remove_prefix(size);
    return value;
  }

  static uint32_t crc32c(const char* data, size_t size) {
    uint32_t crc = ~0U;
    for (size_t i = 0; i < size; ++i) {
      crc ^= static_cast<unsigned char>(data[i]);
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82F63B78 & (0 - (crc & 1)));
    }
    return ~crc;
  }

  static void check_crc(const char* data, size_t size, std::string_view& rest) {
    const uint32_t crc = crc32c(data, size);
    const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
    if (take<uint32_t>(rest, 4) != masked) throw std::runtime_error("checksum");
  }

  static uint64_t varint(std::string_view& bytes) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = take<uint8_t>(bytes, 1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  static std::string_view block(std::string_view& bytes) {
    const uint64_t size = varint(bytes);
    if (bytes.size() < size) throw std::runtime_error("truncated");
    const std::string_view inside = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return inside;
  }

  static void value(std::string_view bytes, Event& event) {
    std::string tag;
    std::optional<float> number;
    while (!bytes.empty()) switch (varint(bytes)) {
        case 1 << 3 | 2:
          tag = block(bytes);
          break;
        case 2 << 3 | 5:
          number = take<float>(bytes, 4);
          break;
        default:
          throw std::runtime_error("unknown field of Value");
      }
    event.values[tag] = number.value();
  }

  static Event event(std::string_view bytes) {
    Event event;
    while (!bytes.empty()) switch (varint(bytes)) {
        case 1 << 3 | 1:
          event.wall_time = take<double>(bytes, 8);
          break;
        case 2 << 3 | 0:
          event.step = varint(bytes);
          break;
        case 3 << 3 | 2:
          event.version = block(bytes);
          break;
        case 5 << 3 | 2:
          for (std::string_view summary = block(bytes); !summary.empty();) {
            if (varint(summary) != (1 << 3 | 2)) throw std::runtime_error("unknown field of Summary");
            value(block(summary), event);
          }
          break;
        default:
          throw std::runtime_error("unknown field of Event");
      }
    return event;
  }
};

class MonitorTest : public Scratch {
 protected:
  static StepRecord record_of(int64_t step) {
    StepRecord record;
    record.step = step;
    record.samples = 1000 * step;
    record.loss = 1.0 / static_cast<double>(step);
    record.lr = 1e-3;
    record.loss_scale = 32768;
    record.ms = {{"forward", 10}, {"backward", 30}, {"reduce", 8}, {"update", 4}, {"publish", 1}};
    return record;
  }

  static std::map<std::string, double> events_of(const Config& config) {
    std::map<std::string, double> events;
    for (const MonitorEvent& event : monitor_events(record_of(2), config)) {
      EXPECT_EQ(event.samples, 2000);
      events[event.tag] = event.value;
    }
    return events;
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found(fs::directory_iterator(folder_), fs::directory_iterator{});
    std::sort(found.begin(), found.end());
    return found;
  }
};

TEST_F(MonitorTest, EventsAreDeepSpeeds) {
  Config config;
  EXPECT_EQ(events_of(config),
            (std::map<std::string, double>{{"Train/Samples/train_loss", 0.5}, {"Train/Samples/lr", 1e-3}}));
  config.fp16.enabled = true;
  config.wall_clock_breakdown = true;
  EXPECT_EQ(events_of(config),
            (std::map<std::string, double>{{"Train/Samples/train_loss", 0.5},
                                           {"Train/Samples/lr", 1e-3},
                                           {"Train/Samples/loss_scale", 32768},
                                           {"Train/Samples/elapsed_time_ms_forward", 10},
                                           {"Train/Samples/elapsed_time_ms_backward", 30},
                                           {"Train/Samples/elapsed_time_ms_backward_inner", 30},
                                           {"Train/Samples/elapsed_time_ms_backward_allreduce", 8},
                                           {"Train/Samples/elapsed_time_ms_step", 5}}));
  config.zero.stage = 2;
  EXPECT_EQ(events_of(config).at("Train/Samples/elapsed_time_ms_backward_inner"), 22);
  config.zero.overlap_comm = true;
  EXPECT_EQ(events_of(config).at("Train/Samples/elapsed_time_ms_backward_inner"), 30);
}

TEST_F(MonitorTest, FilesLieInOutputPathAndJobName) {
  Config config;
  EXPECT_TRUE(make_monitors(config).empty());
  config.tensorboard = {true, (folder_ / "tb").string(), "first job"};
  config.csv_monitor = {true, (folder_ / "csv").string(), "DeepSpeedJobName"};
  for (const auto& monitor : make_monitors(config)) monitor->write(monitor_events(record_of(1), config));
  EXPECT_EQ(read(folder_ / "csv/DeepSpeedJobName/Train_Samples_train_loss.csv"),
            "step,train_loss\r\n1000,1\r\n");
  ASSERT_EQ(std::distance(fs::directory_iterator(folder_ / "tb/first job"), {}), 1);
}

TEST_F(MonitorTest, AFolderThatCannotBeMadeIsAnErrorAtTheStart) {
  std::ofstream(folder_ / "file") << "in the way";
  Config config;
  config.csv_monitor = {true, (folder_ / "file").string(), "job"};
  EXPECT_THROW(make_monitors(config), IoError);
}

TEST_F(MonitorTest, CsvContinuesAfterARestart) {
  for (int64_t run = 0; run < 2; ++run)
    CsvMonitor(folder_).write({{"Train/Samples/lr", 0.001, 16 * run}, {"a b/loss c", HUGE_VAL, 16 * run}});
  EXPECT_EQ(files(), (std::vector{folder_ / "Train_Samples_lr.csv", folder_ / "a_b_loss_c.csv"}));
  EXPECT_EQ(read(folder_ / "Train_Samples_lr.csv"), "step,lr\r\n0,0.001\r\n16,0.001\r\n");
  EXPECT_EQ(read(folder_ / "a_b_loss_c.csv"), "step,loss c\r\n0,inf\r\n16,inf\r\n");
}

TEST_F(MonitorTest, CsvWarnsOnceAndGoesOn) {
  CsvMonitor monitor(folder_ / "gone");
  monitor.write({{"Train/Samples/lr", 1, 1}, {"Train/Samples/train_loss", 1, 1}});
  monitor.write({{"Train/Samples/lr", 1, 2}});
  ASSERT_EQ(messages_.size(), 1U);
  EXPECT_NE(messages_[0].find("warning: csv_monitor: cannot open"), std::string::npos);
}

TEST_F(MonitorTest, EventFilesAreReadBack) {
  const auto before = static_cast<double>(time(nullptr));
  {
    TensorBoardMonitor monitor(folder_);
    monitor.write({{"Train/Samples/train_loss", 2.5, 300}, {"Train/Samples/lr", 1e-3, 300}});
    monitor.write({{"Train/Samples/train_loss", HUGE_VAL, int64_t{1} << 40}});
    monitor.write({{"a", 1, 1}, {"b", 2, 2}});
  }
  ASSERT_EQ(files().size(), 1U);
  EXPECT_TRUE(files()[0].filename().string().starts_with("events.out.tfevents."));
  const auto events = EventFileReader::read(read(files()[0]));
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].step, 300U);
  EXPECT_EQ(events[1].values,
            (std::map<std::string, float>{{"Train/Samples/train_loss", 2.5F}, {"Train/Samples/lr", 1e-3F}}));
  EXPECT_EQ(events[2].step, uint64_t{1} << 40);
  EXPECT_EQ(events[2].values.at("Train/Samples/train_loss"), HUGE_VALF);
  EXPECT_EQ(events[3].values, (std::map<std::string, float>{{"a", 1}}));
  EXPECT_EQ(events[4].step, 2U);
  for (const auto& event : events) {
    EXPECT_GE(event.wall_time, before);
    EXPECT_LE(event.wall_time, before + 60);
  }
}

TEST_F(MonitorTest, ARestartBeginsAnotherEventFile) {
  for (int run = 0; run < 2; ++run) TensorBoardMonitor(folder_).write({{"a", 1, 1}});
  EXPECT_EQ(files().size(), 2U);
}

TEST_F(MonitorTest, TheReaderSeesSpoiledFiles) {
  TensorBoardMonitor(folder_).write({{"a", 1, 1}});
  const std::string good = read(files()[0]);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string spoiled = good;
    spoiled[at] = static_cast<char>(spoiled[at] ^ 0x10);
    EXPECT_ANY_THROW(EventFileReader::read(spoiled)) << at;
  }
}

}  // namespace
}  // namespace aliquot
