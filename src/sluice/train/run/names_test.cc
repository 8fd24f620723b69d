// Names are the user's: no plan and no report reads a role or a structure out of them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sluice/base/rng.h"
#include "sluice/report/report.h"
#include "sluice/train/cut/test_networks.h"

namespace sluice::train {
namespace {

// Names that occur in the compiler's own graphs and tensors, and their plain counterparts. Each
// list is in alphabetical order, in which variables are made. Blocks may have any name.
struct NamedParts {
  std::array<const char*, 7> keys;  // Modules and variables.
  std::array<const char*, 7> blocks;
};
constexpr NamedParts kWorst{
    {"FirstStep", "Gradient___x", "accum", "micro_batch", "rows", "w_bwd", "x_subgraph"},
    {"AdamStep", "accum.x", "größe y", "micro_batch 2", "rows z", "v_bwd", "x__repeat_graph"}};
constexpr NamedParts kPlain{
    {"Plain0", "Plain1", "Plain2", "Plain3", "Plain4", "Plain5", "Plain6"},
    {"Simple0", "Simple1", "Simple2", "Simple3", "Simple4", "Simple5", "Simple6"}};

HostTensor values(uint64_t& state, const Shape& shape) {
  HostTensor t({shape, f32, {}});
  for (float& x : t.as<float>()) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    x = static_cast<float>(static_cast<double>(state >> 40) / (1 << 24) - 0.5);
  }
  return t;
}

// A chain of blocks with one weight each; some skip a block, some are equal.
Network random_network(uint64_t seed, const NamedParts& names) {
  return network([=](nn::Builder& b, const Inputs& in) {
    uint64_t state = seed * 2 + 1;
    const auto choice = [&](uint64_t n) {
      return static_cast<size_t>(values(state, {1}).as<float>()[0] * 1e6F + 1e6F) % n;
    };
    Tensor x = in["x"], before = x;
    const size_t blocks = 3 + choice(4);
    for (size_t i = 0; i <= blocks; ++i) {
      const nn::Block block(b, names.blocks[i]);
      const bool last = i == blocks;
      const HostTensor first = values(state, {kWidth, last ? 3 : kWidth});
      const size_t kind = choice(3);
      const auto layer = [&](nn::Builder& own) {
        const Tensor y =
            ops::matmul(x, own.add_variable_input(names.keys[(i + 2) % names.keys.size()],
                                                  nn::array(first), first.shape()));
        if (last) return y;
        return kind == 0 ? ops::gelu(y) : kind == 1 ? ops::tanh(y) : y + before;
      };
      struct Layer : nn::Module {
        explicit Layer(std::function<Tensor(nn::Builder&)> f) : f(std::move(f)) {}
        Tensor build(nn::Builder& own) const { return f(own); }
        std::function<Tensor(nn::Builder&)> f;
      };
      before = std::exchange(x, b.inlined(names.keys[i], Layer(layer)));
      if (last) return results(in, x);
    }
    return Results();
  });
}

// Replaces the plain names, which occur nowhere else.
std::string with_worst_names(std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  for (size_t i = 0; i < kPlain.keys.size(); ++i) {
    replace(kPlain.keys[i], kWorst.keys[i]);
    replace(kPlain.blocks[i], kWorst.blocks[i]);
  }
  return text;
}

// The bytes of a program on the host include its names.
std::string without_program_bytes(std::string json) {
  const std::string key = "\"program_bytes\":";
  for (size_t at = 0; (at = json.find(key, at)) != std::string::npos;) {
    at += key.size();
    json.erase(at, json.find_first_not_of("0123456789", at) - at);
  }
  return json;
}

struct Outcome {
  std::string report;
  std::string computes;
  std::vector<std::string> variables;
};

Outcome outcome(const Network& n, const Options& options, size_t more_devices) {
  Ir ir;
  const Training t = build_training(ir, n, nn::Optimizer::adam(), options);
  Session session(ir, {.device = cpu_device(),
                       .more_devices = std::vector(more_devices, cpu_device()),
                       .remote = "host"});
  StepArrays arrays(t);
  for (HostTensor& field : arrays.fields) {
    uint64_t state = 7;
    if (field.dtype() == f32) field = values(state, field.shape());
  }
  arrays.seed(3, 0);
  session.run(arrays.inputs(t), "train");
  report::Report r = report::make_report(session.executable(), {});
  Outcome result{without_program_bytes(report::to_json(r)), {}, {}};
  session.each_variable([&](const std::string&, const HostTensor& value) {
    Digest digest;
    digest.add(value.bytes());
    result.variables.push_back(digest.hex());
  });
  return result;
}

TEST(Names, ChangeNeitherPlansNorReports) {
  const char* const count = std::getenv("SLUICE_NAMED_NETWORKS");
  const int networks = count == nullptr ? 20 : std::atoi(count);
  for (int seed = 0; seed < networks; ++seed) {
    Options options{.accumulate = 1 + seed % 3};
    const Strategy strategies[] = {resident(), phased(), PipelinedExecution{}};
    options.strategy = strategies[seed % 3];
    options.recompute.all = seed % 2 == 1;
    if (seed % 3 == 1) options.locations.activations = seed % 4 < 2 ? kRemote : Location::kDevice;
    const size_t more = seed % 3 == 2 ? kWorst.keys.size() - 1 : 0;
    const Outcome plain =
        outcome(random_network(static_cast<uint64_t>(seed), kPlain), options, more);
    const Outcome worst =
        outcome(random_network(static_cast<uint64_t>(seed), kWorst), options, more);
    EXPECT_EQ(worst.report, with_worst_names(plain.report)) << "network " << seed;
    EXPECT_EQ(worst.variables, plain.variables) << "network " << seed;
  }
}

}  // namespace
}  // namespace sluice::train
