#include "aliquot/config/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "aliquot/config/coerce.h"
#include "aliquot/config/source.h"

namespace aliquot {
namespace {

using schema::Key;
using schema::Scalar;
using schema::Section;
using schema::Support;

// What was written where a key stands, to notice two spellings of one key.
struct Spelling {
  std::string name;
  json::Position at;
};

class Loader {
 public:
  Loader(const std::string& file, LoadOptions options) : options_(options) { out_.findings = Findings(file); }

  LoadedConfig load(const json::Document& document) {
    for (const json::Duplicate& d : document.duplicates) {
      error(d.second, json::printable(d.path),
            fmt::format("given twice, first at {}:{}", d.first.line, d.first.column));
    }
    note_hjson(document);
    if (document.root.kind == json::Kind::object) {
      walk(schema::section(""), document.root);
      check_replaced();
    } else {
      error(document.root.at, "",
            fmt::format("expected an object, {{ … }}, found {}", json::name_of(document.root.kind)));
    }
    return std::move(out_);
  }

 private:
  void error(json::Position at, const std::string& path, const std::string& text) {
    out_.findings.error(at, path, text);
  }

  void note_hjson(const json::Document& d) {
    const auto& first = d.missing_comma ? d.missing_comma : d.unquoted_name;
    if (!first) return;
    const char* what = !d.unquoted_name   ? "a comma is left out at the end of a line"
                       : !d.missing_comma ? "a name stands without quotes"
                                          : "commas are left out and names stand without quotes";
    out_.findings.warn(*first, "",
                       fmt::format("{}; DeepSpeed reads this as Hjson, most JSON readers do not", what));
  }

  void walk(const Section& section, const json::Value& object) {
    for (const json::Member& m : object.members) {
      const Key* key = section.find(m.name);
      if (key == nullptr) {
        unknown(section, m);
      } else if (const std::string path = schema::join(section.path, key->name); is_first(path, m)) {
        tell_deprecated(*key, path, m);
        read(*key, path, m);
      }
    }
    check_needed(section, object);
  }

  void unknown(const Section& section, const json::Member& m) {
    const std::string path = schema::join(section.path, json::printable(m.name));
    // Beyond a few, the file is no ds_config.json, and a search for each name would take long.
    constexpr int kHints = 20;
    const std::string hint = ++unknown_keys_ <= kHints ? schema::suggestion(section, m.name) : "";
    const std::string tail = hint.empty() ? "" : "; " + hint;
    if (options_.lenient) {
      out_.findings.warn(m.at, path, "unknown key, ignored" + tail);
    } else {
      error(m.at, path, "unknown key" + tail);
    }
  }

  // False if the key was given before, under this name (a duplicate, already told) or another one.
  bool is_first(const std::string& path, const json::Member& m) {
    const auto [first, is_new] = spelled_.try_emplace(path, Spelling{m.name, m.at});
    if (is_new) return true;
    const Spelling& s = first->second;
    if (s.name != m.name) {
      error(
          m.at, path,
          fmt::format("given twice: as {} at {}:{} and as {} here", s.name, s.at.line, s.at.column, m.name));
    }
    return false;
  }

  void tell_deprecated(const Key& key, const std::string& path, const json::Member& m) {
    if (std::ranges::find(key.old_names, m.name) != key.old_names.end()) {
      out_.findings.warn(m.at, path, fmt::format("{} is a deprecated name of this key", m.name));
    }
    if (key.replaced_by.empty()) return;
    out_.findings.warn(m.at, path, fmt::format("deprecated; taken as {}", key.replaced_by));
    replaced_.emplace_back(path, key.replaced_by);
  }

  // A deprecated key together with what replaces it: which one would count?
  void check_replaced() {
    for (const auto& [old_path, new_path] : replaced_) {
      const auto old = out_.given.find(old_path);
      const auto both = out_.given.lower_bound(new_path);
      if (old == out_.given.end() || both == out_.given.end() || !both->first.starts_with(new_path)) continue;
      error(old->second.at, old_path,
            fmt::format("deprecated, and {} is given too; remove this one", both->first));
    }
  }

  void check_needed(const Section& section, const json::Value& object) {
    for (const Key& key : section.keys) {
      if (key.fallback != schema::kNeeded || spelled_.contains(schema::join(section.path, key.name))) {
        continue;
      }
      error(object.at, schema::join(section.path, key.name),
            fmt::format("missing; expected {}", schema::expected(key)));
    }
  }

  // ---- one key ----

  void read(const Key& key, const std::string& path, const json::Member& m) {
    const json::Value& v = m.value;
    if (schema::is_absent(key, v)) return;
    if (key.type == schema::Type::block) {
      if (key.store) key.store(out_.draft, {});
      return read_block(path, m);
    }
    if (v.kind == json::Kind::string && v.text == "auto" && key.takes_auto) {
      out_.open[path] = v.at;
      return;
    }
    if (key.type == schema::Type::anything && key.support == Support::refused) {
      if (!schema::is_off(v)) error(m.at, path, "not supported: " + key.meaning);
      return;
    }
    const std::optional<Scalar> value = schema::coerce(key, v);
    if (!value) {
      return error(v.at, path, fmt::format("{}: expected {}", json::show(v), schema::expected(key)));
    }
    out_.given[path] = {v.at, *value};
    if (key.support == Support::refused &&
        std::ranges::find(key.asks_nothing, *value) == key.asks_nothing.end()) {
      return error(v.at, path, fmt::format("{}: not supported: {}", json::show(v), key.meaning));
    }
    if (key.support == Support::no_effect) out_.findings.note(m.at, path, "no effect here: " + key.meaning);
    if (key.store) key.store(out_.draft, *value);
  }

  void read_block(const std::string& path, const json::Member& m) {
    const json::Value& v = m.value;
    if (path == "optimizer.params" || path == "scheduler.params") return;  // read once the type is known
    if (path == "zero_optimization" && v.kind == json::Kind::boolean) return read_zero_boolean(v);
    if (v.kind != json::Kind::object) {
      return error(v.at, path, fmt::format("{}: expected an object, {{ … }}", json::show(v)));
    }
    out_.given[path] = {m.at, {}};
    if (path == "optimizer") return read_optimizer(v);
    if (path == "scheduler") return read_scheduler(v);
    walk(schema::section(path), v);
  }

  void read_zero_boolean(const json::Value& v) {
    out_.draft.zero.stage = v.boolean ? 1 : 0;
    out_.given["zero_optimization.stage"] = {v.at, Scalar(int64_t{v.boolean ? 1 : 0})};
    out_.findings.warn(v.at, "zero_optimization",
                       fmt::format("deprecated; taken as {{\"stage\": {}}}", v.boolean ? 1 : 0));
  }

  // ---- optimizer and scheduler: which parameters there are depends on the type ----

  const std::string* type_of(const std::string& block) const {
    const auto type = out_.given.find(block + ".type");
    return type == out_.given.end() ? nullptr : std::get_if<std::string>(&type->second.value);
  }

  void read_params(const std::string& path, const Section& section, const json::Value& block) {
    const json::Member* params = block.find("params");
    if (params == nullptr) return check_needed(section, block);
    if (params->value.kind != json::Kind::object) {
      return error(params->value.at, path,
                   fmt::format("{}: expected an object, {{ … }}", json::show(params->value)));
    }
    walk(section, params->value);
  }

  void read_optimizer(const json::Value& v) {
    walk(schema::section("optimizer"), v);
    const std::string* type = type_of("optimizer");
    if (type == nullptr) return;
    const std::optional<OptimizerKind> kind = schema::optimizer_named(*type);
    if (!kind) {
      const json::Position at = out_.given["optimizer.type"].at;
      return error(at, "optimizer.type",
                   fmt::format("\"{}\": {}", json::printable(*type), schema::about_optimizer(*type)));
    }
    out_.draft.optimizer = schema::optimizer_defaults(*kind);
    out_.draft.optimizer->type = *type;
    read_params("optimizer.params", schema::optimizer_params(*kind), v);
    if (*kind == OptimizerKind::adam || *kind == OptimizerKind::adamw) settle_adam(*kind);
  }

  // DeepSpeed's naming rule: `Adam` is AdamW unless "adam_w_mode": false; torch_adam brings torch's default
  // decay.
  void settle_adam(OptimizerKind named) {
    OptimizerConfig& c = *out_.draft.optimizer;
    const bool l2 = named == OptimizerKind::adam && is_given_as("optimizer.params.adam_w_mode", false);
    c.kind = l2 ? OptimizerKind::adam : OptimizerKind::adamw;
    const bool torch_adam = is_given_as("optimizer.params.torch_adam", true);
    if (torch_adam && !l2 && !out_.given.contains("optimizer.params.weight_decay")) c.weight_decay = 0.01;
  }

  bool is_given_as(const std::string& path, bool value) const {
    const auto found = out_.given.find(path);
    return found != out_.given.end() && found->second.value == Scalar(value);
  }

  void read_scheduler(const json::Value& v) {
    walk(schema::section("scheduler"), v);
    const std::string* type = type_of("scheduler");
    if (type == nullptr) return;
    const std::optional<SchedulerKind> kind = schema::scheduler_named(*type);
    if (!kind) {
      const json::Position at = out_.given["scheduler.type"].at;
      return error(at, "scheduler.type",
                   fmt::format("\"{}\": {}", json::printable(*type), schema::about_scheduler(*type)));
    }
    out_.draft.scheduler.kind = *kind;
    out_.draft.scheduler.type = *type;
    read_params("scheduler.params", schema::scheduler_params(*kind), v);
  }

  LoadOptions options_;
  LoadedConfig out_;
  int unknown_keys_ = 0;
  std::map<std::string, Spelling> spelled_;
  std::vector<std::pair<std::string, std::string>> replaced_;  // deprecated path, its replacement
};

}  // namespace

LoadedConfig parse_config(std::string_view text, const std::string& file, LoadOptions options) {
  return Loader(file, options).load(json::read(text, file));
}

LoadedConfig load_config(const std::string& path, LoadOptions options) {
  const ConfigSource source = read_config_source(path);
  return parse_config(source.text, source.name, options);
}

}  // namespace aliquot
