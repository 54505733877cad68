#include "aliquot/config/json_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "aliquot/config/json_scanner.h"

namespace aliquot::json {
namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : in_(text, file) {}

  Document read() {
    in_.skip_blank();
    if (in_.done()) in_.fail("the file holds no value; expected an object, { … }");
    document_.root = value(0);
    in_.skip_blank();
    if (!in_.done()) {
      in_.fail(fmt::format("expected the end of the file after the closing bracket, found {}", in_.found()));
    }
    return std::move(document_);
  }

 private:
  Value value(int depth) {
    Value v;
    v.at = in_.at();
    const char c = in_.peek();
    if (c == '{') {
      object(v, depth);
    } else if (c == '[') {
      list(v, depth);
    } else if (c == '"') {
      v.kind = Kind::string;
      v.text = in_.text();
    } else if (in_.starts_number()) {
      in_.number(v);
    } else if (in_.starts_word()) {
      in_.constant(v);
    } else if (c == '\'') {
      in_.fail("text stands in double quotes, \"…\"");
    } else {
      in_.fail(fmt::format(
          "expected a value (text in quotes, a number, true, false, null, {{ or [), found {}", in_.found()));
    }
    return v;
  }

  void enter(Value& v, Kind kind, int depth) {
    if (depth == kMaxDepth) in_.fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    v.kind = kind;
    in_.take();
  }

  // After a member or an item: true if another one follows; the closing bracket is taken otherwise.
  bool another(char close, Position open) {
    const Position end = in_.at();
    const bool line_ended = in_.skip_blank();
    if (in_.done()) {
      in_.fail(
          fmt::format("expected ',' or '{}' to close the bracket opened at {}:{}, found the end of the file",
                      close, open.line, open.column));
    }
    if (in_.peek() == ',') {
      in_.take();
      in_.skip_blank();
    } else if (in_.peek() != close) {
      if (!line_ended) in_.fail(fmt::format("expected ',' or '{}', found {}", close, in_.found()));
      if (!document_.missing_comma) document_.missing_comma = end;
    }
    if (in_.peek() != close) return true;
    in_.take();
    return false;
  }

  bool opens_empty(char close) {
    in_.skip_blank();
    if (in_.peek() != close) return false;
    in_.take();
    return true;
  }

  void list(Value& v, int depth) {
    enter(v, Kind::list, depth);
    path_.emplace_back("[]");
    if (!opens_empty(']')) {
      do v.items.push_back(value(depth + 1));
      while (another(']', v.at));
    }
    path_.pop_back();
  }

  void object(Value& v, int depth) {
    enter(v, Kind::object, depth);
    if (opens_empty('}')) return;
    std::unordered_map<std::string, Position> seen;
    do {
      Member m;
      m.at = in_.at();
      m.name = name();
      in_.skip_blank();
      if (in_.peek() != ':') {
        in_.fail(fmt::format("expected ':' after \"{}\", found {}", printable(m.name), in_.found()));
      }
      in_.take();
      in_.skip_blank();
      path_.push_back(m.name);
      const auto [first, is_new] = seen.try_emplace(m.name, m.at);
      if (!is_new) {
        document_.duplicates.push_back({fmt::format("{}", fmt::join(path_, ".")), first->second, m.at});
      }
      m.value = value(depth + 1);
      path_.pop_back();
      v.members.push_back(std::move(m));
    } while (another('}', v.at));
  }

  std::string name() {
    if (in_.peek() == '"') return in_.text();
    if (!in_.starts_word()) in_.fail(fmt::format("expected a name in quotes or '}}', found {}", in_.found()));
    if (!document_.unquoted_name) document_.unquoted_name = in_.at();
    return in_.word();
  }

  Scanner in_;
  std::vector<std::string> path_;
  Document document_;
};

void show_into(const Value& v, std::string& out, size_t limit) {
  if (out.size() > limit) return;
  switch (v.kind) {
    case Kind::null:
      out += "null";
      return;
    case Kind::boolean:
      out += v.boolean ? "true" : "false";
      return;
    case Kind::number:
      out += v.text;
      return;
    case Kind::string:
      out += fmt::format("\"{}\"", v.text);
      return;
    case Kind::list:
      out += '[';
      for (size_t i = 0; i < v.items.size() && out.size() <= limit; ++i) {
        if (i > 0) out += ", ";
        show_into(v.items[i], out, limit);
      }
      out += ']';
      return;
    case Kind::object:
      out += '{';
      for (size_t i = 0; i < v.members.size() && out.size() <= limit; ++i) {
        out += fmt::format("{}\"{}\": ", i > 0 ? ", " : "", v.members[i].name);
        show_into(v.members[i].value, out, limit);
      }
      out += '}';
  }
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "a boolean";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "text";
    case Kind::list:
      return "a list";
    case Kind::object:
      return "an object";
  }
  return "?";
}

const Member* Value::find(std::string_view name) const {
  for (const Member& m : members) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

Document read(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

std::string printable(std::string_view text) {
  constexpr size_t kLimit = 60;
  std::string out(text.substr(0, kLimit + 1));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (out.size() <= kLimit) return out;
  size_t cut = kLimit;
  while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xC0) == 0x80) --cut;  // whole characters only
  return out.substr(0, cut) + "…";
}

std::string show(const Value& value) {
  std::string out;
  show_into(value, out, 60);
  return printable(out);
}

}  // namespace aliquot::json
