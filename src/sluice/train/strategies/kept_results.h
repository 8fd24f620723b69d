#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "sluice/train/network.h"
#include "sluice/train/options.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// How often a program writes a result.
enum class ResultForm : uint8_t {
  kEach,       ///< Once for each micro-batch.
  kUpdateSum,  ///< The sum over the micro-batches of an update, once for each update.
  kRunSum,     ///< The sum over all micro-batches of a run, once.
  kRunLast,    ///< The value of the last micro-batch of a run, once.
};

/// The forms of results that are kept for a whole run.
inline constexpr std::initializer_list<ResultForm> kRunForms = {ResultForm::kRunSum,
                                                                ResultForm::kRunLast};

/// Returns the form of a result that is written (not Writing::Reduction::kNone).
ResultForm result_form(const Writing& writing, const Output& output);

/// Returns the entries of its stream in a run.
int64_t entries_of_run(ResultForm form, int64_t accumulate, int64_t device_iterations);

/// Returns the micro-batches whose results an entry of its stream is the sum of.
int64_t micro_batches_of_entry(ResultForm form, int64_t accumulate, int64_t device_iterations);

/// Returns the spec of its stream.
TensorSpec spec_of_result(const TensorSpec& value, const Writing& writing, const Output& output);

/// A result that a program writes.
struct WrittenResult {
  Tensor value;  ///< Tensor of the network.
  D2hStream stream;
  ResultForm form = ResultForm::kEach;
};

/// Returns the written losses and predictions of a network, watched values and sums of losses.
/// `training` has the streams of losses and sums; `predictions` has the streams of the predictions.
std::vector<WrittenResult> written_results(const NetworkGraph& network, const Training& training,
                                           const std::vector<D2hStream>& predictions,
                                           const Output& output);

/// Results that are kept on the device and written once for each update or run: tensors of one
/// graph, by name of the stream.
class KeptResults {
 public:
  /// Adds the tensor of a result to `graph`, zeros of its stream's spec.
  void add(Graph& graph, const D2hStream& stream, ResultForm form);
  /// Adds the tensors of all results of these forms.
  void add(Graph& graph, const std::vector<WrittenResult>& results,
           std::initializer_list<ResultForm> forms);
  /// Uses the tensor `t` of another graph as the tensor of a result in that graph.
  void set(const std::string& name, const Tensor& t, ResultForm form) { kept_[name] = {t, form}; }
  /// Adds the result of a micro-batch to its sum, or replaces the last one by it. Returns false if
  /// the result is not kept.
  bool put(const std::string& name, const Tensor& value) const;
  /// Adds `value` to the sum `kept`, or replaces the last result `kept` by it.
  static void update(const Tensor& kept, ResultForm form, const Tensor& value);
  /// Writes the kept results of these forms.
  void store(Graph& graph, const std::vector<WrittenResult>& results,
             std::initializer_list<ResultForm> forms) const;
  /// Returns the tensor of a result; invalid if it is not kept.
  Tensor find(const std::string& name) const;

  struct Kept {
    Tensor tensor;
    ResultForm form = ResultForm::kEach;
  };
  const std::map<std::string, Kept>& all() const { return kept_; }

 private:
  std::map<std::string, Kept> kept_;
};

}  // namespace sluice::train
