#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/data/table/table.h"
#include "sluice/models/gpt/generate.h"
#include "sluice/models/model.h"
#include "sluice/report/report.h"
#include "sluice/runtime/process_group.h"
#include "sluice/sluice.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "sluice/train/options.h"
#include "sluice/train/pipeline/stages.h"

namespace sluice::tool {

struct UserData;

/// How a table of samples is read. Absent members are those of the weights' table, or its defaults.
struct TableFlags {
  std::optional<data::CsvHeader> header;
  std::optional<char> separator;
  std::optional<char> decimal;
  std::optional<data::MissingCells> missing;
  bool standardize = false;
};

/// The network, its samples and its first values.
struct ModelOptions {
  std::string name = "mnist";
  models::Sizes sizes;     ///< Sizes of the network, of a micro-batch and of an evaluation step.
  std::string data;        ///< Folder of the data set; empty: search for it.
  bool synthetic = false;  ///< Generated samples even if real ones are there; bench: runs on ones.
  std::string dataset;     ///< Samples of the user, "csv:FILE"; empty: those of the model.
  std::string input;       ///< Fields or columns of the inputs; empty: the usual ones.
  std::string target;      ///< Field or column of the labels; empty: the usual one.
  std::string tokenizer;   ///< characters, bytes, or a tokenizer's file; empty: the usual one.
  std::optional<double> validation;  ///< Share of the samples of `dataset` for tests; absent:
                                     ///< its test files, or 0.1.
  bool test_all = false;             ///< Whether every sample of `dataset` is for tests.
  TableFlags table;                  ///< Format of `dataset`, if it is a table.
  std::shared_ptr<const UserData> user_data = {};  ///< Samples of `dataset`; null without it.
  std::string weights;        ///< File with the first values of variables; empty: random ones.
  std::string torch_weights;  ///< The state_dict of the same PyTorch module instead; empty: none.
  bool load_strict = true;    ///< LoadOptions::strict for `weights`.
  std::vector<std::string> load_names = {};  ///< LoadOptions::names as "NAME=PATH".
  bool fresh_optimizer = false;  ///< The optimizer's state starts anew, also if `weights` has one.
};

/// How often a training saves a checkpoint: each `steps` steps or `seconds` seconds.
struct SaveInterval {
  int64_t steps = 0;
  double seconds = 0;
  bool operator==(const SaveInterval&) const = default;
};

/// How long and with which rate a model learns.
struct TrainOptions {
  int64_t epochs = 1;
  std::optional<int64_t> steps;  ///< In all, at least 0; absent: as many as the epochs have.
  int64_t test_iterations = 1;   ///< Micro-batches of a call that tests.
  std::string optimizer = "sgd";
  std::optional<double> beta1, beta2;  ///< Coefficients of Adam; absent: its own.
  std::optional<double> weight_decay;  ///< Absent: the optimizer's own.
  std::optional<double> lr;            ///< Learning rate; absent: the optimizer's own.
  bool lr_schedule = false;            ///< Whether the program streams the rates of `schedule`.
  train::LearningRateSchedule schedule = {};  ///< Without its peak and its steps (schedule_of()).
  std::optional<int64_t> check_replicas;      ///< Steps between comparisons; absent: none.
  std::string save;                           ///< File for the variables at the end; empty: none.
  std::string torch_save;                     ///< File for a state_dict at the end; empty: none.
  std::string log_dir;                        ///< Folder for train::FitOptions::log_dir.
  int64_t log_histograms = 0;                 ///< Steps between histograms; 0: none.
  int64_t validate_every = 0;  ///< Steps between validations; 0: an epoch, if there are any.
  int64_t patience = 0;        ///< Validations without a better value before the end; 0: no limit.
  std::string save_best;       ///< File for the variables of the best one; empty: none.
  std::string metric;          ///< Metric of Evaluation that they compare; empty: the first one.
  std::string checkpoint;      ///< Folder for checkpoints; empty: none.
  std::optional<SaveInterval> save_every;  ///< Absent: at the end and after a signal alone.
  int64_t keep = 2;                        ///< Checkpoints that remain.
  train::SaveCopy save_copy = train::SaveCopy::kHost;
  std::string resume;                 ///< Folder of checkpoints to continue; empty: none.
  std::vector<std::string> override;  ///< Names of options that may differ from the resumed run's.
};

/// Options of `sluice generate`.
struct GenerateFlags {
  std::string prompt = "\n";              ///< The text to continue.
  models::GenerateOptions sampling = {};  ///< Its seed is train::Options::seed.
};

/// Tensors that leave the device, in the command line's words. Budgets are in SessionOptions.
struct OffloadOptions {
  std::string tensors = "auto";  ///< auto, none, or some kinds of tensors.
  std::string remote = "host";   ///< Their memory: none, host, or file:DIR.
};

enum class LogLevel { kError, kInfo, kDebug };

struct OutputOptions {
  bool json = false;    ///< One JSON object on stdout.
  bool digest = false;  ///< A digest of losses and variables.
  LogLevel log_level = LogLevel::kInfo;
  bool speaks() const { return log_level != LogLevel::kError; }
};

/// The folder of --profile without a value.
inline constexpr const char* kUsualProfileFolder = "./profile";

/// The report of --profile.
struct ProfileOptions {
  std::string folder;                       ///< Empty: no report is written.
  std::vector<report::ChosenOption> given;  ///< Options of the command line.
};

/// Options of `sluice plan` alone. At most one view is printed.
struct PlanOptions {
  enum class View {
    kSummary,
    kFull,
    kPasses,
    kFusions,
    kMemoryMap,
    kTransfers,
    kScheduleTable,
    kDot
  };
  View view = View::kSummary;
  std::vector<std::string> sweeps;  ///< "micro-batch=8;16": a row for each combination.
  std::string sort;                 ///< Column by which the rows ascend; empty: none.
  std::string problem;              ///< A planner's problem instead of a model; empty: none.
  int64_t capacity = -1;            ///< Bytes of the problem's memory; -1: those of its file.
  std::optional<int64_t> nodes;     ///< Limit of the problem's exact search; absent: 30 s.
  std::string check;                ///< A plan's text to prove; empty: none.
};

/// Options of `sluice bench` without a model.
struct BenchOptions {
  std::string only;                 ///< Part of the names of cases to run.
  int rounds = 5;                   ///< Rounds of which the median counts.
  std::optional<int64_t> epochs;    ///< Epochs of a dataset's benchmark; absent: 1.
  std::optional<int64_t> elements;  ///< Elements of an epoch; absent: 1000.
  bool repeat = false;              ///< Reads the dataset again at its end.
  std::vector<std::string> python = {"/usr/bin/python3"};  ///< Programs that may have PyTorch.
};

/// Everything that the command line asks for. Options of the library are parsed into its own
/// structs.
struct ToolOptions {
  bool trains = true;  ///< Whether the program has gradients and updates.
  ModelOptions model;
  TrainOptions train;
  /// build_programs() sets the learning rate and completes `locations`.
  train::Options step = {.strategy = train::resident(), .output = train::Output::all()};
  OffloadOptions offload;
  std::string machine;             ///< File with the rates of a machine; empty: they are measured.
  std::string measure;             ///< doctor: file for the rates of this machine; empty: none.
  std::vector<int64_t> memory;     ///< Bytes of each device, or of all; empty: no limit.
  std::optional<int64_t> devices;  ///< Devices of all replicas; absent: as many as the replicas
                                   ///< need.
  std::vector<std::string> device_ids;  ///< Ids of the devices of all replicas; empty: 0, 1, ….
  std::string opaque;  ///< Ids of opaque test devices between commas, or "all"; empty: none.
  std::vector<std::string> map;    ///< Processes of these devices, or "devices"; empty: default.
  std::vector<std::string> given;  ///< Flags of the command line, without defaults of the model.
  OutputOptions output;
  ProfileOptions profile;
  PlanOptions plan;
  BenchOptions bench;
  GenerateFlags generate;
  std::string file;   ///< The argument of `sluice inspect`.
  std::string other;  ///< A second report to compare it with; empty: none.
  std::string to;     ///< The file that `sluice predict` writes.

  /// Whether this process reports the results: one of an MPI job does.
  bool speaks() const { return step.session.group == nullptr || step.session.group->rank() == 0; }
  bool phased() const { return std::holds_alternative<train::PhasedExecution>(*step.strategy); }
  bool resident() const { return std::holds_alternative<train::ResidentExecution>(*step.strategy); }
  /// Whether the model has stages.
  bool staged() const { return train::given_stages(*step.strategy) != nullptr; }
};

int run_train(const ToolOptions& options);
int run_eval(const ToolOptions& options);
/// Writes the predictions for every sample of --dataset to --to.
int run_predict(const ToolOptions& options);
/// Writes text that continues --prompt.
int run_generate(const ToolOptions& options);
int run_plan(const ToolOptions& options);
/// Times training steps of a model.
int run_bench(const ToolOptions& options);
/// Measures everything that has a goal, without a model.
int run_bench_suite(const ToolOptions& options);
/// Measures how fast the host reads a dataset.
int run_bench_dataset(const ToolOptions& options);
int run_inspect(const ToolOptions& options);
int run_doctor(const ToolOptions& options);

}  // namespace sluice::tool
