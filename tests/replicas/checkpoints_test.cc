// Checkpoints of several processes, one of which cannot write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "replicas_util.h"
#include "sluice/base/failpoint.h"
#include "sluice/base/system/folder.h"
#include "sluice/train/checkpoints/checkpoint_folder.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "sluice/train/checkpoints/test_runs.h"
#include "sluice/train/fit.h"

namespace sluice::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// A training of one process of a group.
class Training {
 public:
  Training(const std::shared_ptr<runtime::ProcessGroup>& group, const std::string& folder,
           SaveCopy copy)
      : model_(model_of(group)),
        checkpoints_(model_, {.folder = folder, .keep = 1, .copy = copy}) {}

  // Trains one call, and saves. Returns the error; empty without one.
  std::string train_and_save() {
    DataLoader data = test::run_data({.replicas = 2});
    fit(model_, data, {.calls = 1});
    try {
      checkpoints_.save();
      checkpoints_.wait();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      return e.what();
    }
    return "";
  }

  // Returns after all processes have called it. Process 0 calls f() first.
  template <typename F>
  void in_first_process(const F& f) {
    runtime::Agreement& agreement = model_.session().agreement();
    if (agreement.rank() == 0) f();
    agreement.any(false);
  }
  int64_t updates() const { return model_.updates(); }
  std::string newest() const { return checkpoints_.newest(); }

 private:
  static TrainingModel model_of(const std::shared_ptr<runtime::ProcessGroup>& group) {
    Options options{.accumulate = 2, .replicas = 2, .learning_rate = 0.1};
    options.session.device = cpu_device({.threads = 1});
    options.session.group = group;
    return training_model(test::run_network({.replicas = 2}), options, nn::Optimizer::adam());
  }

  TrainingModel model_;
  Checkpoints checkpoints_;
};

bool has_leftovers(const std::string& folder) {
  for (const std::string& name : sys::names_in(folder)) {
    if (name.starts_with(".tmp-")) return true;
  }
  return false;
}

// Each system call of a kind fails once in one of the processes while they save.
void expect_saves_after_failures(const std::string& call, SaveCopy copy) {
  test::RunFolder folder;
  int64_t saves = 0;
  test::for_each_process(2, [&](const std::shared_ptr<runtime::ProcessGroup>& group) {
    Training training(group, folder.path(), copy);
    EXPECT_EQ(training.train_and_save(), "");
    bool fails = true;
    for (int64_t number = 1; fails; ++number) {
      training.in_first_process(
          [&] { sys::set_failpoint({.call = call, .number = number, .code = EIO}); });
      const std::string error = training.train_and_save();
      training.in_first_process([] {});
      fails = sys::failpoint_calls() >= number;
      EXPECT_EQ(!error.empty(), fails) << call << " " << number << " " << error;
      if (fails) {
        EXPECT_THAT(error, AllOf(StartsWith("checkpoints: process "), HasSubstr("could not save"),
                                 HasSubstr("Input/output error")));
      }
      EXPECT_FALSE(sys::exists(folder.path() + "/" + temporary_name(training.updates())))
          << call << " " << number;
      EXPECT_EQ(inspect_checkpoints(training.newest()).at(0).damage, "");
      training.in_first_process([] { sys::clear_failpoint(); });
      EXPECT_EQ(training.train_and_save(), "");  // Is not disturbed.
      training.in_first_process(
          [&] { EXPECT_FALSE(has_leftovers(folder.path())) << call << " " << number; });
      EXPECT_EQ(inspect_checkpoints(training.newest()).at(0).run.updates, training.updates());
      training.in_first_process([&] { ++saves; });
    }
  });
  EXPECT_GT(saves, 1) << call;
}

TEST(GroupCheckpoints, AFailedSaveOfOneProcessIsNamedAndTheNextOneIsWhole) {
  if (test::launched_group() != nullptr) return;  // Failpoints are of one process.
  for (const SaveCopy copy : {SaveCopy::kHost, SaveCopy::kNone}) {
    for (const char* call : {"pwrite", "fdatasync", "fsync", "mkdir"})
      expect_saves_after_failures(call, copy);
  }
}

}  // namespace
}  // namespace sluice::train
