#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/train/checkpoints/run.h"
#include "sluice/train/model.h"

namespace sluice::train {

/// The work for which a training waits while it saves a checkpoint.
enum class SaveCopy : uint8_t {
  kHost,  ///< A copy of the variables in host memory, which a thread then writes.
  kNone,  ///< The writing.
};

struct CheckpointOptions {
  std::string folder;      ///< Folder of the checkpoints. It is created, but not those above it.
  int64_t save_every = 0;  ///< Updates between checkpoints; 0: no limit by updates.
  double save_every_seconds = 0;  ///< Seconds between checkpoints; 0: no limit by time.
  int64_t keep = 2;               ///< Checkpoints that remain, the newest ones.
  SaveCopy copy = SaveCopy::kHost;
  /// Options of the caller that decide the bits, in addition to the model's options: sizes of the
  /// network, the optimizer. resume() compares them.
  std::vector<NamedOption> options = {};
  /// Metadata of the files of variables, as of TrainingModel::save().
  std::map<std::string, std::string> metadata = {};
};

/// Saves checkpoints of a training: its variables and its Run. A checkpoint is a folder of its own,
/// "step-000000400" for 400 updates, and is there whole or not at all, whenever the process or the
/// machine stops. It knows no layout: resume() continues it under another strategy, with other
/// stages, devices, tiers, shards, processes and threads, with the bits of the run that was never
/// stopped (docs/howto/long_runs.md).
///
/// One process at a time saves to a folder, which it locks. In a group, each process makes the same
/// calls and writes its part, so the folder must be one that all of them share.
class Checkpoints {
 public:
  /// Locks the folder and removes what interrupted saves have left. Compiles the model if
  /// necessary, and allocates the copy. Error{kUsage} if an option is out of range, if another
  /// process has locked the folder, if it has a whole checkpoint of another run or of more updates
  /// than the model's, which would be lost, or if an option has the name of one of the model.
  /// DoesNotFit if the copy and the tensors in the tier "host" exceed the budget of remote memory,
  /// or if the machine has less memory. Error{kIo}.
  Checkpoints(const TrainingModel& model, CheckpointOptions options);
  /// Waits for the save in progress; its error is lost.
  ~Checkpoints();
  Checkpoints(Checkpoints&&) noexcept;
  Checkpoints& operator=(Checkpoints&&) noexcept;

  /// Saves if the options ask for it after the last call of the model. fit() calls it after each
  /// call (FitOptions::checkpoints). Throws the error of the last save.
  void after_call();
  /// Saves now, unless the newest checkpoint has as many updates. Waits for the save before. With
  /// SaveCopy::kHost it returns when the variables are copied. Error{kDiverged} for values that are
  /// not finite; then nothing is written. Error{kIo}; then the checkpoints before it are whole.
  void save();
  /// Lets the next after_call() save. In a group, each process calls it. A callback of fit() calls
  /// this and not save(), as the call is not complete before its validation.
  void request_save();
  /// Waits until the last save is complete. In a group, the destructor cannot complete it.
  void wait();

  /// Calls `f` before each save from now on, such as to write a log up to the same update. Null:
  /// nothing. Returns the function that was called before.
  std::function<void()> before_each_save(std::function<void()> f);

  /// Adds the file with the best weights (FitOptions::save_best) to each checkpoint from now on,
  /// as "best.safetensors", if it has those of the run. Empty: none. Returns the path before.
  /// fit() calls it.
  std::string add_best(std::string path);

  const std::string& folder() const;
  /// Path of the newest complete checkpoint; empty before the first one.
  std::string newest() const;

  struct Statistics {
    int64_t saves = 0;          ///< Complete ones.
    int64_t bytes = 0;          ///< Bytes of the variables in one.
    int64_t copy_bytes = 0;     ///< Bytes of the copy in this process.
    double waited_seconds = 0;  ///< Time that after_call(), save() and wait() took.
    double write_seconds = 0;   ///< Time of the writing.
  };
  Statistics statistics() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// The knowledge of resume() about an option that decides the bits.
struct OptionFact {
  /// Its flag, such as "--clip-norm", which errors name; an override may be "clip-norm". Empty: no
  /// flag.
  std::string flag = {};
  /// Its value in a run that does not name it: the default, as the run was saved before the option
  /// existed. Absent: any value.
  std::optional<std::string> unnamed = {};
};

struct ResumeOptions {
  /// Names of options and other facts that may differ from the run: "accumulate", "replicas",
  /// "data", "dtype", …. The run continues with the model's values.
  std::vector<std::string> override = {};
  /// As CheckpointOptions::options.
  std::vector<NamedOption> options = {};
  /// Facts about options by name, of the caller and of train::Options. Without one, an option of
  /// train::Options has its default in a run that does not name it, and a run without an option of
  /// the caller differs from one with it.
  std::map<std::string, OptionFact> facts = {};
};

/// The result of resume().
struct Resumed {
  std::string checkpoint;                 ///< Its path.
  Run run;                                ///< The run as it was saved.
  std::vector<std::string> skipped = {};  ///< Why newer checkpoints were not used, one text each.
  /// Overridden facts that differ, as "NAME: OLD, now NEW".
  std::vector<std::string> changed = {};
};

/// Sets the variables and the run of a model from the newest whole checkpoint in `folder`, or from
/// `folder` if that is a checkpoint. fit() then continues at the next sample, and compares its data
/// with the data of the run.
///
/// Error{kNoCheckpoint} with the reasons if there is none; the variables then have their first
/// values if some of a damaged one were read. Error{kUsage} naming the first option that decides
/// the bits and differs, or an `override` that is no such option. Error{kBadFile} if the model has
/// other variables. With the override "dtype", values are converted.
Resumed resume(TrainingModel& model, const std::string& folder, const ResumeOptions& options = {});

/// A checkpoint on disk.
struct CheckpointInfo {
  std::string path;
  Run run;
  int64_t bytes = 0;        ///< Sum of all files.
  int64_t parts = 0;        ///< Files of variables.
  int64_t variables = 0;    ///< Number of variables.
  std::string damage = {};  ///< Why it is not whole; empty: it is.
};

/// Reads all checkpoints in `folder`, or `folder` if that is a checkpoint, and compares all hashes.
/// The newest is first. Error{kNoCheckpoint} if there is none, whole or damaged.
std::vector<CheckpointInfo> inspect_checkpoints(const std::string& folder);

}  // namespace sluice::train
