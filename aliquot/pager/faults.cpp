#include "aliquot/pager/faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>

#include "aliquot/error.h"
#include "aliquot/memory/buffer.h"

namespace aliquot::faults {
namespace {

constexpr size_t kWatches =
    256;  // engines at stage 3 that live at the same time in one process; further ones go unnamed

// Read by the signal handler, which may neither lock nor allocate.
std::array<std::atomic<const std::vector<Region>*>, kWatches> watched;
struct sigaction previous;

void say(std::string_view text) {
  // There is nobody to tell of a failure.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

void on_fault(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (const auto& slot : watched) {
    const std::vector<Region>* regions = slot.load(std::memory_order_acquire);
    if (regions == nullptr) continue;
    for (const Region& region : *regions) {
      if (address < region.begin || address >= region.begin + region.bytes) continue;
      say("aliquot: memory fault in ");
      say(region.name);
      say(": it was written through a raw pointer, which only GatheredParameters allows, or a pointer to it "
          "was "
          "used after its release\n");
      break;
    }
  }
  // The instruction runs again and meets whoever was here before.
  sigaction(SIGSEGV, &previous, nullptr);
}

void install_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous);
  });
}

struct Users {
  std::mutex mutex;
  std::map<const std::byte*, int> by_begin;
};

Users& users() {
  static Users all;
  return all;
}

void protect(const std::byte* pages, int64_t bytes, int protection) {
  if (mprotect(const_cast<std::byte*>(pages), static_cast<size_t>(round_up(bytes, 4096)), protection) != 0) {
    throw InternalError("mprotect of a unit's pages failed");
  }
}

}  // namespace

Watch::Watch(std::vector<Region> regions)
    : regions_(std::make_unique<const std::vector<Region>>(std::move(regions))) {
  install_once();
  for (auto& slot : watched) {
    const std::vector<Region>* none = nullptr;
    if (slot.compare_exchange_strong(none, regions_.get(), std::memory_order_release)) return;
  }
}

Watch::~Watch() {
  for (auto& slot : watched) {
    const std::vector<Region>* own = regions_.get();
    if (slot.compare_exchange_strong(own, nullptr)) return;
  }
}

void open(const std::byte* pages, int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(users().mutex);
  if (users().by_begin[pages]++ == 0) protect(pages, bytes, PROT_READ);
}

void close(const std::byte* pages, int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(users().mutex);
  const auto found = users().by_begin.find(pages);
  if (found == users().by_begin.end() || --found->second > 0) return;
  users().by_begin.erase(found);
  protect(pages, bytes, PROT_NONE);
}

}  // namespace aliquot::faults
