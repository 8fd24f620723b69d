// LSTM and GRU must equal PyTorch's, with their gradients. recurrent.py computes the stored
// file.
#include "sluice/nn/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "sluice/base/safetensors.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/nn/autodiff.h"

namespace sluice::test {
namespace {

constexpr const char* kFile = "tests/models/recurrent.safetensors";
constexpr double kTolerance = 3e-6;

using Arrays = std::map<std::string, HostTensor>;

void expect_close(const HostTensor& got, const HostTensor& want, const std::string& what) {
  ASSERT_EQ(to_string(got.spec()), to_string(want.spec())) << what;
  const std::vector<double> a = got.to_doubles(), b = want.to_doubles();
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], kTolerance * std::max(1.0, std::abs(b[i]))) << what << " " << i;
}

std::pair<nn::NamedVariableFactories, nn::GraphWithNamedArgs> graph_of(
    const Ir& ir, const std::string& kind, const nn::RecurrentOptions& o, const Arrays& arrays,
    const std::string& name, bool states) {
  const TensorSpec x = arrays.at(name + ".x").spec();
  if (!states && kind == "LSTM") return nn::create_graph(ir, nn::LSTM(o), x);
  if (!states) return nn::create_graph(ir, nn::GRU(o), x);
  const TensorSpec h = arrays.at(name + ".h").spec();
  if (kind == "LSTM") return nn::create_graph(ir, nn::LSTM(o), x, h, h);
  return nn::create_graph(ir, nn::GRU(o), x, h);
}

TEST(Recurrent, LayersArePyTorchs) {
  SafetensorsMetadata metadata;
  Arrays arrays;
  for (NamedArray& a : read_safetensors_file(kFile, &metadata))
    arrays.emplace(a.name, std::move(a.array));
  ASSERT_EQ(metadata.size(), 6u);
  for (const auto iterations :
       {transforms::Iterations::kKeep, transforms::Iterations::kRecompute}) {
    for (const auto& [name, text] : metadata) {
      SCOPED_TRACE(text);
      std::istringstream in(text);
      std::string kind;
      nn::RecurrentOptions o;
      bool states = false;
      in >> kind >> o.hidden >> o.layers >> o.bidirectional >> o.batch_first >> o.bias >> states;
      Ir ir;
      const auto [factories, forward] = graph_of(ir, kind, o, arrays, name, states);
      std::vector<std::string> keys{"x"};
      if (states) keys.emplace_back("h");
      if (states && kind == "LSTM") keys.emplace_back("c");
      for (const std::string& key : factories.keys_flat()) keys.push_back(key);
      std::vector<HostTensor> inputs;
      for (const std::string& key : keys) inputs.push_back(arrays.at(name + "." + key));
      EXPECT_EQ(forward.graph().inputs().size(), inputs.size());

      const nn::GraphWithNamedArgs backward = nn::autodiff(forward, {.iterations = iterations});
      Graph& step = ir.create_empty_graph("step");
      Tensors arguments;
      Tensors gradients;
      for (const HostTensor& a : inputs) arguments.push_back(step.input(a.spec()));
      const size_t results = kind == "LSTM" ? 3 : 2;
      for (size_t i = 0; i < results; ++i) {
        inputs.push_back(arrays.at(fmt::format("{}.d_result.{}", name, i)));
        gradients.push_back(step.input(inputs.back().spec()));
      }
      const CallSiteInfo call = ops::call_with_info(step, forward.graph(), arguments);
      Tensors outputs = call.outputs();
      outputs.resize(results);
      const Tensors made = ops::call(step, backward.graph(), gradients,
                                     backward.grad_graph_info().inputs_dict(call));
      outputs.insert(outputs.end(), made.begin(), made.end());
      step.set_outputs(outputs);
      verify(ir);
      const std::vector<HostTensor> got = Interpreter(ir).evaluate(step, inputs);
      for (size_t i = 0; i < results; ++i)
        expect_close(got[i], arrays.at(fmt::format("{}.result.{}", name, i)), "result");
      for (size_t i = 0; i < keys.size(); ++i)
        expect_close(got[results + i], arrays.at(name + ".grad." + keys[i]), keys[i]);
    }
  }
}

}  // namespace
}  // namespace sluice::test
