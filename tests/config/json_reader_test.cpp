#include "aliquot/config/json_reader.h"

#include <cmath>

#include "testing.h"

namespace aliquot::json {
namespace {

using aliquot::testing::says;

Value root(const std::string& text) {
  return read(text, "f.json").root;
}

std::string error_of(const std::string& text) {
  try {
    read(text, "f.json");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(JsonReader, ReadsPlainJson) {
  const Value v = root(R"({"a": [1, -2.5, "x", true, false, null], "b": {"c": 1e3}})");
  ASSERT_EQ(v.kind, Kind::object);
  const Value& a = v.find("a")->value;
  ASSERT_EQ(a.items.size(), 6U);
  EXPECT_EQ(a.items[0].integer, 1);
  EXPECT_EQ(a.items[1].number, -2.5);
  EXPECT_FALSE(a.items[1].integer);
  EXPECT_EQ(a.items[2].text, "x");
  EXPECT_TRUE(a.items[3].boolean);
  EXPECT_EQ(a.items[4].kind, Kind::boolean);
  EXPECT_EQ(a.items[5].kind, Kind::null);
  EXPECT_EQ(v.find("b")->value.find("c")->value.number, 1000);
  EXPECT_EQ(v.find("none"), nullptr);
}

TEST(JsonReader, ReadsWhatPeopleWrite) {
  const Document d = read(R"(# a note
{
  // another
  "a": 1,  /* and
  another */ "b": [1, 2,],
})",
                          "f.json");
  EXPECT_EQ(d.root.find("b")->value.items.size(), 2U);
  EXPECT_FALSE(d.missing_comma);
  EXPECT_FALSE(d.unquoted_name);
}

TEST(JsonReader, ReadsHjsonAndSaysWhere) {
  const Document d = read("{\n  \"a\": 1\n  b: {c-d: 2}\n  \"l\": [1\n 2]}", "f.json");
  EXPECT_EQ(d.root.find("b")->value.find("c-d")->value.integer, 2);
  EXPECT_EQ(d.root.find("l")->value.items.size(), 2U);
  EXPECT_EQ(d.missing_comma, (Position{2, 9}));
  EXPECT_EQ(d.unquoted_name, (Position{3, 3}));
  EXPECT_TRUE(says(error_of("{\"a\": 1 \"b\": 2}"), "f.json:1:9: expected ',' or '}', found '\"'"));
}

TEST(JsonReader, ReadsNumbers) {
  const std::vector<std::pair<const char*, double>> numbers = {
      {"5e8", 5e8}, {"2.000000e+08", 2e8}, {"1_000", 1000}, {"+3", 3}, {".5", 0.5},
      {"-0", 0},    {"1E-3", 1e-3},        {"1e-400", 0}};
  for (const auto& [text, value] : numbers) EXPECT_EQ(root(text).number, value) << text;
  EXPECT_EQ(root("9223372036854775807").integer, INT64_MAX);
  EXPECT_FALSE(root("9223372036854775808").integer);
  EXPECT_EQ(root("Infinity").number, INFINITY);
  EXPECT_EQ(root("-Infinity").number, -INFINITY);
  EXPECT_TRUE(std::isnan(root("NaN").number));
  for (const char* text : {"1e400", "-1e400"}) EXPECT_TRUE(says(error_of(text), "beyond the range")) << text;
  for (const char* text : {"1.2.3", "12ab", "--1", "1__0", "_1", "1_", "-", "1e", "0x10", "-inf", "+-1"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(JsonReader, ReadsEscapes) {
  EXPECT_EQ(root(R"("a\"\\\/\b\f\n\r\t")").text, "a\"\\/\b\f\n\r\t");
  EXPECT_EQ(root(R"("\u0041\u00e9\u20ac\ud83d\ude00")").text, "Aé€😀");
  for (const char* text :
       {R"("\q")", R"("\u12g4")", R"("\ud800")", R"("\ud800\u0041")", R"("\udc00")", "\"\\", "\"\x01\""}) {
    EXPECT_TRUE(says(error_of(text), "f.json:1:")) << text;
  }
}

TEST(JsonReader, NamesWhatWasExpected) {
  EXPECT_EQ(error_of(""), "f.json:1:1: the file holds no value; expected an object, { … }");
  EXPECT_TRUE(says(error_of("{\n  \"a\" 1}"), "f.json:2:7: expected ':' after \"a\", found '1'"));
  EXPECT_TRUE(says(error_of("{\"a\": }"), "f.json:1:7: expected a value"));
  EXPECT_TRUE(says(error_of("{\"a\": 1"), "to close the bracket opened at 1:1, found the end of the file"));
  EXPECT_TRUE(says(error_of("{\"a\": True}"), "'True' is Python; expected true"));
  EXPECT_TRUE(says(error_of("{\"a\": cpu}"), "text stands in quotes, \"cpu\""));
  EXPECT_TRUE(says(error_of("{'a': 1}"), "expected a name in quotes"));
  EXPECT_TRUE(says(error_of("{\"a\": \"x\n\"}"), "f.json:1:7: this text is never closed"));
  EXPECT_TRUE(says(error_of("{} {}"), "expected the end of the file"));
  EXPECT_TRUE(says(error_of("{\"a\": 1, /* }"), "f.json:1:10: this comment is never closed"));
  EXPECT_TRUE(says(error_of("{,}"), "expected a name in quotes"));
}

TEST(JsonReader, CountsColumnsInCharacters) {
  EXPECT_TRUE(says(error_of("{\"é€😀\": ?}"), "f.json:1:9:"));
  EXPECT_EQ(root("\xEF\xBB\xBF{\"a\": 1}").find("a")->at, (Position{1, 2}));
}

TEST(JsonReader, FindsDuplicatesWithBothPlaces) {
  const Document d = read("{\"a\": {\"b\": 1,\n\"b\": 2}, \"c\": 1, \"a\": 2}", "f.json");
  ASSERT_EQ(d.duplicates.size(), 2U);
  EXPECT_EQ(d.duplicates[0].path, "a.b");
  EXPECT_EQ(d.duplicates[0].first, (Position{1, 8}));
  EXPECT_EQ(d.duplicates[0].second, (Position{2, 1}));
  EXPECT_EQ(d.duplicates[1].path, "a");
}

TEST(JsonReader, BoundsTheDepth) {
  const std::string deep(kMaxDepth, '[');
  EXPECT_EQ(root(deep + std::string(kMaxDepth, ']')).kind, Kind::list);
  EXPECT_TRUE(says(error_of(deep + "["), "nested deeper than 64 levels"));
  EXPECT_TRUE(says(error_of(std::string(1'000'000, '[')), "nested deeper"));
}

TEST(JsonReader, ManyNamesStayLinear) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"k" + std::to_string(i) + "\":1,";
  EXPECT_EQ(read(text + "}", "f.json").root.members.size(), 100'000U);
}

TEST(JsonReader, ShowsValuesShortly) {
  EXPECT_EQ(show(root(R"({"a": [1, "x", null, true]})")), R"({"a": [1, "x", null, true]})");
  EXPECT_LE(show(root("\"" + std::string(1000, 'x') + "\"")).size(), 70U);
  EXPECT_EQ(printable("a\nb\x01"), "a?b?");
}

}  // namespace
}  // namespace aliquot::json
