#include "aliquot/memory/buffer.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "aliquot/memory/debug.h"

namespace aliquot {
namespace {

// From here on a mapping of its own, so that the kernel can back it with huge pages and zeroes it lazily.
constexpr int64_t kMapBytes = int64_t{4} << 20;

constexpr int64_t kPage = 4096;

int64_t mapped_size(int64_t bytes) {
  return round_up(bytes, kPage);
}

// What files are read into starts on a page, as direct I/O wants it. States do not: streams that lie a
// multiple of 4,096 bytes apart get in each other's way in the update.
std::align_val_t alignment(Kind kind) {
  const bool transfers = kind == Kind::staging || kind == Kind::gathered;
  return std::align_val_t{static_cast<size_t>(transfers ? kPage : kAlignment)};
}

std::byte* allocate(Kind kind, int64_t bytes) {
  if (bytes >= kMapBytes) {
    void* p = mmap(nullptr, static_cast<size_t>(mapped_size(bytes)), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    madvise(p, static_cast<size_t>(mapped_size(bytes)), MADV_HUGEPAGE);  // a wish: it may be refused
    return static_cast<std::byte*>(p);
  }
  void* p = ::operator new(static_cast<size_t>(bytes), alignment(kind));
  __builtin_memset(p, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(p);
}

void deallocate(Kind kind, std::byte* p, int64_t bytes) {
  if (bytes >= kMapBytes) {
    munmap(p, static_cast<size_t>(mapped_size(bytes)));
  } else {
    ::operator delete(p, alignment(kind));
  }
}

}  // namespace

Buffer::Buffer(std::shared_ptr<Meter> meter, Kind kind, int64_t bytes, Use use)
    : meter_(std::move(meter)), kind_(kind), bytes_(bytes) {
  if (bytes_ == 0) return;
  data_ = allocate(kind_, bytes_);
  if (use == Use::scratch) debug::poison(data_, bytes_);
  if (meter_) meter_->add(kind_, Place::host, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : meter_(std::move(other.meter_)),
      kind_(other.kind_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(meter_, other.meter_);
  std::swap(kind_, other.kind_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  deallocate(kind_, data_, bytes_);
  if (meter_) meter_->remove(kind_, Place::host, bytes_);
}

}  // namespace aliquot
