#include "sluice/ir/tensor.h"

#include "sluice/ir/ir.h"

namespace sluice {

Graph& Tensor::graph() const {
  require(valid(), "tensor: the handle is empty");
  const auto ir = ir_.lock();
  require(ir != nullptr, "tensor: its Ir no longer exists");
  return *ir->graphs[graph_];
}

const std::string& Tensor::name() const { return graph().info(id_).name; }
const TensorSpec& Tensor::spec() const { return graph().info(id_).spec; }

bool Tensor::operator==(const Tensor& other) const {
  return ir_id_ == other.ir_id_ && graph_ == other.graph_ && id_ == other.id_;
}

size_t Tensor::hash() const {
  return std::hash<uint64_t>{}((ir_id_ * 1000003u + static_cast<uint64_t>(graph_)) *
                                   0x9e3779b97f4a7c15u +
                               static_cast<uint64_t>(id_));
}

std::string to_string(const Tensor& t) {
  const Graph& g = t.graph();
  return fmt::format("Tensor[{}{} popxl.dtypes.{} {}]", g.is_entry() ? "" : g.name() + "/",
                     t.name(), name_of(t.dtype()), to_string(t.shape()));
}

}  // namespace sluice
