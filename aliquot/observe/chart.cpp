#include "aliquot/observe/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace aliquot {

namespace {

// The drawing's own units; the page scales it.
constexpr double kWidth = 640, kHeight = 230, kLeft = 56, kRight = 12, kTop = 8, kBottom = 26;
constexpr size_t kBuckets = 300;  // some two points per drawing unit

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

struct Scale {
  double divisor;
  std::string_view unit;
};

/// The unit in which the greatest value of an axis has one to three digits before the point.
Scale scale_of(Unit unit, double greatest) {
  static constexpr std::string_view kBytes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  static constexpr std::string_view kCounts[] = {"", "thousand", "million", "billion", "trillion"};
  if (unit == Unit::number) return {1, ""};
  if (unit == Unit::milliseconds) return greatest >= 2000 ? Scale{1000, "s"} : Scale{1, "ms"};
  const double base = unit == Unit::bytes ? 1024 : 1000;
  int power = 0;
  for (double rest = greatest; rest >= base && power < 4; rest /= base) ++power;
  return {std::pow(base, power), unit == Unit::bytes ? kBytes[power] : kCounts[power]};
}

/// A linear map from values to the drawing.
struct Axis {
  double from, to, begin, end;
  double operator()(double value) const { return begin + (value - from) / (to - from) * (end - begin); }
};

std::string path_of(const Series& series, const Axis& x, const Axis& y, double divisor) {
  std::string path;
  bool down = false;
  for (size_t i = 0; i < series.x.size(); ++i) {
    const double value = series.y[i] / divisor;
    if (std::isfinite(value))
      path += fmt::format("{}{:.1f} {:.1f}", down ? "L" : "M", x(series.x[i]), y(value));
    // A lone point would be invisible as a line: a step of nothing gives it the round cap's dot.
    if (std::isfinite(value) && !down) path += "h0";
    down = std::isfinite(value);
  }
  return path;
}

std::string color_of(const Chart& chart, size_t i) {
  size_t colored = 0;
  for (size_t j = 0; j < i; ++j) colored += chart.series[j].neutral ? 0 : 1;
  return chart.series[i].neutral ? "var(--ink)" : fmt::format("var(--series-{})", colored % 8);
}

std::string legend_of(const Chart& chart) {
  if (chart.series.size() < 2) return "";
  std::string items;
  for (size_t i = 0; i < chart.series.size(); ++i)
    items += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", color_of(chart, i),
                         escape_html(chart.series[i].name));
  return fmt::format("<div class=\"legend\">{}</div>", items);
}

std::string grid_of(const std::vector<double>& ticks_x, const std::vector<double>& ticks_y, const Axis& x,
                    const Axis& y) {
  std::string grid;
  for (const double tick : ticks_y)
    grid += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}"
        "</text>",
        kLeft, y(tick), kWidth - kRight, kLeft - 8, y(tick) + 4, tick);
  for (const double tick : ticks_x)
    grid += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>", x(tick),
                        kHeight - 6, tick);
  return grid;
}

/// The numbers as a JSON list's inside.
std::string json_list(const std::vector<double>& values, double divisor, int digits) {
  std::string list;
  for (const double value : values) {
    if (!list.empty()) list += ',';
    list += std::isfinite(value) ? fmt::format("{:.{}g}", value / divisor, digits) : "null";
  }
  return list;
}

/// The points, for the script: {"x0", "x1": the steps at the plot's edges, "series": [{"name", "color", "x",
/// "y"}]}.
std::string json_of(const Chart& chart, const Axis& x, const Scale& scale) {
  std::string series;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& curve = chart.series[i];
    if (!series.empty()) series += ',';
    series +=
        fmt::format(R"({{"name":"{}","color":"{}","x":[{}],"y":[{}]}})", escape_html(curve.name),
                    color_of(chart, i), json_list(curve.x, 1, 15), json_list(curve.y, scale.divisor, 4));
  }
  return fmt::format(R"({{"x0":{:.6g},"x1":{:.6g},"unit":"{}","series":[{}]}})", x.from, x.to, scale.unit,
                     series);
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  const double raw = (high - low) / std::max(count - 1, 1),
               magnitude = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * magnitude;
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * magnitude >= raw * (1 - 1e-9)) {
      step = factor * magnitude;
      break;
    }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (int i = 0; i <= static_cast<int>(last - first); ++i) ticks.push_back((first + i) * step);
  return ticks;
}

Series thin(const Series& series, size_t buckets) {
  const size_t count = series.x.size();
  if (count <= 2 * buckets) return series;
  Series thinned{series.name, {}, {}, series.neutral};
  const auto keep = [&](size_t i) {
    thinned.x.push_back(series.x[i]);
    thinned.y.push_back(series.y[i]);
  };
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const size_t begin = bucket * count / buckets, end = (bucket + 1) * count / buckets;
    size_t least = begin, greatest = begin;
    for (size_t i = begin; i < end; ++i) {
      // A value that is not finite wins over all others: its gap must show.
      if (!std::isfinite(series.y[i])) {
        least = greatest = i;
        break;
      }
      if (series.y[i] < series.y[least]) least = i;
      if (series.y[i] > series.y[greatest]) greatest = i;
    }
    keep(std::min(least, greatest));
    if (least != greatest) keep(std::max(least, greatest));
  }
  return thinned;
}

std::string render(const Chart& original) {
  Chart chart = original;
  Range steps, values;
  for (Series& series : chart.series) {
    series = thin(series, kBuckets);
    for (const double step : series.x) steps.include(step);
    for (const double value : series.y) values.include(value);
  }
  const std::string title = escape_html(chart.title);
  if (values.empty())
    return fmt::format("<figure><figcaption>{}</figcaption><p>nothing recorded</p></figure>", title);
  if (chart.from_zero) values.include(0);
  const Scale scale = scale_of(chart.unit, std::max(std::abs(values.low), std::abs(values.high)));
  if (values.low == values.high) values.high = values.low + (values.low == 0 ? 1 : std::abs(values.low));
  if (steps.low == steps.high) steps.high = steps.low + 1;
  const auto ticks_y = round_ticks(values.low / scale.divisor, values.high / scale.divisor, 5);
  const Axis x{steps.low, steps.high, kLeft, kWidth - kRight};
  const Axis y{ticks_y.front(), ticks_y.back(), kHeight - kBottom, kTop};
  std::vector<double> ticks_x = round_ticks(steps.low, steps.high, 7);
  std::erase_if(ticks_x, [&](double t) { return t < steps.low || t > steps.high || t != std::round(t); });
  std::string curves;
  for (size_t i = 0; i < chart.series.size(); ++i)
    curves += fmt::format("<path class=\"curve\" stroke=\"{}\" d=\"{}\"/>", color_of(chart, i),
                          path_of(chart.series[i], x, y, scale.divisor));
  return fmt::format(
      "<figure><figcaption>{}{}</figcaption>{}<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">"
      "{}{}<path class=\"cursor\"/></svg><script type=\"application/json\">{}</script></figure>\n",
      title, scale.unit.empty() ? "" : fmt::format(" <small>{}</small>", scale.unit), legend_of(chart),
      kWidth, kHeight, title, grid_of(ticks_x, ticks_y, x, y), curves, json_of(chart, x, scale));
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\\':
        escaped += "&#92;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace aliquot
