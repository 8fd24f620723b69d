#include "sluice/train/checkpoints/checkpoints.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/base/system/folder.h"
#include "sluice/base/test_refusals.h"
#include "sluice/train/checkpoints/checkpoint_folder.h"
#include "sluice/train/checkpoints/test_runs.h"
#include "sluice/train/fit.h"

namespace sluice::train {
namespace {

using test::RunFolder;
using test::RunOptions;
using test::state_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Another layout than that of `saved`: strategies, tiers, threads, feeds.
std::vector<RunOptions> layouts() {
  return {{.threads = 2},
          {.threads = 2, .prefetch = 3},
          {.strategy = phased(), .locations = TensorLocations::phased()},
          {.strategy = phased(),
           .locations = {.optimizer = Location::kRemote, .min_elements_sharded = 4},
           .prefetch = 1},
          {.strategy = pipelined(Stage("hidden").device(0), Stage("out").device(1)), .devices = 2},
          {.locations = {.optimizer = Location::kRemote}}};
}

TEST(Checkpoints, AnyLayoutContinuesWithTheBits) {
  for (const int replicas : {1, 2}) {
    RunOptions plain{.replicas = replicas};
    TrainingModel whole = test::run_model(plain);
    DataLoader data = test::run_data(plain);
    fit(whole, data, {.calls = 9});
    const test::RunState expected = state_of(whole);
    for (RunOptions saved : layouts()) {
      saved.replicas = replicas;
      RunFolder folder;
      TrainingModel first = test::run_model(saved);
      Checkpoints checkpoints(first, {.folder = folder.path(), .save_every = 2});
      DataLoader first_data = test::run_data(saved);
      fit(first, first_data, {.calls = 5, .checkpoints = &checkpoints});
      EXPECT_EQ(checkpoints.newest(), folder.path() + "/step-000000005");
      for (RunOptions other : layouts()) {
        other.replicas = replicas;
        TrainingModel second = test::run_model(other);
        EXPECT_EQ(resume(second, folder.path()).run.updates, 5);
        DataLoader second_data = test::run_data(other);
        fit(second, second_data, {.calls = 4});
        EXPECT_EQ(state_of(second), expected);
      }
    }
  }
}

TEST(Checkpoints, ManyStopsHaveTheBitsOfNone) {
  const RunOptions options;
  TrainingModel whole = test::run_model(options);
  DataLoader data = test::run_data(options);
  fit(whole, data, {.calls = 12});
  RunFolder folder;
  for (int64_t part = 0; part < 6; ++part) {
    TrainingModel model = test::run_model(options);
    if (part > 0) resume(model, folder.path());
    Checkpoints checkpoints(model, {.folder = folder.path()});
    DataLoader rest = test::run_data(options);
    fit(model, rest, {.calls = 2, .checkpoints = &checkpoints});
    EXPECT_EQ(state_of(model) == state_of(whole), part == 5) << "part " << part;
  }
}

TEST(Checkpoints, ALoopByHandContinues) {
  const RunOptions options;
  TrainingModel whole = test::run_model(options);
  DataLoader data = test::run_data(options);
  fit(whole, data, {.calls = 9});
  RunFolder folder;
  const auto train_to = [&](TrainingModel& model, int64_t updates) {
    Checkpoints checkpoints(model, {.folder = folder.path(), .save_every = 3});
    DataLoader loader = test::run_data(options);
    loader.start_at(model);
    while (model.updates() < updates) {
      const data::Element* const item = loader.next();
      if (item == nullptr) {
        loader.start_at(model);
        continue;
      }
      model(*item);
      checkpoints.after_call();
    }
  };
  TrainingModel first = test::run_model(options), second = test::run_model(options);
  train_to(first, 7);
  EXPECT_EQ(resume(second, folder.path()).run.updates, 6);
  EXPECT_EQ(second.run().epoch_samples, 2 * 8);
  train_to(second, 9);
  EXPECT_EQ(state_of(second).variables, state_of(whole).variables);
}

TEST(Checkpoints, BothWaysOfSavingWriteTheSameBytes) {
  std::vector<std::string> files;
  for (const SaveCopy copy : {SaveCopy::kHost, SaveCopy::kNone}) {
    RunFolder folder;
    TrainingModel model = test::run_model({});
    Checkpoints checkpoints(model, {.folder = folder.path(), .copy = copy});
    DataLoader data = test::run_data({});
    fit(model, data, {.calls = 2, .checkpoints = &checkpoints});
    EXPECT_EQ(checkpoints.statistics().saves, 1);
    EXPECT_GT(checkpoints.statistics().bytes, 0);
    const auto bytes = sys::read_file(checkpoints.newest() + "/model-00001-of-00001.safetensors");
    files.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_EQ(files[0], files[1]);
}

TEST(Checkpoints, KeepsTheNewest) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  Checkpoints checkpoints(model, {.folder = folder.path(), .save_every = 2, .keep = 3});
  DataLoader data = test::run_data({});
  fit(model, data, {.calls = 9, .checkpoints = &checkpoints});
  EXPECT_THAT(checkpoints_in(folder.path()), ElementsAre(9, 8, 6));
  EXPECT_THAT(sys::names_in(folder.path()),
              ElementsAre("lock", "step-000000006", "step-000000008", "step-000000009"));
}

TEST(Checkpoints, ATimeIsAnIntervalToo) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  Checkpoints checkpoints(model, {.folder = folder.path(), .save_every_seconds = 0.05, .keep = 9});
  DataLoader data = test::run_data({});
  fit(model, data, {.calls = 1});
  checkpoints.after_call();
  checkpoints.wait();
  EXPECT_THAT(checkpoints_in(folder.path()), IsEmpty());
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  checkpoints.after_call();
  checkpoints.wait();
  EXPECT_THAT(checkpoints_in(folder.path()), ElementsAre(1));
}

TEST(Checkpoints, OptionsThatDecideBitsMustBeEqual) {
  RunFolder folder;
  TrainingModel first = test::run_model({});
  Checkpoints checkpoints(first, {.folder = folder.path(), .options = {{"width", "8"}}});
  DataLoader data = test::run_data({});
  fit(first, data, {.calls = 2, .checkpoints = &checkpoints});
  const auto resume_as = [&](const RunOptions& o, const ResumeOptions& r) {
    return [=, path = folder.path()] {
      TrainingModel model = test::run_model(o);
      resume(model, path, r);
    };
  };
  const std::vector<NamedOption> width = {{"width", "8"}};
  expect_refused({
      {"accumulate", resume_as({.accumulate = 4}, {.options = width}),
       "resume: accumulate must be 2, as in " + folder.path() +
           "/step-000000002, got 4; override accumulate (--override accumulate) to continue with "
           "4"},
      {"seed", resume_as({.seed = 4}, {.options = width}), "resume: seed must be 3"},
      {"the caller's", resume_as({}, {.options = {{"width", "9"}}}), "width must be 8"},
      {"absent", resume_as({}, {}), "width must be 8, as in"},
      {"an unknown override", resume_as({}, {.override = {"acumulate"}, .options = width}),
       "got 'acumulate'"},
      {"another model", resume_as({.width = 9}, {.options = width}), "'hidden.bias' must be (9,)",
       ErrorKind::kBadFile},
  });
}

TEST(Checkpoints, AnOverriddenOptionContinuesAsInMemory) {
  RunFolder folder;
  TrainingModel first = test::run_model({});
  Checkpoints checkpoints(first, {.folder = folder.path()});
  DataLoader data = test::run_data({});
  fit(first, data, {.calls = 3, .checkpoints = &checkpoints});  // 24 of 36 samples of an epoch.

  const RunOptions changed{.accumulate = 3};
  TrainingModel in_memory = test::run_model(changed);
  std::vector<NamedArray> values;
  first.session().each_variable([&](const std::string& path, HostTensor value) {
    values.push_back({path, std::move(value)});
  });
  in_memory.session().restore(values);
  in_memory.continue_run(first.run());
  DataLoader memory_data = test::run_data(changed);
  fit(in_memory, memory_data, {.calls = 4});

  TrainingModel resumed = test::run_model(changed);
  const Resumed r = resume(resumed, folder.path(), {.override = {"accumulate"}});
  EXPECT_THAT(r.changed, ElementsAre("accumulate: 2, now 3"));
  DataLoader resumed_data = test::run_data(changed);
  fit(resumed, resumed_data, {.calls = 4});
  EXPECT_EQ(state_of(resumed), state_of(in_memory));
  EXPECT_EQ(resumed.run().samples, 3 * 8 + 4 * 12);
  EXPECT_EQ(resumed.run().epoch, 1);  // 24 samples, then 12 that begin at the 24th.
}

TEST(Checkpoints, OtherDataAreRefused) {
  RunFolder folder;
  TrainingModel first = test::run_model({});
  Checkpoints checkpoints(first, {.folder = folder.path()});
  DataLoader data = test::run_data({});
  fit(first, data, {.calls = 2, .checkpoints = &checkpoints});
  const auto continue_on = [&](const data::Dataset& dataset, uint64_t seed,
                               const ResumeOptions& options) {
    return [=, path = folder.path()] {
      TrainingModel model = test::run_model({});
      resume(model, path, options);
      DataLoader other(
          model.options(), dataset,
          {.batch_size = test::kRunBatch, .shuffle = data::Shuffle::kYes, .seed = seed});
      fit(model, other, {.calls = 1});
    };
  };
  const data::Dataset other_values = test::dataset(40).skip(3);
  expect_refused({
      {"size", continue_on(test::dataset(50), 7, {}), "data: must be 37 samples"},
      {"order", continue_on(test::dataset(37), 8, {}), "shuffled with seed 7"},
      {"values", continue_on(other_values, 7, {}), "got other values"},
  });
  EXPECT_NO_THROW(continue_on(other_values, 7, {.override = {"data"}})());
  EXPECT_NO_THROW(continue_on(test::dataset(37), 7, {})());
}

TEST(Checkpoints, AFolderHasOneRunAndOneUser) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  {
    Checkpoints checkpoints(model, {.folder = folder.path()});
    expect_refused({{"a second user", [&] { Checkpoints(model, {.folder = folder.path()}); },
                     "must have one user at a time"}});
    DataLoader data = test::run_data({});
    fit(model, data, {.calls = 2, .checkpoints = &checkpoints});
  }
  TrainingModel other = test::run_model({});
  expect_refused({
      {"another run", [&] { Checkpoints(other, {.folder = folder.path()}); },
       "must have no checkpoints but those that the model continues, got " + folder.path() +
           "/step-000000002"},
      {"no folder", [&] { Checkpoints(other, {}); }, "folder must be a path"},
      {"keep", [&] { Checkpoints(other, {.folder = folder.path(), .keep = 0}); },
       "keep must be at least 1, got 0"},
      {"steps", [&] { Checkpoints(other, {.folder = folder.path(), .save_every = -1}); },
       "save_every must be at least 0, got -1"},
      {"seconds",
       [&] {
         Checkpoints(other, {.folder = folder.path(),
                             .save_every_seconds = std::numeric_limits<double>::infinity()});
       },
       "save_every_seconds must be finite"},
      {"none", [&] { resume(other, folder.path() + "/none"); }, "got none",
       ErrorKind::kNoCheckpoint},
  });
  Checkpoints continued(model, {.folder = folder.path()});
  EXPECT_EQ(continued.newest(), folder.path() + "/step-000000002");
}

TEST(Checkpoints, ValuesThatAreNotFiniteAreNotSaved) {
  for (const SaveCopy copy : {SaveCopy::kHost, SaveCopy::kNone}) {
    RunFolder folder;
    TrainingModel model = test::run_model({});
    Checkpoints checkpoints(model, {.folder = folder.path(), .copy = copy});
    DataLoader data = test::run_data({});
    fit(model, data, {.calls = 1});
    HostTensor bias = model.weight("out.bias");
    bias.as<float>()[1] = std::nanf("");
    model.session().write(model.programs().variables["out.bias"], bias);
    expect_refused(
        {{"nan",
          [&] {
            checkpoints.save();
            checkpoints.wait();
          },
          "variable 'out.bias' must be finite, got nan in element 1", ErrorKind::kDiverged}});
    EXPECT_THAT(sys::names_in(folder.path()), ElementsAre("lock"));
    EXPECT_EQ(checkpoints.newest(), "");
  }
}

TEST(Checkpoints, DtypesAreConvertedIfAsked) {
  RunFolder folder;
  TrainingModel first = test::run_model({});
  Checkpoints checkpoints(first, {.folder = folder.path()});
  DataLoader data = test::run_data({});
  fit(first, data, {.calls = 2, .checkpoints = &checkpoints});
  TrainingModel second = test::run_model({.dtype = bf16});
  expect_refused({{"dtype", [&] { resume(second, folder.path()); },
                   "override dtype (--override dtype) to convert it", ErrorKind::kBadFile}});
  resume(second, folder.path(), {.override = {"dtype"}});
  EXPECT_EQ(test::hash_of(second.weight("out.bias")),
            test::hash_of(first.weight("out.bias").cast(bf16)));
}

TEST(Checkpoints, PartsAreBalancedAndNamedLikeThoseOfHuggingFace) {
  VariableSpecs variables;
  for (int i = 0; i < 6; ++i)
    variables.emplace_back(fmt::format("w{}", i), TensorSpec{{10 * (i + 1)}, f32, {}});
  const auto parts = checkpoint_parts(variables, 2, 300);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].file, "model-00001-of-00004.safetensors");
  std::vector<int> processes;
  std::vector<size_t> all;
  for (const CheckpointPart& p : parts) {
    processes.push_back(p.process);
    all.insert(all.end(), p.variables.begin(), p.variables.end());
  }
  EXPECT_THAT(processes, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(index_json(variables, parts), HasSubstr("\"total_size\": 840"));
  EXPECT_THAT(index_json(variables, parts),
              HasSubstr("\"w5\": \"model-00004-of-00004.safetensors\""));
}

TEST(Checkpoints, ErrorsNameTheFlagsOfTheCaller) {
  RunFolder folder;
  TrainingModel first = test::run_model({});
  Checkpoints checkpoints(first, {.folder = folder.path(), .options = {{"width", "8"}}});
  checkpoints.save();
  checkpoints.wait();
  const auto resume_as = [&](const RunOptions& o, std::vector<NamedOption> own,
                             std::vector<std::string> override) {
    return [=, path = folder.path()] {
      TrainingModel model = test::run_model(o);
      return resume(model, path,
                    {.override = override,
                     .options = own,
                     .facts = {{"accumulate", {.flag = "--sum-of"}}, {"width", {"--hidden-size"}}}})
          .changed;
    };
  };
  const std::vector<NamedOption> same = {{"width", "8"}}, wider = {{"width", "9"}};
  const std::string saved = ", as in " + folder.path() + "/step-000000000, got ";
  expect_refused({
      {"the model's", resume_as({.accumulate = 4}, same, {}),
       "--sum-of: must be 2" + saved + "4; add --override sum-of to continue with 4"},
      {"the caller's", resume_as({}, wider, {}),
       "--hidden-size: must be 8" + saved + "9; add --override hidden-size to continue with 9"},
      {"an unknown override", resume_as({}, same, {"hidden"}), "hidden-size, learning_rate"},
  });
  EXPECT_THAT(resume_as({}, wider, {"hidden-size"})(), ElementsAre("--hidden-size: 8, now 9"));
  EXPECT_THAT(resume_as({}, wider, {"width"})(), ElementsAre("--hidden-size: 8, now 9"));
}

}  // namespace
}  // namespace sluice::train
