#include "python/bindings/bindings.h"

NB_MODULE(_core, m) {
  using namespace sluice::python;
  m.doc() =
      "The C++ library of Sluice. Import the package sluice, which documents what it exports.";
  bind_errors(m);
  bind_callbacks(m);
  bind_arrays(m);
  bind_tensors(m);
  bind_graphs(m);
  bind_operators(m);
  bind_datasets(m);
  bind_files(m);
  bind_tokens(m);
  bind_loaders(m);
  bind_feeds(m);
  bind_composites(m);
  bind_sessions(m);
}
