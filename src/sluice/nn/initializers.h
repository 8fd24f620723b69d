#pragma once
#include "sluice/ir/initializer.h"

namespace sluice::nn {

/// Rules for the first value of a variable. Random ones get their key when the variable is made.
inline Initializer zeros() { return Initializer::constant(0); }
inline Initializer ones() { return Initializer::constant(1); }
inline Initializer constant(double value) { return Initializer::constant(value); }
/// mean + deviation · standard normal.
inline Initializer normal(double mean, double deviation) {
  return Initializer::normal(mean, deviation);
}
/// The same, redrawn beyond two deviations.
inline Initializer truncated_normal(double mean, double deviation) {
  return Initializer::truncated_normal(mean, deviation);
}
inline Initializer uniform(double low, double high) { return Initializer::uniform(low, high); }
inline Initializer array(HostTensor value) { return Initializer::array(std::move(value)); }

}  // namespace sluice::nn
