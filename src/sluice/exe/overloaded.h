#pragma once

namespace sluice::exe {

/// One callable from several lambdas, for std::visit.
template <typename... T>
struct Overloaded : T... {
  using T::operator()...;
};
template <typename... T>
Overloaded(T...) -> Overloaded<T...>;

}  // namespace sluice::exe
