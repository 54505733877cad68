// ALIQUOT_DEBUG=poison[,…]: checks that cost time, for tests and for hunting a fault.
//   poison   scratch memory (buckets, gathered units, staging) is filled with 7777.0 before use and after
//   release
//   pager    parameters' memory is inaccessible between release and gather (stage 3), and a pointer that was
//            kept from before faults, with the parameter's name
#pragma once

#include <cstddef>
#include <cstdint>

namespace aliquot::debug {

bool poisoning();
/// Turns poisoning on or off for this process, whatever the environment says.
void set_poisoning(bool on);
bool guarding();
/// Turns the guarding of released parameters on or off for stores created from now on.
void set_guarding(bool on);
/// Fills `bytes` bytes with the fp32 value 7777 (which is no sensible bf16 or fp16 value either) if poisoning
/// is on.
void poison(void* data, int64_t bytes);

}  // namespace aliquot::debug
