#include "aliquot/comm/last_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>
#include <vector>

namespace aliquot {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLookAgain = 10ms;
// How much later than this rank another may see the same connection end.
constexpr auto kOthersFail = 1000ms;
// The store's own calls have no deadline: where its process is stopped they take for ever.
constexpr auto kStoreAnswers = 1500ms;
constexpr auto kOthersRead = 2000ms;

// "[/build/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:30359. This is typically …"
std::string brief(std::string_view error) {
  error = error.substr(0, error.find('\n'));
  const size_t source_end = error.starts_with('[') ? error.find("] ") : std::string_view::npos;
  if (source_end != std::string_view::npos) error.remove_prefix(source_end + 2);
  return std::string(error.substr(0, error.find(". This is typically")));
}

}  // namespace

// Shared with a thread that may hang in the store and is then left behind.
struct LastWords::Desk {
  Desk(Store store, int rank, int world, std::shared_ptr<const Peers> peers)
      : store(std::move(store)), rank(rank), world(world), peers(std::move(peers)) {}

  Store store;
  int rank, world;
  std::shared_ptr<const Peers> peers;
  std::atomic<bool> failed = false;

  std::string explain(const std::string& what, const std::string& where, const std::string& error) const;
  std::vector<int> silent(const std::string& where) const;
  void wait_for_readers() const;
};

std::vector<int> LastWords::Desk::silent(const std::string& where) const {
  std::vector<int> ranks;
  for (int r = 0; r < world; ++r) {
    if (!store->check({fmt::format("failed/{}/{}", where, r)})) ranks.push_back(r);
  }
  return ranks;
}

std::string LastWords::Desk::explain(const std::string& what, const std::string& where,
                                     const std::string& error) const {
  store->set(fmt::format("failed/{}/{}", where, rank), to_bytes("1"));
  std::vector<int> missing;
  bool died = false;
  const auto start = Clock::now();
  do {
    // In this order: a rank that died may have said why before.
    missing = silent(where);
    for (const int r : missing) died = died || peers->ended(r);
    if (store->check({"abort"})) return fmt::format("{}: {}", what, to_text(store->get("abort")));
    if (missing.empty() || died) break;
    std::this_thread::sleep_for(kLookAgain);
  } while (Clock::now() - start < kOthersFail);
  std::vector<std::string> names;
  for (const int r : missing) {
    if (died == peers->ended(r)) names.push_back(peers->name(r));
  }
  if (names.empty()) return fmt::format("{}: the ranks' connections failed: {}", what, error);
  return fmt::format("{}: {} {}: {}", what, fmt::join(names, ", "), died ? "died" : "is missing or silent",
                     error);
}

void LastWords::Desk::wait_for_readers() const {
  const auto start = Clock::now();
  while (Clock::now() - start < kOthersRead) {
    int64_t expected = 0;
    for (int r = 1; r < world; ++r) expected += peers->ended(r) ? 0 : 1;
    if (store->add("explained", 0) >= expected) return;
    std::this_thread::sleep_for(kLookAgain);
  }
}

LastWords::LastWords(Store store, int rank, int world, std::shared_ptr<const Peers> peers)
    : desk_(std::make_shared<Desk>(std::move(store), rank, world, std::move(peers))) {}

LastWords::~LastWords() {
  if (desk_->rank != 0 || !desk_->failed) return;
  try {
    desk_->wait_for_readers();
  } catch (const std::exception&) {
    return;  // the store was another process's, and is gone
  }
}

void LastWords::leave(std::string_view message) {
  desk_->failed = true;
  try {
    desk_->store->compareSet("abort", to_bytes(""),
                             to_bytes(fmt::format("rank {} failed: {}", desk_->rank, message)));
  } catch (const std::exception&) {
    return;  // rank 0 has ended, and with it the store: nobody is left to read
  }
}

std::string LastWords::explain(std::string_view what, std::string_view where, std::string_view error) {
  desk_->failed = true;
  std::promise<std::string> promise;
  std::future<std::string> words = promise.get_future();
  const std::string reason = brief(error);
  // A process closes its connections a moment before it is gone.
  std::this_thread::sleep_for(kLookAgain);
  if (desk_->peers->ended(0)) return fmt::format("{}: {} died: {}", what, desk_->peers->name(0), reason);
  std::thread([desk = desk_, promise = std::move(promise), what = std::string(what),
               where = std::string(where), reason]() mutable {
    try {
      std::string text = desk->explain(what, where, reason);
      if (desk->rank != 0) desk->store->add("explained", 1);
      promise.set_value(std::move(text));
    } catch (const std::exception&) {
      promise.set_value(fmt::format("{}: {}, which held the rendezvous, has ended: {}", what,
                                    desk->peers->name(0), reason));
    }
  }).detach();
  if (words.wait_for(kStoreAnswers) == std::future_status::ready) return words.get();
  return fmt::format("{}: {}, which holds the rendezvous, does not answer: {}", what, desk_->peers->name(0),
                     reason);
}

}  // namespace aliquot
