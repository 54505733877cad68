// One line chart as an SVG element (internal to the report).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aliquot {

/// A curve over the steps. Values that are not finite leave a gap.
struct Series {
  std::string name;
  std::vector<double> x{}, y{};
  bool neutral = false;  ///< in the text's colour, for a total among its parts
};

/// How the values of an axis are written.
enum class Unit { number, count, bytes, milliseconds };

struct Chart {
  std::string title;
  Unit unit = Unit::number;
  bool from_zero = true;  ///< the axis begins at zero rather than near the least value
  std::vector<Series> series{};
};

/// `count` or fewer numbers that are round in base ten, evenly spaced, covering low … high.
std::vector<double> round_ticks(double low, double high, int count);

/// At most 2 · `buckets` points: of each bucket the least and the greatest, so that no spike is lost.
Series thin(const Series& series, size_t buckets);

/// A <figure> with title, legend, drawing, and the values as JSON for the page's script to read out. The
/// colour of series i is the style sheet's --series-<i>.
std::string render(const Chart& chart);

/// For text inside HTML.
std::string escape_html(std::string_view text);

}  // namespace aliquot
