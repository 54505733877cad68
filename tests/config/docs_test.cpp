// docs/config.md holds the schema: its tables are the schema's own.
#include "aliquot/config/document.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "aliquot/config/load.h"
#include "testing.h"

namespace aliquot {
namespace {

// The test programs run with ALIQUOT_SOURCE set to the source folder.
std::string docs_path() {
  const char* source = std::getenv("ALIQUOT_SOURCE");
  return (source != nullptr ? std::string(source) : std::string(ALIQUOT_TEST_DATA) + "/../..") +
         "/docs/config.md";
}

// With ALIQUOT_UPDATE_DOCS=1 the page is rewritten instead.
TEST(Docs, TablesAreTheSchemas) {
  std::ifstream in(docs_path());
  ASSERT_TRUE(in) << docs_path();
  std::stringstream page;
  page << in.rdbuf();
  const std::string wanted = schema::with_tables(page.str());
  if (std::getenv("ALIQUOT_UPDATE_DOCS") != nullptr) {
    std::ofstream(docs_path()) << wanted;
  } else {
    EXPECT_TRUE(page.str() == wanted)
        << "docs/config.md is not the schema's: run config_test with ALIQUOT_UPDATE_DOCS=1 and commit it";
  }
}

TEST(Schema, EveryKeySaysWhatBecomesOfIt) {
  for (const schema::Section& s : schema::sections()) {
    for (const schema::Key& key : s.keys) {
      const std::string path = schema::join(s.path, key.name);
      EXPECT_FALSE(key.meaning.empty()) << path;
      EXPECT_EQ(key.fallback.empty(), key.type == schema::Type::block) << path;
      if (key.support == schema::Support::refused && key.type != schema::Type::anything) {
        EXPECT_FALSE(key.asks_nothing.empty()) << path;
      }
      EXPECT_EQ(s.find(key.name), &key) << path << " is there twice";
    }
  }
}

TEST(Schema, EveryBlockHasASection) {
  for (const schema::Section& s : schema::sections()) {
    for (const schema::Key& key : s.keys) {
      if (key.type == schema::Type::block) {
        EXPECT_NO_THROW(schema::section(schema::join(s.path, key.name))) << key.name;
      }
    }
  }
}

}  // namespace
}  // namespace aliquot
