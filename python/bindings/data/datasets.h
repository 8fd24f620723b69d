#pragma once
#include <utility>
#include <vector>

#include "python/bindings/callbacks.h"
#include "sluice/data/dataset.h"

namespace sluice::python {

/// A dataset as Python holds it. It keeps the callables of its sources and maps.
struct DatasetHandle : KeepsObjects {
  data::Dataset dataset;

  explicit DatasetHandle(data::Dataset made, std::vector<nb::object> objects = {})
      : KeepsObjects{std::move(objects)}, dataset(std::move(made)) {}
};

}  // namespace sluice::python
