// What is known of one optimizer step, in one struct: the progress line, metrics.jsonl, the monitors and the
// report all read this and nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace aliquot {

class Meter;

/// Bytes.
struct MemoryUse {
  int64_t current = 0, peak = 0;
};

/// The memory of one place, by kind and in total; the total's peak is the sum's, not the sum of the peaks.
struct PlaceMemory {
  MemoryUse total;
  std::map<std::string, MemoryUse> kinds;
};

/// One window of accumulation and its update. Times, memory and bytes are rank 0's own.
struct StepRecord {
  int64_t step = 0;     ///< from 1: the boundaries passed, skipped ones included
  int64_t samples = 0;  ///< rows seen since the first step, by all ranks: DeepSpeed's global_samples
  int64_t tokens = 0;   ///< positions trained on since the first step, by all ranks

  double loss = 0;                  ///< mean over the whole global batch
  std::optional<double> eval_loss;  ///< of the held-out part, where it was computed after this step
  double lr = 0;                    ///< of the first parameter group, as used by this step
  std::optional<double> grad_norm;  ///< L2, over all parameters and ranks, before clipping
  double clip_coefficient = 1;      ///< what the gradient was multiplied by
  double loss_scale = 1;            ///< as used by this step

  bool skipped = false;     ///< the update was not applied
  std::string skip_reason;  ///< "overflow in h.3.mlp.c_fc.weight (rank 1)"

  double tokens_per_s = 0;    ///< all ranks together
  double matmul_percent = 0;  ///< of the machine's matmul limit (limits.h)

  std::map<std::string, double> ms;           ///< milliseconds by phase (timers.h), and "total"
  std::map<std::string, PlaceMemory> memory;  ///< by place: device, host, nvme
  std::map<std::string, int64_t> bytes;       ///< sent by this rank, by collective
};

/// What a meter shows now, without the places and kinds that never held anything.
std::map<std::string, PlaceMemory> read_memory(const Meter& meter);

}  // namespace aliquot
