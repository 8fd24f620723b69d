#include "sluice/planner/exact/clauses.h"

#include <algorithm>
#include <tuple>

namespace sluice::planner {

int32_t Clauses::add(std::span<const Literal> literals, int32_t glue) {
  int32_t clause = 0;
  if (free_.empty()) {
    clause = static_cast<int32_t>(headers_.size());
    headers_.emplace_back();
  } else {
    clause = free_.back();
    free_.pop_back();
  }
  headers_[clause] = {literals_.size(), static_cast<int32_t>(literals.size()), glue};
  literals_.insert(literals_.end(), literals.begin(), literals.end());
  watches_[literals[0]].push_back({clause, literals[1]});
  watches_[literals[1]].push_back({clause, literals[0]});
  learned_.push_back(clause);
  return clause;
}

void Clauses::sort_by_worth() {
  std::sort(learned_.begin(), learned_.end(), [&](int32_t a, int32_t b) {
    const Header& x = headers_[a];
    const Header& y = headers_[b];
    return std::tuple(x.glue, x.size, x.begin) < std::tuple(y.glue, y.size, y.begin);
  });
}

// Removes the gaps that discarded clauses left in `literals_`. The kept clauses stay in order.
void Clauses::compact() {
  std::vector<int32_t> by_begin = learned_;
  std::sort(by_begin.begin(), by_begin.end(),
            [&](int32_t a, int32_t b) { return headers_[a].begin < headers_[b].begin; });
  size_t end = 0;
  for (const int32_t clause : by_begin) {
    Header& header = headers_[clause];
    const auto from = literals_.begin() + static_cast<std::ptrdiff_t>(header.begin);
    std::copy(from, from + header.size, literals_.begin() + static_cast<std::ptrdiff_t>(end));
    header.begin = end;
    end += static_cast<size_t>(header.size);
  }
  literals_.resize(end);
  for (auto& watches : watches_) {
    std::erase_if(watches, [&](const Watch& watch) { return headers_[watch.clause].size == 0; });
  }
}

}  // namespace sluice::planner
