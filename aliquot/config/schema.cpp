#include "aliquot/config/schema.h"

#include "aliquot/error.h"

namespace aliquot::schema {

bool Range::contains(double x) const {
  return (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high);
}

// ---- rows ----

Key Key::in(Range r) && {
  range = r;
  return std::move(*this);
}
Key Key::or_auto() && {
  takes_auto = true;
  return std::move(*this);
}
Key Key::or_null() && {
  takes_null = true;
  return std::move(*this);
}
Key Key::or_infinity() && {
  takes_infinity = true;
  return std::move(*this);
}
Key Key::not_boolean() && {
  no_boolean = true;
  return std::move(*this);
}
Key Key::in_any_case() && {
  any_case = true;
  return std::move(*this);
}
Key Key::also(std::vector<std::string> names) && {
  aliases = std::move(names);
  return std::move(*this);
}
Key Key::once(std::vector<std::string> names) && {
  old_names = std::move(names);
  return std::move(*this);
}
Key Key::instead_use(std::string path) && {
  replaced_by = std::move(path);
  return std::move(*this);
}

namespace {

Key row(Type type, std::string name, std::string fallback, std::string meaning, Store store) {
  Key key;
  key.name = std::move(name);
  key.type = type;
  key.fallback = std::move(fallback);
  key.meaning = std::move(meaning);
  key.store = std::move(store);
  return key;
}

}  // namespace

Key boolean(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::boolean, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key integer(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::integer, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key number(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::number, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key numbers(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::numbers, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key pair(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::pair, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key text(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::text, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key paths(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::paths, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key texts(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::texts, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key dtype(std::string name, std::string fallback, std::string meaning, Store store) {
  return row(Type::dtype, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
}
Key choice(std::string name, std::vector<std::string> choices, std::string fallback, std::string meaning,
           Store store) {
  Key key = row(Type::choice, std::move(name), std::move(fallback), std::move(meaning), std::move(store));
  key.choices = std::move(choices);
  return key;
}
Key block(std::string name, std::string meaning, Store store) {
  return row(Type::block, std::move(name), "", std::move(meaning), std::move(store));
}
Key anything(std::string name, std::string fallback, std::string meaning) {
  return row(Type::anything, std::move(name), std::move(fallback), std::move(meaning), {});
}

Key no_effect(Key key, std::string because) {
  key.support = Support::no_effect;
  key.meaning = std::move(because);
  return key;
}

Key off(Key key) {
  key.support = Support::off;
  key.meaning = "read only while the block is on";
  return key;
}

Key refused(Key key, std::string because, std::vector<Scalar> asks_nothing) {
  key.support = Support::refused;
  key.meaning = std::move(because);
  key.asks_nothing = std::move(asks_nothing);
  return key;
}

// ---- assignment ----

namespace {

template <class T>
void assign_as(T& field, const Scalar& value) {
  if (const T* v = std::get_if<T>(&value)) field = *v;
}

const std::string* text_of(const Scalar& value) {
  return std::get_if<std::string>(&value);
}

}  // namespace

void assign(bool& field, const Scalar& value) {
  assign_as(field, value);
}
void assign(int64_t& field, const Scalar& value) {
  assign_as(field, value);
}
void assign(std::string& field, const Scalar& value) {
  assign_as(field, value);
}
void assign(std::vector<double>& field, const Scalar& value) {
  assign_as(field, value);
}
void assign(std::vector<std::string>& field, const Scalar& value) {
  assign_as(field, value);
}

void assign(int& field, const Scalar& value) {
  if (const auto* v = std::get_if<int64_t>(&value)) field = static_cast<int>(*v);
}

void assign(double& field, const Scalar& value) {
  if (const auto* v = std::get_if<int64_t>(&value)) field = static_cast<double>(*v);
  assign_as(field, value);
}

void assign(DType& field, const Scalar& value) {
  const std::string* name = text_of(value);
  if (name == nullptr) return;
  for (const DType d : {DType::fp32, DType::bf16, DType::fp16}) {
    if (*name == name_of(d)) field = d;
  }
}

void assign(OffloadDevice& field, const Scalar& value) {
  const std::string* name = text_of(value);
  if (name == nullptr) return;
  field = *name == "nvme" ? OffloadDevice::nvme : *name == "cpu" ? OffloadDevice::cpu : OffloadDevice::none;
}

void assign(AllreduceOp& field, const Scalar& value) {
  if (const std::string* name = text_of(value)) field = *name == "sum" ? AllreduceOp::sum : AllreduceOp::mean;
}

void assign(WarmupType& field, const Scalar& value) {
  if (const std::string* name = text_of(value)) {
    field = *name == "linear" ? WarmupType::linear : WarmupType::log;
  }
}

// ---- sections ----

const Key* Section::find(std::string_view name) const {
  for (const Key& key : keys) {
    if (key.name == name) return &key;
    for (const auto* names : {&key.aliases, &key.old_names}) {
      for (const std::string& other : *names) {
        if (other == name) return &key;
      }
    }
  }
  return nullptr;
}

const std::vector<Section>& sections() {
  static const std::vector<Section> all = [] {
    std::vector<Section> sections;
    for (auto table :
         {top_sections, zero_sections, optimizer_sections, scheduler_sections, refused_sections}) {
      for (Section& s : table()) sections.push_back(std::move(s));
    }
    return sections;
  }();
  return all;
}

const Section& section(std::string_view path) {
  for (const Section& s : sections()) {
    if (s.path == path) return s;
  }
  throw InternalError("schema: no section " + std::string(path));
}

std::string join(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : std::string(section) + "." + std::string(key);
}

const Key* key_at(std::string_view path) {
  const size_t dot = path.rfind('.');
  const std::string_view parent = dot == std::string_view::npos ? "" : path.substr(0, dot);
  const std::string_view name = dot == std::string_view::npos ? path : path.substr(dot + 1);
  for (const Section& s : sections()) {
    const Key* key = s.path == parent ? s.find(name) : nullptr;
    if (key != nullptr) return key;
  }
  return nullptr;
}

}  // namespace aliquot::schema
