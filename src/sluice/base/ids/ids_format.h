#pragma once
#include <fmt/core.h>

#include "sluice/base/ids/id.h"

/// Formats an id as its integer, with "{}" alone.
template <typename Tag, typename Integer>
struct fmt::formatter<sluice::Id<Tag, Integer>> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <typename Context>
  auto format(sluice::Id<Tag, Integer> id, Context& context) const {
    return fmt::format_to(context.out(), "{}", id.value());
  }
};
