// Access to variables from outside: read, write, save and load. Also tests which values persist
// between runs and entries.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "../support/mlp.h"
#include "sluice/base/safetensors.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Variables : public testing::Test {
 protected:
  Variables() { std::filesystem::create_directories(folder); }
  ~Variables() override { std::filesystem::remove_all(folder); }
  std::string file(const std::string& name) const { return folder + "/" + name; }

  std::string folder = testing::TempDir() + "sluice_variables_" + std::to_string(::getpid());
  MlpProgram p{{.layers = 2}};
  Session session{p.ir, {.device = cpu_device({.threads = 1})}};
  Tensor weight = p.variables["layer0.fc.weight"];
  Tensor bias = p.variables["layer0.fc.bias"];
};

TEST_F(Variables, ReadAndWrite) {
  HostTensor value(weight.spec());
  for (float& x : value.as<float>()) x = 0.5f;
  session.write(weight, value);
  EXPECT_TRUE(session.read(weight).same_bits(value));
  value.as<float>()[0] = 9;  // The session has its own copy.
  EXPECT_EQ(session.read(weight).as<float>()[0], 0.5f);
  HostTensor copy = session.read(weight);
  copy.as<float>()[0] = 9;
  EXPECT_EQ(session.read(weight).as<float>()[0], 0.5f);
}

TEST_F(Variables, ChunksAreElementsInRowMajorOrder) {
  const float in[] = {1, 2, 3};
  session.write_chunk(weight, 5, std::as_bytes(std::span(in)));
  EXPECT_EQ(session.read(weight).as<float>()[6], 2);
  float out[2];
  session.read_chunk(weight, 6, 2, std::as_writable_bytes(std::span(out)));
  EXPECT_THAT(out, ElementsAre(2, 3));
  const int64_t all = weight.elements();
  error_of(ErrorKind::kUsage,
           [&] { session.read_chunk(weight, all - 1, 2, std::as_writable_bytes(std::span(out))); });
  error_of(ErrorKind::kUsage,
           [&] { session.read_chunk(weight, -1, 2, std::as_writable_bytes(std::span(out))); });
  error_of(ErrorKind::kUsage,
           [&] { session.read_chunk(weight, 0, 3, std::as_writable_bytes(std::span(out))); });
  error_of(ErrorKind::kUsage,
           [&] { session.write_chunk(weight, all - 2, std::as_bytes(std::span(in))); });
}

TEST_F(Variables, RefusesWhatDoesNotMatch) {
  const std::string shape =
      error_of(ErrorKind::kUsage, [&] { session.write(weight, HostTensor(bias.spec())); });
  EXPECT_THAT(shape,
              AllOf(HasSubstr("layer0.fc.weight"), HasSubstr("(24, 24)"), HasSubstr("(24,)")));
  const std::string dtype =
      error_of(ErrorKind::kUsage, [&] { session.write(weight, session.read(weight).cast(f16)); });
  EXPECT_THAT(dtype, AllOf(HasSubstr("float32"), HasSubstr("float16")));
  const MlpProgram other({.layers = 2});
  EXPECT_THAT(
      error_of(ErrorKind::kUsage, [&] { session.read(other.variables["layer0.fc.weight"]); }),
      HasSubstr("not a variable of this session"));
  const Graph& train = weight.graph();
  const Tensor loaded = train.handle(train.ops()[1].outputs.front());  // Not a variable.
  error_of(ErrorKind::kUsage, [&] { session.read(loaded); });
}

TEST_F(Variables, WriteOfSeveralIsAllOrNothing) {
  const auto before = all_bytes(session);
  error_of(ErrorKind::kUsage, [&] {
    session.write({{bias, HostTensor::of<float>({24}, f32, std::vector<float>(24, 3))},
                   {weight, HostTensor(bias.spec())}});
  });
  EXPECT_EQ(all_bytes(session), before);
}

TEST_F(Variables, SaveAndLoadGiveTheSameBits) {
  train(session, p, 5);
  session.save(file("w.safetensors"));
  Session other(p.ir, {.device = cpu_device({.threads = 2})});
  EXPECT_NE(all_bytes(other), all_bytes(session));
  EXPECT_THAT(other.load(file("w.safetensors")), ElementsAre());
  EXPECT_EQ(all_bytes(other), all_bytes(session));
  EXPECT_EQ(train(other, p, 5, 5), train(session, p, 5, 5));
}

TEST_F(Variables, LoadRefusesMissingAndOtherSpecsAndNamesUnknownOnes) {
  session.save(file("w.safetensors"));
  auto arrays = read_safetensors_file(file("w.safetensors"));
  const auto before = all_bytes(session);

  auto more = arrays;
  more.push_back({"not.a.variable", HostTensor::scalar(1)});
  write_safetensors_file(file("more"), more);
  EXPECT_THAT(session.load(file("more")), ElementsAre("not.a.variable"));

  auto fewer = arrays;
  const std::string gone = fewer.back().name;
  fewer.pop_back();
  for (float& x : fewer[0].array.as<float>()) x = 1;
  write_safetensors_file(file("fewer"), fewer);
  EXPECT_THAT(error_of(ErrorKind::kBadFile, [&] { session.load(file("fewer")); }), HasSubstr(gone));

  auto other = arrays;
  other[0].array = HostTensor(f32_spec({1}));
  write_safetensors_file(file("other"), other);
  EXPECT_THAT(error_of(ErrorKind::kBadFile, [&] { session.load(file("other")); }),
              AllOf(HasSubstr(other[0].name), HasSubstr("(1,)")));

  EXPECT_THAT(error_of(ErrorKind::kIo, [&] { session.load(file("nowhere")); }),
              HasSubstr("nowhere"));
  error_of(ErrorKind::kIo, [&] { session.save(folder + "/no/such/folder/w"); });
  EXPECT_EQ(all_bytes(session), before) << "a refused file must change nothing";
}

TEST_F(Variables, LoadOfSomeVariablesListsTheOthers) {
  train(session, p, 2);
  session.save(file("w.safetensors"));
  auto arrays = read_safetensors_file(file("w.safetensors"));
  std::erase_if(arrays, [](const NamedArray& a) { return a.name == "layer1.fc.bias"; });
  arrays.push_back({"not.a.variable", HostTensor::scalar(1)});
  write_safetensors_file(file("fewer"), arrays);
  Session other(p.ir, {.device = cpu_device({.threads = 1})});
  const HostTensor first = other.read(p.variables["layer1.fc.bias"]);
  EXPECT_THAT(error_of(ErrorKind::kBadFile, [&] { other.load(file("fewer"), {}); }),
              HasSubstr("variable 'layer1.fc.bias' is missing; to keep its value, load without "
                        "LoadOptions::strict (--load-strict no)"));
  const LoadResult loaded = other.load(file("fewer"), {.strict = false});
  EXPECT_THAT(loaded.missing, ElementsAre("layer1.fc.bias"));
  EXPECT_THAT(loaded.unused, ElementsAre("not.a.variable"));
  EXPECT_TRUE(other.read(p.variables["layer1.fc.bias"]).same_bits(first));
  EXPECT_TRUE(other.read(weight).same_bits(session.read(weight)));
  // Another shape stays an error.
  arrays[0].array = HostTensor(f32_spec({1}));
  write_safetensors_file(file("other"), arrays);
  EXPECT_THAT(error_of(ErrorKind::kBadFile, [&] { other.load(file("other"), {.strict = false}); }),
              AllOf(HasSubstr("(10,)"), HasSubstr("(1,)")));
}

TEST_F(Variables, LoadOfRenamedTensors) {
  train(session, p, 2);
  session.save(file("w.safetensors"));
  auto arrays = read_safetensors_file(file("w.safetensors"));
  for (NamedArray& a : arrays) {
    if (a.name == "layer0.fc.bias") a.name = "first";
    if (a.name.starts_with("layer")) a.name = "old." + a.name.substr(5);
  }
  write_safetensors_file(file("renamed"), arrays);
  Session other(p.ir, {.device = cpu_device({.threads = 1})});
  const LoadResult loaded =
      other.load(file("renamed"), {.names = {{"old.*", "layer*"}, {"first", "layer0.fc.bias"}}});
  EXPECT_THAT(loaded.missing, ElementsAre());
  EXPECT_THAT(loaded.unused, ElementsAre());
  EXPECT_EQ(all_bytes(other), all_bytes(session));
  // A name precedes patterns, and an empty path leaves a tensor out without listing it.
  const LoadResult some =
      other.load(file("renamed"),
                 {.strict = false,
                  .names = {{"old.*", "layer*"}, {"old.0.fc.weight", ""}, {"first", "none"}}});
  EXPECT_THAT(some.missing, ElementsAre("layer0.fc.bias", "layer0.fc.weight"));
  EXPECT_THAT(some.unused, ElementsAre("first"));
}

TEST_F(Variables, LoadRefusesWrongNames) {
  session.save(file("w.safetensors"));
  const auto before = all_bytes(session);
  const auto refusal = [&](const std::map<std::string, std::string>& names) {
    return error_of(ErrorKind::kUsage,
                    [&] { session.load(file("w.safetensors"), {.names = names}); });
  };
  EXPECT_THAT(refusal({{"layer9.*", "layer0.*"}}),
              AllOf(HasSubstr("load: 'layer9.*' must match a tensor of "), HasSubstr("got none")));
  EXPECT_THAT(refusal({{"layer0.*", "*.*"}}),
              HasSubstr("load: a name must have one '*' or none, got '*.*'"));
  EXPECT_THAT(refusal({{"layer0.fc.bias", "*"}}),
              HasSubstr("the path '*' must be without '*', as the name 'layer0.fc.bias' is"));
  EXPECT_THAT(refusal({{"layer0.*", "layer1.*"}}),
              HasSubstr("load: variable 'layer1.fc.bias' must be set by one tensor of "));
  EXPECT_THAT(refusal({{"layer0.*", "a.*"}, {"*.bias", "b.*"}}),
              HasSubstr("'layer0.fc.bias' must match one name with '*', got '*.bias' and "
                        "'layer0.*'"));
  EXPECT_EQ(all_bytes(session), before) << "a refused file must change nothing";
}

TEST_F(Variables, StateStaysFromRunToRun) {
  // Two runs of five steps equal one run of ten.
  Session other(p.ir, {.device = cpu_device({.threads = 1})});
  std::vector<float> halves = train(session, p, 5);
  const std::vector<float> second = train(session, p, 5, 5);
  halves.insert(halves.end(), second.begin(), second.end());
  EXPECT_EQ(halves, train(other, p, 10));
  EXPECT_EQ(all_bytes(session), all_bytes(other));
}

double accuracy(const HostTensor& logits, const HostTensor& labels) {
  int64_t right = 0;
  const int64_t classes = logits.shape()[1];
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const auto row =
        logits.as<float>().subspan(static_cast<size_t>(i * classes), static_cast<size_t>(classes));
    right += std::max_element(row.begin(), row.end()) - row.begin() ==
             labels.as<int32_t>()[static_cast<size_t>(i)];
  }
  return static_cast<double>(right) / static_cast<double>(labels.elements());
}

TEST_F(Variables, EntriesShareThemAndATestProgramGetsTheSameAccuracy) {
  const std::vector<float> losses = train(session, p, 300);
  EXPECT_LT(losses.back(), losses.front());

  // A separate program with a copy of the weights.
  Ir test_ir;
  Graph& main = test_ir.main_graph();
  const H2dStream image = test_ir.h2d_stream(p.eval_image.spec, "image");
  const Tensor x = main.host_load(image);
  const auto [factories, graph] = nn::create_graph(test_ir, Mlp(p.options), x);
  const nn::NamedTensors weights = factories.init(main);
  const D2hStream logits = main.host_store(graph.bind(weights).call(x)[0], "logits");
  Session test(test_ir, {.device = cpu_device({.threads = 1})});
  for (const auto& [key, variable] : p.variables.to_dict())
    test.write(weights[key], session.read(variable));

  double here = 0;
  double there = 0;
  for (uint64_t i = 1000; i < 1020; ++i) {
    const Batch batch(p.options, i);
    const HostTensors results = session.run({{p.eval_image, batch.image}}, "eval");
    const HostTensors carried = test.run({{image, batch.image}});
    EXPECT_TRUE(results[p.logits].same_bits(carried[logits]));
    here += accuracy(results[p.logits], batch.labels) / 20;
    there += accuracy(carried[logits], batch.labels) / 20;
  }
  EXPECT_EQ(here, there);
  EXPECT_GT(here, 0.3);  // Chance is 0.1, with ten classes.
}

}  // namespace
}  // namespace sluice::test
