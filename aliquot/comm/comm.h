// Ranks talking to each other: the few collectives that partitioning needs, in bytes.
//
// `Comm` is a value handle: shared memory for ranks of one host, a c10d::Backend (Gloo) otherwise, and a null
// object for one rank, so single-process code is the same code. No collective here adds: sums are the owner's
// ([Note: arithmetic] A2). All are synchronous and must be entered by every rank in the same order and with
// the same `what`, which names the operation in errors ("reduce bucket 3 (h.0.mlp.c_fc.weight …)"). Ranks
// whose calls differ in operation, size or `what` are named by a CommError on all of them. One handle is used
// by one thread at a time: a second thread takes its own `channel()`.
//
// Errors: CommError that says the operation, which ranks are missing, and their last words where known, when
// a peer died (seconds) or stays silent beyond the timeout. A Comm that failed stays failed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aliquot/comm/rendezvous.h"

namespace aliquot {

/// Memory that all ranks of one host share. Anonymous: nothing is left behind, however the ranks end.
/// Writers and readers agree through collectives on who touches what when; a barrier orders both.
class SharedSegment {
 public:
  virtual ~SharedSegment() = default;
  /// The whole segment through a read-only mapping: a write through it is a SIGSEGV.
  virtual const std::byte* read() const = 0;
  /// The whole segment through a writable mapping.
  virtual std::byte* write() const = 0;
  virtual size_t bytes() const = 0;
};

/// Calls and bytes that this rank sent, by collective ("all_gather", "all_to_all", "broadcast",
/// "shared_read").
struct Traffic {
  struct Count {
    int64_t calls = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Count, std::less<>> by_op;
};

struct CommOptions {
  std::string backend = "auto";  ///< "auto": shm if all ranks are on one host, else gloo; or "shm", "gloo"
  /// For a silent live peer; a dead one takes seconds.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// For ranks to come: long enough for a slow file system to load LibTorch on the last of them.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(2);
};

class CommImpl;

class Comm {
 public:
  /// The null object: one rank, every collective is a copy.
  Comm();
  /// Joins the ranks of `r`; collective, once per process: more connections are channels. Throws CommError
  /// (who did not come, an address that cannot be opened or reached), ConfigError (a backend that this build
  /// or these hosts do not have).
  static Comm connect(const Rendezvous& r, const CommOptions& options = {});
  /// `world` ranks as threads of this process, connected by shared memory: for tests.
  static std::vector<Comm> threads(int world, const CommOptions& options = {});

  int rank() const;
  int size() const;
  std::string_view backend() const;  ///< "none", "shm", "gloo"

  void barrier(std::string_view what) const;
  /// out holds size() × bytes: rank r's `bytes` bytes at r × bytes. `in` may be out + rank × bytes.
  void all_gather(const void* in, void* out, size_t bytes, std::string_view what) const;
  /// send[r] bytes go to rank r, laid out one after another in `in`; recv[r] come from rank r, likewise in
  /// `out`.
  void all_to_all(const void* in, std::span<const size_t> send, void* out, std::span<const size_t> recv,
                  std::string_view what) const;
  void broadcast(void* data, size_t bytes, int root, std::string_view what) const;

  /// Collective. Zero-filled memory shared by all ranks, or null where ranks do not share memory (gloo).
  std::shared_ptr<SharedSegment> share(size_t bytes, std::string_view what) const;

  /// Collective. The same ranks over an independent connection, for another thread.
  Comm channel(std::string_view name) const;

  /// Tells the peers that this rank fails with `message`: they throw it from whatever they wait in.
  void abort(std::string_view message) const;

  /// Traffic of this handle since the last call with `reset`.
  Traffic traffic(bool reset) const;

 private:
  explicit Comm(std::shared_ptr<CommImpl> impl);
  friend class CommImpl;
  std::shared_ptr<CommImpl> impl_;
};

}  // namespace aliquot
