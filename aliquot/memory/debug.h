// ALIQUOT_DEBUG=poison[,…]: checks that cost time, for tests and for hunting a fault.
//   poison   scratch memory (buckets, gathered units, staging) is filled with 7777.0 before use and after
//   release
#pragma once

#include <cstddef>
#include <cstdint>

namespace aliquot::debug {

bool poisoning();
/// Turns poisoning on or off for this process, whatever the environment says.
void set_poisoning(bool on);
/// Fills `bytes` bytes with the fp32 value 7777 (which is no sensible bf16 or fp16 value either) if poisoning
/// is on.
void poison(void* data, int64_t bytes);

}  // namespace aliquot::debug
