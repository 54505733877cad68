// The schema as the tables of docs/config.md, so that the two cannot differ.
#pragma once

#include <string>

#include "aliquot/config/schema.h"

namespace aliquot::schema {

/// "top level", "zero_optimization", "optimizer.params of Adam, AdamW".
std::string title(const Section& section);

/// A Markdown table of the section's keys: key, type, default, what becomes of it here.
std::string markdown_table(const Section& section);

/// `page` with the lines between "<!-- keys: TITLE -->" and "<!-- end -->" replaced by that section's table.
/// Throws InternalError if a section has no such place, or a place no section.
std::string with_tables(const std::string& page);

}  // namespace aliquot::schema
