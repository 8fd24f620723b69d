// Runs that are saved and continued at moments and in states that are easily forgotten.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>

#include "sluice/base/failpoint.h"
#include "sluice/base/hash.h"
#include "sluice/base/sys.h"
#include "sluice/base/test_refusals.h"
#include "sluice/train/checkpoints/checkpoint_folder.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "sluice/train/checkpoints/test_runs.h"
#include "sluice/train/fit.h"
#include "sluice/train/model_state.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using test::RunFolder;

// Samples for validations of a model.
struct Validation {
  explicit Validation(TrainingModel& training)
      : model(inference_model(training)),
        data(model.options(), test::dataset(16), {.batch_size = model.call_size().micro_batch}) {}

  FitOptions options(FitOptions o) {
    o.validation_model = &model;
    o.validation_data = &data;
    o.patience = 100;
    o.metric = "accuracy";
    return o;
  }
  InferenceModel model;
  DataLoader data;
};

TEST(Runs, ARequestInACallbackSavesAfterTheValidation) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  Validation validation(model);
  Checkpoints checkpoints(model, {.folder = folder.path()});
  DataLoader data = test::run_data({});
  const auto request = [&](const CallReport& report) {
    if (report.call == 2) checkpoints.request_save();
    return true;
  };
  fit(model, data,
      validation.options(
          {.calls = 3, .validate_every = 2, .checkpoints = &checkpoints, .after_call = request}));
  const std::vector<CheckpointInfo> saved = inspect_checkpoints(folder.path());
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved[1].run.updates, 2);
  EXPECT_EQ(saved[1].run.best.updates, 2);
}

TEST(Runs, AStopAtTheEndOfAnEpochHasItsValidation) {
  TrainingModel model = test::run_model({});
  Validation validation(model);
  DataLoader data = test::run_data({});
  const int64_t items = *data.items();
  const auto stop = [&](const CallReport& report) { return report.call != items; };
  fit(model, data, validation.options({.epochs = 2, .after_call = stop}));
  EXPECT_EQ(model.run().best.updates, items);
}

TEST(Runs, InfiniteValuesAreRead) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  train::Run run = model.run();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  run.best = {"perplexity", kInfinity, 2, 0};
  run.plateau.best = -kInfinity;
  run.coefficients = {kInfinity, 0.1, -0.0};
  run.log = "run-3";
  std::ofstream(folder.path() + "/run.json") << to_json(run);
  EXPECT_EQ(read_run(folder.path() + "/run.json"), run);
}

TEST(Runs, DamagedMembersAreRefused) {
  RunFolder folder;
  const std::string path = folder.path() + "/run.json";
  const auto read = [&](const char* text) {
    return [=] {
      std::ofstream(path) << text;
      read_run(path);
    };
  };
  const ErrorKind bad = ErrorKind::kBadFile;
  expect_refused({{"count", read(R"({"updates": 9223372036854775807})"), "updates: must be", bad},
                  {"negative", read(R"({"epoch": -1})"), "epoch: must be", bad},
                  {"log", read(R"({"log": "../evil"})"), "log: must be '.' or run-N", bad},
                  {"number", read(R"({"best.value": "x"})"), "best.value: must be a number", bad},
                  {"option", read(R"({"options": ["x"]})"), "must be NAME=VALUE", bad},
                  {"other", read(R"({"steps": 1})"), "got 'steps'", bad}});
}

TEST(Runs, CoefficientsOfAnotherOptimizerAreLeftOut) {
  TrainingModel model = test::run_model({});
  train::Run run = model.run();
  run.coefficients = {0.5};
  model.continue_run(run);
  DataLoader data = test::run_data({});
  EXPECT_NO_THROW(fit(model, data, {.calls = 1}));
}

TEST(Runs, OtherDataBeginWithAnEpoch) {
  TrainingModel model = test::run_model({});
  DataLoader data = test::run_data({});
  fit(model, data, {.calls = 2});
  DataLoader other(Options{.accumulate = 2}, test::dataset(61), {.batch_size = test::kRunBatch});
  fit(model, other, {.calls = 1});
  EXPECT_EQ(other.position(), 1);
  EXPECT_EQ(model.run().epoch, 1);
}

TEST(Runs, CallbacksBeforeSavesRemain) {
  RunFolder folder, log;
  TrainingModel model = test::run_model({});
  Checkpoints checkpoints(model, {.folder = folder.path(), .save_every = 1});
  int saves = 0;
  checkpoints.before_each_save([&] { ++saves; });
  DataLoader data = test::run_data({});
  fit(model, data, {.calls = 2, .checkpoints = &checkpoints, .log_dir = log.path()});
  EXPECT_EQ(saves, 2);
  fit(model, data, {.calls = 1, .checkpoints = &checkpoints});
  EXPECT_EQ(saves, 3);
}

void cut_variables(const std::string& checkpoint) {
  fs::resize_file(checkpoint + "/model-00001-of-00001.safetensors", 100);
}

TEST(Runs, ADamagedCheckpointOfTheSameStepIsReplaced) {
  RunFolder first, copy;
  TrainingModel model = test::run_model({});
  DataLoader data = test::run_data({});
  {
    Checkpoints checkpoints(model, {.folder = first.path()});
    fit(model, data, {.calls = 2, .checkpoints = &checkpoints});
  }
  fs::copy(first.path(), copy.path(), fs::copy_options::recursive);
  cut_variables(copy.path() + "/step-000000002");
  TrainingModel second = test::run_model({});
  resume(second, first.path());
  Checkpoints checkpoints(second, {.folder = copy.path()});
  checkpoints.save();
  checkpoints.wait();
  EXPECT_EQ(inspect_checkpoints(checkpoints.newest()).at(0).damage, "");
}

TEST(Runs, CheckpointsOfAnotherRunRemain) {
  RunFolder theirs, own;
  TrainingModel other = test::run_model({.seed = 9}), model = test::run_model({});
  DataLoader data = test::run_data({});
  for (auto [m, folder] : {std::pair(&other, &theirs), std::pair(&model, &own)}) {
    Checkpoints checkpoints(*m, {.folder = folder->path()});
    fit(*m, data, {.calls = m == &other ? 2 : 5, .checkpoints = &checkpoints});
  }
  expect_refused({{"fewer updates", [&] { Checkpoints(model, {.folder = theirs.path()}); },
                   "must have no checkpoints but those that the model continues"}});
  EXPECT_EQ(checkpoints_in(theirs.path()), std::vector<int64_t>{2});
  // A run of no updates continues, too.
  RunFolder empty;
  TrainingModel fresh = test::run_model({}), later = test::run_model({});
  {
    Checkpoints checkpoints(fresh, {.folder = empty.path()});
    checkpoints.save();
    checkpoints.wait();
  }
  resume(later, empty.path());
  EXPECT_NO_THROW(Checkpoints(later, {.folder = empty.path()}));
}

TEST(Runs, FoldersOfTheUserRemain) {
  RunFolder folder;
  fs::create_directories(folder.path() + "/.tmp-mine/sub");
  fs::create_directories(folder.path() + "/.tmp-step-000000003");
  TrainingModel model = test::run_model({});
  Checkpoints checkpoints(model, {.folder = folder.path()});
  EXPECT_TRUE(fs::exists(folder.path() + "/.tmp-mine/sub"));
  EXPECT_FALSE(fs::exists(folder.path() + "/.tmp-step-000000003"));
}

TEST(Runs, AFailedCopyIsNoCheckpoint) {
  RunFolder folder, remote;
  Options options{.accumulate = 2, .locations = {.optimizer = Location::kRemote}};
  options.session.device = cpu_device({.threads = 1});
  options.session.remote = "file:" + remote.path();
  TrainingModel model = training_model(test::run_network({}), options, nn::Optimizer::adam());
  DataLoader data = test::run_data({});
  fit(model, data, {.calls = 1});
  Checkpoints checkpoints(model, {.folder = folder.path()});
  sys::set_failpoint({.call = "pread", .number = 1, .code = EIO});
  expect_refused({{"a tier", [&] { checkpoints.save(); }, "cannot read", ErrorKind::kIo}});
  sys::clear_failpoint();
  EXPECT_EQ(checkpoints.newest(), "");
  checkpoints.save();
  checkpoints.wait();
  EXPECT_EQ(inspect_checkpoints(checkpoints.newest()).at(0).damage, "");
}

TEST(Runs, AFailedRemovalLeavesTheNewCheckpoint) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  DataLoader data = test::run_data({});
  Checkpoints checkpoints(model, {.folder = folder.path(), .keep = 1});
  fit(model, data, {.calls = 1, .checkpoints = &checkpoints});
  fit(model, data, {.calls = 1});
  sys::set_failpoint({.call = "rmdir", .number = 1, .code = EIO});
  expect_refused({{"rmdir",
                   [&] {
                     checkpoints.save();
                     checkpoints.wait();
                   },
                   "cannot remove", ErrorKind::kIo}});
  sys::clear_failpoint();
  EXPECT_EQ(checkpoints.newest(), folder.path() + "/step-000000002");
  EXPECT_EQ(inspect_checkpoints(checkpoints.newest()).at(0).damage, "");
}

TEST(Runs, ARefusalAfterDamageLeavesTheFirstValues) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  DataLoader data = test::run_data({});
  for (const char* value : {"1", "2"}) {
    if (*value == '2')
      resume(model, folder.path(), {.override = {"key"}, .options = {{"key", "2"}}});
    Checkpoints checkpoints(model, {.folder = folder.path(), .options = {{"key", value}}});
    fit(model, data, {.calls = 1, .checkpoints = &checkpoints});
  }
  const std::string part = folder.path() + "/step-000000002/model-00001-of-00001.safetensors";
  std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-9, std::ios::end);
  file.put('x');
  file.close();
  TrainingModel fresh = test::run_model({});
  const test::RunState before = test::state_of(fresh);
  expect_refused({{"key",
                   [&] {
                     resume(fresh, folder.path(), {.options = {{"key", "2"}}});
                   },
                   "key must be 1"}});
  EXPECT_EQ(test::state_of(fresh), before);
}

TEST(Runs, OptionsOfTheCallerHaveOtherNames) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  const auto open = [&] {
    Checkpoints(model, {.folder = folder.path(), .options = {{"optimizer", "adam"}}});
  };
  expect_refused({{"a name of the model", open, "other names than those of the model"}});
}

// Writes another run to a checkpoint, as another version of the program would have saved it.
void rewrite_run(const std::string& checkpoint, const std::function<void(Run&)>& change) {
  const std::string path = checkpoint + "/run.json";
  Manifest manifest = read_manifest(checkpoint);
  Run run = read_run(path);
  change(run);
  std::ofstream(path) << to_json(run);
  const std::vector<std::byte> bytes = sys::read_file(path);
  for (CheckpointFile& f : manifest.files) {
    if (f.name == "run.json") f = {f.name, std::ssize(bytes), hash128(bytes).hex()};
  }
  std::ofstream(checkpoint + "/manifest.json") << to_text(manifest);
}

TEST(Runs, AnOptionThatACheckpointDoesNotNameHasItsDefault) {
  RunFolder folder;
  {
    TrainingModel model = test::run_model({});
    Checkpoints checkpoints(model, {.folder = folder.path(), .options = {{"depth", "1"}}});
    checkpoints.save();
    checkpoints.wait();
  }
  rewrite_run(folder.path() + "/step-000000000", [](train::Run& run) {
    std::erase_if(run.options,
                  [](const auto& o) { return o.first == "accumulate" || o.first == "depth"; });
  });
  const auto resume_as = [&](int64_t accumulate, std::vector<NamedOption> own,
                             std::optional<std::string> depth) {
    return [=, path = folder.path()] {
      TrainingModel model = test::run_model({.accumulate = accumulate});
      return resume(model, path,
                    {.options = own, .facts = {{"depth", OptionFact{.unnamed = depth}}}})
          .changed;
    };
  };
  expect_refused({
      {"another value", resume_as(2, {}, "1"), "accumulate must be 1, as in"},
      {"of the caller", resume_as(1, {{"depth", "2"}}, "1"), "depth must be 1, as in"},
  });
  EXPECT_THAT(resume_as(1, {{"depth", "1"}}, "1")(), testing::IsEmpty());
  EXPECT_THAT(resume_as(1, {}, "1")(), testing::IsEmpty());
  EXPECT_THAT(resume_as(1, {{"depth", "2"}}, {})(), testing::IsEmpty());
}

TEST(Runs, AnOptionThatIsNotKnownIsRefused) {
  RunFolder folder;
  TrainingModel model = test::run_model({});
  {
    Checkpoints checkpoints(model, {.folder = folder.path(), .options = {{"slope", "3"}}});
    checkpoints.save();
    checkpoints.wait();
  }
  TrainingModel other = test::run_model({});
  expect_refused({{"slope", [&] { resume(other, folder.path()); },
                   "resume: slope must be 3, as in " + folder.path() +
                       "/step-000000000, got no such option; resume with the program that saved "
                       "it, or override slope (--override slope) to continue without it"}});
  EXPECT_THAT(resume(other, folder.path(), {.override = {"slope"}}).changed,
              testing::ElementsAre("slope: 3, now absent"));
}

// A run of 4 calls with checkpoints after 2 and 4, whose best validation is the first one.
struct BestRun {
  explicit BestRun(SaveCopy copy) {
    Validation validation(model);
    Checkpoints checkpoints(model, {.folder = folder.path(), .save_every = 2, .copy = copy});
    DataLoader data = test::run_data({});
    FitOptions options = validation.options({.calls = 4, .validate_every = 1});
    options.checkpoints = &checkpoints;
    options.save_best = file;
    fit(model, data, options);
    saved = sys::read_file(file);
  }

  // Continues the newest checkpoint for no call. Returns the best weights in `best`.
  std::vector<std::byte> resumed(const std::string& best) const {
    TrainingModel other = test::run_model({});
    resume(other, folder.path());
    Validation validation(other);
    DataLoader data = test::run_data({});
    FitOptions options = validation.options({.calls = 0, .validate_every = 1});
    options.save_best = best;
    fit(other, data, options);
    return sys::read_file(best);
  }

  RunFolder folder, files;
  std::string file = files.path() + "/best.safetensors";
  TrainingModel model = test::run_model({});
  std::vector<std::byte> saved;  ///< Bytes of the best weights at the last checkpoint.
};

TEST(Runs, ACheckpointHasItsBestWeights) {
  for (const SaveCopy copy : {SaveCopy::kHost, SaveCopy::kNone}) {
    BestRun run(copy);
    const std::string newest = run.folder.path() + "/step-000000004";
    EXPECT_EQ(sys::read_file(newest + "/best.safetensors"), run.saved);
    EXPECT_EQ(inspect_checkpoints(newest).at(0).parts, 1);
    // The run goes on, stores better weights, and is killed before its next checkpoint.
    run.model.save(run.file, {{"run", run.model.run().id}, {"updates", "5"}});
    ASSERT_NE(sys::read_file(run.file), run.saved);
    EXPECT_EQ(run.resumed(run.file), run.saved);
    fs::remove(run.file);
    EXPECT_EQ(run.resumed(run.file), run.saved);
    EXPECT_EQ(run.resumed(run.files.path() + "/other.safetensors"), run.saved);
  }
}

TEST(Runs, BetterWeightsAfterAResumeRemain) {
  BestRun run(SaveCopy::kHost);
  TrainingModel model = test::run_model({});
  resume(model, run.folder.path());
  Validation validation(model);
  DataLoader data = test::run_data({});
  FitOptions options = validation.options({.calls = 1, .validate_every = 1});
  options.save_best = run.file;
  internal::ModelAccess::state(model).best().value = -1;  // Each validation is better.
  fit(model, data, options);
  const std::vector<std::byte> better = sys::read_file(run.file);
  EXPECT_NE(better, run.saved);
  options.calls = 0;
  fit(model, data, options);
  EXPECT_EQ(sys::read_file(run.file), better);
}

TEST(Runs, DamagedBestWeightsAreADamagedCheckpoint) {
  BestRun run(SaveCopy::kHost);
  const std::string newest = run.folder.path() + "/step-000000004";
  const std::string path = newest + "/best.safetensors";
  std::fstream(path, std::ios::in | std::ios::out).seekp(-9, std::ios::end).put('x');
  TrainingModel model = test::run_model({});
  const Resumed resumed = resume(model, run.folder.path());
  EXPECT_EQ(resumed.run.updates, 2);
  EXPECT_THAT(resumed.skipped, testing::ElementsAre(testing::HasSubstr(path)));
}

TEST(Runs, AnotherFileThanTheBestWeightsIsNotSaved) {
  BestRun run(SaveCopy::kHost);
  TrainingModel model = test::run_model({});
  resume(model, run.folder.path());
  Checkpoints checkpoints(model, {.folder = run.folder.path()});
  checkpoints.add_best(run.file);
  std::ofstream(run.file) << "mine";
  DataLoader data = test::run_data({});
  fit(model, data, {.calls = 1});
  checkpoints.save();
  checkpoints.wait();
  EXPECT_FALSE(fs::exists(checkpoints.newest() + "/best.safetensors"));
  EXPECT_EQ(inspect_checkpoints(checkpoints.newest()).at(0).damage, "");
}

TEST(Runs, ACheckpointNeedsATenthMoreSpaceThanItsFiles) {
  EXPECT_NO_THROW(check_space("c", 1000, 1100));
  expect_refused({{"space", [] { check_space("c", 1000, 1099); },
                   "checkpoints: c must have 1100 bytes of free space, 110 % of the files of a "
                   "checkpoint, got 1099; free some, or keep fewer checkpoints",
                   ErrorKind::kIo}});
}

}  // namespace
}  // namespace sluice::train
