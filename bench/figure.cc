#include "bench/figure.h"

#include <algorithm>

namespace sluice::bench {
namespace {

struct UnitText {
  std::string_view name;
  double scale;  // Shown: amount · scale, or work / amount · scale for a rate.
  bool rate;
};

UnitText text_of(Unit unit) {
  switch (unit) {
    case Unit::kGigaflops:
      return {"GF/s", 1e-9, true};
    case Unit::kGigabytes:
      return {"GB/s", 1e-9, true};
    case Unit::kNanoseconds:
      return {"ns", 1e9, false};
    case Unit::kMicroseconds:
      return {"us", 1e6, false};
    case Unit::kMilliseconds:
      return {"ms", 1e3, false};
    case Unit::kBytes:
      return {"B", 1, false};
  }
  return {};
}

}  // namespace

std::string_view to_string(Unit unit) { return text_of(unit).name; }

double Case::shown(double amount) const {
  const UnitText text = text_of(unit);
  return (text.rate ? work / amount : amount) * text.scale;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sluice::bench
