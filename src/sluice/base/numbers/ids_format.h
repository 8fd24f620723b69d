#pragma once
#include <fmt/format.h>

#include "sluice/base/ids.h"

/// Formats an id as its integer.
template <typename Tag, typename Integer>
struct fmt::formatter<sluice::Id<Tag, Integer>> : fmt::formatter<Integer> {
  template <typename Context>
  auto format(sluice::Id<Tag, Integer> id, Context& context) const {
    return fmt::formatter<Integer>::format(id.value(), context);
  }
};
