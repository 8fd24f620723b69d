#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/data/files/event_file.h"
#include "sluice/data/files/growing_file.h"
#include "sluice/data/files/histogram.h"
#include "sluice/nn/named_tensors.h"
#include "sluice/session/session.h"

namespace sluice::train {

struct Watched;

/// Creates a folder for a TrainingLog, with those above it. Error{kIo} naming it if that fails, or
/// if no file can be created in it.
void make_log_folder(const std::string& folder);

/// Name of a log that is in the folder for logs itself.
inline constexpr const char* kOnlyLog = ".";

/// Returns the name of the log of a new training in `folder`: kOnlyLog, or if that has a log
/// already, the first "run-N" without one, from run-2 on.
std::string name_of_new_log(const std::string& folder);

/// Returns the folder of a log.
std::string folder_of_log(const std::string& folder, const std::string& name);

/// A number with its tag.
using TaggedNumber = std::pair<std::string, double>;

/// Returns the bytes of the program "train" of a session: planned and measured ones of each device,
/// those of tiers, and those that a run moves from and to tiers, in messages and in collectives.
/// Bytes of tiers and moved ones are left out where they are 0.
std::vector<TaggedNumber> bytes_of(const Session& session);

/// Calls f(path, values) for each variable. Reads a part of a variable at a time. Each process of a
/// group makes the call.
void each_histogram(const Session& session, const nn::NamedTensors& variables,
                    const std::function<void(const std::string&, const data::Histogram&)>& f);

/// Writes what a training computes to a folder: an event file for TensorBoard and metrics.csv.
///
/// The files are written once a period and at the end. If a write fails, for example on a full
/// disk, the object prints one warning to stderr and writes nothing more. The files then end with a
/// whole record.
class TrainingLog {
 public:
  /// The columns of metrics.csv after kColumns.
  struct Columns {
    std::string run = {};                  ///< Run::id, in the file kRunName beside it.
    std::vector<std::string> losses = {};  ///< "loss/NAME" for each name.
    bool validations = false;              ///< "validation/NAME" for each of kMetrics.
  };
  /// Creates the folder and the files. A training that continues an earlier one after update
  /// `continued` adds its lines to a metrics.csv with these columns; lines and events of later
  /// updates are removed, and the seconds continue. Otherwise, a file of that name is replaced.
  /// Error{kIo} if a file cannot be written.
  TrainingLog(const std::string& folder, const Columns& columns, std::optional<int64_t> continued,
              std::chrono::milliseconds period = std::chrono::seconds(1));
  /// Writes the rest.
  ~TrainingLog();
  TrainingLog(const TrainingLog&) = delete;
  TrainingLog& operator=(const TrainingLog&) = delete;

  static constexpr std::string_view kColumns =
      "step,loss,accuracy,samples_per_second,learning_rate,seconds";
  /// Metrics of a validation (Evaluation::metrics) that have a column.
  static constexpr std::string_view kMetrics[] = {
      "loss",          "perplexity",          "accuracy",
      "top5_accuracy", "mean_absolute_error", "mean_squared_error"};

  /// File with the id of the run.
  static constexpr std::string_view kRunName = "run-id";
  /// Folder of watched tensors (Options::watch).
  static constexpr std::string_view kWatchedName = "watched";

  /// The results of a call that ends with update `step`, counted from 1.
  struct Call {
    int64_t step = 0;
    double loss = 0;
    std::optional<double> accuracy;  ///< In percent.
    double samples_per_second = 0;
    std::optional<double> learning_rate;
    std::vector<double> losses;  ///< Values of Columns::losses.
    /// Values of kMetrics of a validation after the call; empty without one.
    std::vector<std::optional<double>> validation = {};
  };
  /// Adds a line and an event. The line also has the seconds since the constructor.
  void add(const Call& call);
  /// Adds an event of some numbers by their tags.
  void add_numbers(int64_t step, const std::vector<TaggedNumber>& numbers);
  /// Adds an event of the values of a variable, and one of the number of those that are not finite,
  /// if there are any.
  void add_histogram(int64_t step, const std::string& path, const data::Histogram& values);
  /// Writes watched tensors to the file kWatchedName/<step>.safetensors in the folder: gradients as
  /// "gradient/<path>", values as "value/<name>". Adds an event of their histograms. If a file
  /// cannot be written, the object prints one warning to stderr and writes no more of them.
  void add_watched(Watched watched);

  /// Writes all that was added to the disk. A failure is reported as that of a write.
  void sync();

  /// Whether a write has failed.
  bool failed() const { return failed_; }

 private:
  using Clock = std::chrono::steady_clock;
  void write(const std::function<void()>& add);
  void flush(bool to_disk = false);

  std::string folder_;
  Columns columns_;
  std::chrono::milliseconds period_;
  data::EventFile events_;
  double seconds_ = 0;  ///< Seconds of the earlier training that it continues.
  data::GrowingFile metrics_;
  bool failed_ = false;
  bool watched_failed_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point written_ = begin_;
};

/// Whether a folder has a log of the same run with the same columns, which may be continued.
bool has_log(const std::string& folder, const TrainingLog::Columns& columns);

}  // namespace sluice::train
