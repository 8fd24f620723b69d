/// Lesson 4: names with dots form trees of tensors.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

int main() {
  Ir ir;
  Graph& main = ir.main_graph();
  auto [factories, linear] = nn::create_graph(ir, nn::Linear(32), TensorSpec{{2, 4}, f32});
  nn::NamedTensors variables = factories.init(main);
  nn::NamedTensors variables2 = factories.init(main);
  Tensor x = main.variable({{2, 4}, f32}, nn::uniform(0, 1), "x");

  fmt::print("----- DotTree functionalities -----\n\n");
  nn::NamedTensors collection;  // empty
  collection.insert("layer1", variables);
  collection.insert("layer2", variables2);
  fmt::print("A nested collection: the nested structure appear from the dot structure of names\n");
  fmt::print("{}\n\n", to_string(collection));
  fmt::print("Each leaf can be accessed with dot syntax: collection.layer1\n");
  fmt::print("{}\n", to_string(collection.tree("layer1")));
  auto dict = collection.to_dict();  // Maps dotted names to tensors.

  auto named = nn::NamedTensors::from_dict({{"x", x}});
  auto biases = nn::NamedTensors::from_dict({{"b", variables["bias"]}});
  named.update(biases);  // Keys must not repeat.

  auto packed = nn::NamedTensors::pack({"new_bias_name", "new_weight_name"}, variables.tensors());
  auto [names, tensors] = packed.unpack();

  fmt::print("\n\n");
  fmt::print("----- NamedTensors -----\n\n");
  fmt::print("{}\n\n", to_string(nn::NamedTensors::from_dict(collection.named_tensors())));
  fmt::print("Get only tensors, sorted by name\n");
  fmt::print("{}\n", nn::to_string(collection.tensors()));
}
