// The zero_optimization block and its offload blocks.
#include "aliquot/config/schema.h"

namespace aliquot::schema {
namespace {

template <class T>
Store zero(T ZeroConfig::*field) {
  return to(&Config::zero, field);
}

Key stage3_size(std::string name, std::string fallback, std::string meaning, int64_t ZeroConfig::*field) {
  return integer("stage3_" + name, std::move(fallback), std::move(meaning), zero(field))
      .in(at_least(0))
      .or_auto()
      .also({name});
}

Store offload_to_cpu(OffloadConfig ZeroConfig::*part) {
  return [=](Config& c, const Scalar& v) {
    if (v == Scalar(true)) (c.zero.*part).device = OffloadDevice::cpu;
  };
}

std::vector<Key> working_keys() {
  return {
      integer("stage", "0",
              "0: nothing is partitioned; 1: optimizer states; 2: and gradients; 3: and parameters",
              zero(&ZeroConfig::stage))
          .in(between(0, 3)),
      integer("reduce_bucket_size", "5e8", "elements of one gradient bucket",
              zero(&ZeroConfig::reduce_bucket_size))
          .in(at_least(1))
          .or_auto(),
      boolean("overlap_comm", "true at stage 3, else false", "reduce while backward goes on; changes no bit",
              zero(&ZeroConfig::overlap_comm))
          .or_auto()
          .or_null(),
      stage3_size("max_live_parameters", "1e9", "elements gathered at one time; 0: as few as possible",
                  &ZeroConfig::stage3_max_live_parameters),
      stage3_size("max_reuse_distance", "1e9", "keep what is used again within so many elements",
                  &ZeroConfig::stage3_max_reuse_distance),
      no_effect(
          stage3_size("prefetch_bucket_size", "5e7", "", &ZeroConfig::stage3_prefetch_bucket_size),
          "on one host a gathered unit is the shared memory itself, with nothing to fetch ahead; between "
          "hosts gathers are made on demand"),
      stage3_size("param_persistence_threshold", "1e5",
                  "parameters of at most so many elements stay gathered",
                  &ZeroConfig::stage3_param_persistence_threshold),
      stage3_size("model_persistence_threshold", "no limit", "elements that may stay gathered in all",
                  &ZeroConfig::stage3_model_persistence_threshold),
      block("offload_optimizer", "where optimizer states and master weights live").or_null(),
      block("offload_param", "where the partitioned parameters live, stage 3").or_null(),

      boolean("cpu_offload", "false", "as `\"offload_optimizer\": {\"device\": \"cpu\"}`",
              offload_to_cpu(&ZeroConfig::offload_optimizer))
          .instead_use("zero_optimization.offload_optimizer"),
      boolean("cpu_offload_param", "false", "as `\"offload_param\": {\"device\": \"cpu\"}`",
              offload_to_cpu(&ZeroConfig::offload_param))
          .once({"cpu_offload_params"})
          .instead_use("zero_optimization.offload_param"),
      boolean("cpu_offload_use_pin_memory", "true", "as `pin_memory` in `offload_optimizer`",
              to(&Config::zero, &ZeroConfig::offload_optimizer, &OffloadConfig::pin_memory))
          .instead_use("zero_optimization.offload_optimizer.pin_memory"),
  };
}

std::vector<Key> effectless_keys() {
  return {
      no_effect(boolean("stage3_gather_16bit_weights_on_model_save", "false", "",
                        zero(&ZeroConfig::stage3_gather_16bit_weights_on_model_save))
                    .or_auto()
                    .also({"gather_16bit_weights_on_model_save"})
                    .once({"stage3_gather_fp16_weights_on_model_save", "gather_fp16_weights_on_model_save"}),
                "weights are always exported whole, gathered unit by unit"),
      no_effect(integer("allgather_bucket_size", "5e8", "", zero(&ZeroConfig::allgather_bucket_size))
                    .in(at_least(1))
                    .or_auto(),
                "updated parameters are published unit by unit"),
      no_effect(
          integer("sub_group_size", "1e9", "", zero(&ZeroConfig::sub_group_size)).in(at_least(0)).or_auto(),
          "the update runs in tiles that fit the cache"),
      no_effect(boolean("contiguous_gradients", "true").or_auto(),
                "gradients are always moved into contiguous buckets"),
      no_effect(boolean("reduce_scatter", "true").or_auto(),
                "a gradient is always reduced by its owner alone"),
      no_effect(boolean("use_multi_rank_bucket_allreduce", "true").or_auto(),
                "a gradient is always reduced by its owner alone"),
      no_effect(boolean("allgather_partitions", "true").or_auto(), "updated parameters are always gathered"),
      no_effect(
          boolean("round_robin_gradients", "false", "", zero(&ZeroConfig::round_robin_gradients)).or_auto(),
          "every rank owns an equal slice of every unit, so the work is even in any order"),
      no_effect(boolean("load_from_fp32_weights", "true").or_auto(),
                "checkpoints to resume from are not read yet"),
      no_effect(boolean("elastic_checkpoint", "false").or_auto(),
                "checkpoints to resume from are not written yet"),
      no_effect(boolean("grad_hooks", "true").or_auto(), "gradients always leave by hooks"),
      no_effect(integer("stage3_module_granularity_threshold", "0")
                    .in(at_least(0))
                    .or_auto()
                    .also({"module_granularity_threshold"}),
                "parameters are paged by use, not by module"),
      no_effect(block("leaf_module", "").or_null(),
                "parameters are paged by use: no module has to be a leaf"),
      no_effect(boolean("stage3_use_all_reduce_for_fetch_params", "false")
                    .or_auto()
                    .also({"use_all_reduce_for_fetch_params"}),
                "a gather reads the owners' slices"),
      no_effect(boolean("stage3_allgather_sequential", "false").or_auto().also({"allgather_sequential"}),
                "gathers are issued in the order of use"),
      no_effect(boolean("memory_efficient_linear", "true").or_auto(),
                "no operation keeps a released parameter alive"),
      no_effect(boolean("pipeline_loading_checkpoint", "false").or_auto(),
                "weights are always read parameter by parameter"),
      no_effect(boolean("override_module_apply", "true").or_auto(), "it concerns Python's zero.Init"),
      no_effect(boolean("log_trace_cache_warnings", "false").or_auto(), "there is no trace to invalidate"),
      no_effect(boolean("enable_sanity_checks", "false").or_auto(), "the checks are always on"),
      no_effect(boolean("save_muon_momentum_buffer_in_memory", "false").or_auto(), "Muon is not supported"),
  };
}

std::vector<Key> refused_keys() {
  const std::string zeropp = "quantised communication (ZeRO++) is not there yet";
  return {
      refused(boolean("ignore_unused_parameters", "true", "", zero(&ZeroConfig::ignore_unused_parameters))
                  .or_auto(),
              "a parameter without a gradient is left alone, as in PyTorch", {true}),
      refused(boolean("legacy_stage1", "false").or_auto(), "there is one implementation of stage 1", {false}),
      refused(integer("zero_hpz_partition_size", "1").or_auto(),
              "a secondary partition within a node (hpZ) is not there yet", {int64_t{0}, int64_t{1}}),
      refused(boolean("zero_quantized_weights", "false").or_auto(), zeropp, {false}),
      refused(boolean("zero_quantized_nontrainable_weights", "false").or_auto(), zeropp, {false}),
      refused(boolean("zero_quantized_gradients", "false").or_auto(), zeropp, {false}),
      refused(anything("zeropp_loco_param", "none"), zeropp, {}),
      refused(integer("mics_shard_size", "-1").or_auto(), "sub-group partitions (MiCS) are not there yet",
              {int64_t{-1}, int64_t{0}}),
      refused(boolean("mics_hierarchical_params_gather", "false").or_auto(),
              "sub-group partitions (MiCS) are not there yet", {false}),
      refused(anything("zenflow", "none"), "updates are never stale here (ZenFlow)", {}),
  };
}

Section zero_block() {
  Section s{.path = "zero_optimization", .types = {}, .keys = working_keys()};
  for (auto group : {effectless_keys, refused_keys}) {
    for (Key& key : group()) s.keys.push_back(std::move(key));
  }
  return s;
}

Key device(OffloadConfig ZeroConfig::*part) {
  return choice("device", {"none", "cpu", "nvme"}, "none", "cpu: host memory; nvme: files in `nvme_path`",
                to(&Config::zero, part, &OffloadConfig::device));
}

Key nvme_path(OffloadConfig ZeroConfig::*part) {
  return paths("nvme_path", "none", "folders on local disks, striped if several; needed by device nvme",
               to(&Config::zero, part, &OffloadConfig::nvme_path))
      .or_null();
}

Key pin_memory(OffloadConfig ZeroConfig::*part) {
  return boolean("pin_memory", "true", "page-locked host memory, where there is a device to copy to",
                 to(&Config::zero, part, &OffloadConfig::pin_memory))
      .or_auto();
}

Section offload_optimizer() {
  const auto part = &ZeroConfig::offload_optimizer;
  Section s{.path = "zero_optimization.offload_optimizer", .types = {}, .keys = {}};
  s.keys = {
      device(part),
      nvme_path(part),
      pin_memory(part),
      number("ratio", "1.0", "share of the optimizer that is offloaded; below 1 at stage 3 only",
             to(&Config::zero, part, &OffloadConfig::ratio))
          .in(between(0, 1))
          .or_auto(),
      integer("buffer_count", "4", "NVMe: staging buffers, each holding one tile of the states",
              to(&Config::zero, part, &OffloadConfig::buffer_count))
          .in(at_least(1))
          .or_auto(),
      boolean("pipeline_read", "true", "NVMe: read the next tile while one is updated",
              to(&Config::zero, part, &OffloadConfig::pipeline_read))
          .or_auto(),
      boolean("pipeline_write", "true", "NVMe: write a tile while the next is updated",
              to(&Config::zero, part, &OffloadConfig::pipeline_write))
          .or_auto(),
      no_effect(boolean("fast_init", "false").or_auto(),
                "moments begin as a hole in a file, which reads as zeros"),
      no_effect(number("cpuadam_cores_perc", "0.8").in(between(0, 1)).or_auto(),
                "the update uses the rank's threads"),
      refused(boolean("super_offload", "false").or_auto(), "the step is never speculative (SuperOffload)",
              {false}),
  };
  return s;
}

Section offload_param() {
  const auto part = &ZeroConfig::offload_param;
  const std::string read_whole =
      "a unit is read straight into the memory it is gathered in, whatever its size";
  Section s{.path = "zero_optimization.offload_param", .types = {}, .keys = {}};
  s.keys = {
      device(part),
      nvme_path(part),
      pin_memory(part),
      no_effect(integer("buffer_count", "5").in(at_least(1)).or_auto(), read_whole),
      no_effect(integer("buffer_size", "1e8").in(at_least(1)).or_auto(), read_whole),
      integer("max_in_cpu", "1e9", "NVMe: elements of a rank's parameters that stay in memory",
              to(&Config::zero, part, &OffloadConfig::max_in_cpu))
          .in(at_least(0))
          .or_auto(),
  };
  return s;
}

Section leaf_module() {
  const std::string why = "parameters are paged by use: no module has to be a leaf";
  Section s{.path = "zero_optimization.leaf_module", .types = {}, .keys = {}};
  for (const char* name : {"classes", "names", "name_suffixes"}) {
    s.keys.push_back(no_effect(texts(name, "[]"), why));
  }
  return s;
}

}  // namespace

std::vector<Section> zero_sections() {
  return {zero_block(), offload_optimizer(), offload_param(), leaf_module()};
}

}  // namespace aliquot::schema
