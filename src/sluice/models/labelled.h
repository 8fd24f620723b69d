#pragma once
#include <utility>

#include "sluice/data/samples.h"
#include "sluice/models/model.h"

namespace sluice::models {

/// Returns labelled samples with the fields of a classifier, "input" and "labels".
inline SampleSet labelled(data::Samples samples) {
  const int64_t size = samples.size();
  return {data::from_samples(std::move(samples)), size};
}

/// Data::load of a function that reads labelled samples of a folder.
template <data::Samples (*kLoad)(const std::string&, data::Split)>
SampleSet load_labelled(const std::string& folder, data::Split split, const Sizes&, uint64_t) {
  return labelled(kLoad(folder, split));
}

/// Data::generate of a function that generates labelled samples.
template <data::Samples (*kGenerate)(int64_t, uint64_t)>
SampleSet generate_labelled(int64_t samples, uint64_t seed, const Sizes&) {
  return labelled(kGenerate(samples, seed));
}

}  // namespace sluice::models
