#include "sluice/cpu/fused/loop.h"

#include <cstring>
#include <tuple>
#include <type_traits>

namespace sluice::cpu {
namespace {

template <typename... Stages>
LoopType type_of(std::type_identity<Loop<Stages...>>) {
  using L = Loop<Stages...>;
  static_assert(sizeof(L) <= LoopType::kMaxBytes && std::is_trivially_copyable_v<L>);
  static_assert(L::kStages <= LoopType::kMaxStages);
  static_assert(L::kOutputs <= LoopType::kMaxOutputs && L::operands() <= kMaxMapInputs);
  LoopType type;
  const auto add = [&]<typename Stage>(std::type_identity<Stage>) {
    using F = typename Stage::Functor;
    std::string_view variant;
    if constexpr (requires { F::kVariant; }) variant = F::kVariant;
    type.stages.push_back({F::kType, variant, Stage::kIsStored, Stage::kInputs});
  };
  (add(std::type_identity<Stages>{}), ...);
  type.operands = L::operands();
  type.make = [](const void* const* functors, void* to) {
    L loop;
    loop.functors.set(functors);
    std::memcpy(to, &loop, sizeof loop);
  };
  type.kernel = map_kernel<L>(current_isa());
  return type;
}

template <typename... Types>
std::vector<LoopType> types_of(std::type_identity<std::tuple<Types...>>) {
  return {type_of(std::type_identity<Types>{})...};
}

}  // namespace

std::span<const LoopType> loop_types() {
  static const std::vector<LoopType> types = types_of(std::type_identity<Loops>{});
  return types;
}

}  // namespace sluice::cpu
