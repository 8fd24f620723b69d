#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "sluice/nn/layers.h"

namespace sluice::train {

/// An input of a network, which a stream feeds: the images or the labels of a micro-batch.
struct Field {
  std::string name = {};                     ///< Name of the stream, e.g. "labels".
  TensorSpec spec = {};                      ///< Spec of a micro-batch.
  std::optional<TensorSpec> eval_spec = {};  ///< Spec in evaluation; absent: `spec`.
  bool once = false;  ///< The stream has one entry for all micro-batches of a run.
};

/// The seed of a network: one tensor in training, none in evaluation.
class Seeds {
 public:
  Seeds() = default;
  explicit Seeds(Tensor seed) : seed_(std::move(seed)) {}
  bool empty() const { return !seed_.valid(); }
  /// Error{kUsage} in evaluation, and unless `i` is 0.
  const Tensor& operator[](size_t i) const {
    require(!empty() && i == 0,
            "network: there is one seed in training and none in evaluation, got an access to seed "
            "{} of {}; nn::Dropout takes it from the builder: dropout(b, x)",
            i, empty() ? 0 : 1);
    return seed_;
  }

 private:
  Tensor seed_;
};

/// The purpose of a graph of a network.
enum class Purpose : uint8_t {
  kTrain,     ///< Losses and their gradients.
  kEvaluate,  ///< Predictions.
  kScore,     ///< Losses and predictions of evaluation, for evaluate().
};

/// The tensors that a module's build() gets from the network that it is part of.
class Inputs {
 public:
  Inputs(std::vector<std::pair<std::string, Tensor>> fields, Seeds seed, Purpose purpose)
      : fields_(std::move(fields)), seed_(std::move(seed)), purpose_(purpose) {}

  /// Returns the tensor of a field. Error{kUsage}, which lists the fields, if there is none.
  const Tensor& operator[](std::string_view field) const;
  /// Returns one uint32[2] tensor in training, for modules that draw themselves. Returns none in
  /// evaluation, where layers do not draw. Layers such as nn::Dropout take it from the builder
  /// (nn::Builder::seed).
  const Seeds& seed() const { return seed_; }
  nn::RunMode mode() const {
    return purpose_ == Purpose::kTrain ? nn::RunMode::kTrain : nn::RunMode::kEvaluate;
  }
  /// Whether the graph needs the losses: in training, and where evaluate() computes them. Other
  /// graphs leave out losses that build() returns.
  bool wants_losses() const { return purpose_ != Purpose::kEvaluate; }

 private:
  std::vector<std::pair<std::string, Tensor>> fields_;
  Seeds seed_;
  Purpose purpose_;
};

/// The values of a result that a program writes.
struct Writing {
  enum class Reduction {
    kEach,  ///< The value of each micro-batch.
    kSum,   ///< The sum over the micro-batches of an update, or of a run without an optimizer.
    kNone,  ///< Nothing. Requires an optimizer.
  };
  Reduction form = Reduction::kEach;
  /// Dtype of the sum. Each value is rounded to it before it is added. Absent: that of the value.
  std::optional<DType> dtype = {};
};

/// A scalar that training makes smaller, together with the other losses of the network.
struct Loss {
  std::string name = "loss";  ///< Name of the stream that returns it.
  Tensor value = {};          ///< Floating point, shape ().
  double weight = 1;          ///< Factor in the sum of losses that is differentiated.
  /// {tensor, gradient of weight·value by it}, for a loss that computes its gradient itself. Both
  /// must be results of ops: for a weight, name ops::identity(weight), which plans do not compute.
  /// Empty: `value` is differentiated.
  std::vector<std::pair<Tensor, Tensor>> gradients = {};
  Writing writing = {};
  /// Sum of the weights of the samples in `value`: float32, shape (), at least 0. `value` is then
  /// the weighted sum of the samples' losses. An update divides the sum of the gradients over its
  /// micro-batches and replicas once by the sum of these weights, so that it equals the update of
  /// the whole batch, also where micro-batches have unequal weights. The stream returns the mean
  /// of a micro-batch: value / total_weight, or 0 without weight. In training, all losses of a
  /// network share one tensor. Empty: all micro-batches have equal shares in the update.
  Tensor total_weight = {};
  /// Whether the mean of the loss is the mean cross entropy of a label that counts. evaluate() then
  /// reports its perplexity, e to the mean.
  bool mean_cross_entropy = false;
};

/// Softmax cross entropy of logits (batch, classes) and labels (batch). It computes the gradient of
/// the logits together with the loss (ops::cross_entropy_with_grad).
Loss cross_entropy(const Tensor& logits, const Tensor& labels, std::string name = "loss",
                   double weight = 1);

/// Cross entropy with class weights, an ignored label, label smoothing or probabilities
/// (nn::CrossEntropyLoss), as a sum with a total weight: each sample that counts has its own share
/// in an update. Error{kUsage} unless the reduction is the mean.
Loss cross_entropy(const Tensor& logits, const Tensor& labels,
                   const nn::CrossEntropyOptions& options, std::string name = "loss",
                   double weight = 1);

struct VocabularyLossOptions {
  /// The weight is (vocabulary, width), as a table of tokens; otherwise (width, vocabulary).
  bool transposed = false;
  /// Added to the logits: (vocabulary), float32. Its gradient is the sum over the rows in their
  /// order. Empty: none.
  Tensor bias = {};
  /// Rows of a chunk, a multiple of 32. With at least as many as there are rows, the loss is
  /// cross_entropy() of all logits. 0: all rows if their logits have at most 2²² elements or if
  /// there are at most 2·m rows, where m is the width rounded up to a multiple of 32, at least 512.
  /// Otherwise the largest multiple of 32 in (m/2, m] that divides the rows, or m.
  int64_t chunk_rows = 0;
  /// Label of rows that do not count. The loss is then a sum with a total weight, as that of
  /// cross_entropy() with nn::CrossEntropyOptions.
  std::optional<int64_t> ignore_index = {};
  std::string name = "loss";  ///< Loss::name.
  double weight = 1;          ///< Loss::weight.
};

/// Mean softmax cross entropy of the logits x·weight and `labels`, computed in chunks of rows: the
/// logits of one chunk exist at a time, and gradients do not read them. `x` is (..., width),
/// float32; `labels` has the shape of x without the width, int32 or uint32. The loss and the
/// gradients of x and weight have the bits of cross_entropy() of all logits. The gradient of the
/// weight is a tensor of its own. Error{kUsage} for other shapes and dtypes, and for chunk_rows
/// that is negative or not a multiple of 32.
Loss vocabulary_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels,
                              const VocabularyLossOptions& options = {});

/// Results of logits x·weight that need no logits later.
struct VocabularyPredictions {
  Tensor losses;   ///< Cross entropy of each label, 0 if it is ignored: float32.
  Tensor classes;  ///< Class with the largest logit (ops::argmax()): int32.
  Loss loss;       ///< The loss of vocabulary_cross_entropy(), as a function of `losses`.
};

/// Computes what evaluation needs of logits, in chunks of rows, from the operands and with the
/// options of vocabulary_cross_entropy(). `losses` and `classes` have the shape of the labels. A
/// network that returns both as predictions gets its loss and its accuracy from evaluate(), and the
/// logits of one chunk exist at a time. By default, a chunk has at most 2²² logits, and at least 32
/// rows. Errors as for vocabulary_cross_entropy().
VocabularyPredictions vocabulary_predictions(const Tensor& x, const Tensor& weight,
                                             const Tensor& labels,
                                             const VocabularyLossOptions& options = {});

/// Returns the divisor of a sum with this total weight: the weight, or 1 if it is 0.
Tensor divisor_of(const Tensor& total_weight);

/// Mean of (prediction - target)² over all elements of two tensors of one shape.
Loss mean_squared_error(const Tensor& prediction, const Tensor& target, std::string name = "loss",
                        double weight = 1);

/// A tensor that the programs return.
struct Prediction {
  std::string name = {};  ///< Name of the stream that returns it.
  Tensor value = {};
  /// Field with the labels of `value`: fit() and evaluate() report the percentage of labels that it
  /// predicts. `value` then has classes, int32, or float32 scores of all classes on its last axis,
  /// of which the largest counts. The field has an int32 for each class or row of scores. In a
  /// regression, `value` and the field are floating-point and have one shape; evaluate() reports
  /// the errors. Empty: none; a network without labels has neither.
  std::string labels = {};
  Writing writing = {};  ///< As for a loss. With labels, that of each micro-batch.
  std::optional<int64_t> ignore_index = {};  ///< Label of rows that do not count.
  /// Number of classes if `value` has classes; scores have it in their last axis. 0: not known.
  int64_t classes = 0;
};

/// The results of build(): losses (in training, at least one) and predictions (in evaluation, at
/// least one). The program of evaluation computes predictions only; evaluate() computes losses from
/// them.
struct Results {
  std::vector<Loss> losses = {};
  std::vector<Prediction> predictions = {};
};

/// The forward graph of a network: the ops that its module built, in one graph.
struct NetworkGraph {
  /// Named arguments: the weights, and the running variables that the graph reads.
  nn::GraphWithNamedArgs graph;
  nn::NamedVariableFactories factories;  ///< Weights and all running variables.
  std::vector<std::string> submodules;   ///< Names of the module's submodules, in order of use.
  std::vector<std::pair<std::string, Tensor>> fields;  ///< Inputs that are read, of a micro-batch.
  std::vector<std::pair<std::string, Tensor>> inputs;  ///< Inputs that are read, with Field::once.
  Tensors seed;                                        ///< The seed, if the network draws.
  Results results;
  /// Updates of running variables, which the graph does not read. Their values are outputs of it.
  std::vector<nn::internal::RunningUpdate> updates = {};
  /// Values that the program "watch" writes, by name. They are predictions, too.
  std::vector<std::pair<std::string, Tensor>> watched = {};
  /// {tensor, gradient of the sum of losses by it}: one of each tensor.
  std::vector<std::pair<Tensor, Tensor>> loss_gradients = {};
  Tensor total_weight = {};  ///< Loss::total_weight of all losses; empty without.
  /// The values of the losses in training; with a total weight, the sums that it divides.
  Tensors loss_sums = {};
  /// Pairs of an op after the module's ops, which computes a gradient of a loss, and the op whose
  /// block it belongs to.
  std::vector<std::pair<OpId, OpId>> added = {};
};

namespace internal {

/// Error{kUsage} unless the fields have different names.
void check_fields(const std::vector<Field>& fields);

}  // namespace internal

/// A module and the inputs of a micro-batch, whose names differ. The module must define
///
///     train::Results build(nn::Builder& b, const train::Inputs& in) const;
class Network {
 public:
  template <typename M>
  Network(M module, std::vector<Field> fields)
      : fields_(std::move(fields)), name_(nn::internal::class_name(typeid(M))) {
    internal::check_fields(fields_);
    if constexpr (std::is_base_of_v<nn::Module, M>) declarations_ = module.declarations();
    build_ = [m = std::make_shared<const M>(std::move(module))](
                 nn::Builder& b, const Inputs& in) -> Results { return m->build(b, in); };
  }

  const std::vector<Field>& fields() const { return fields_; }
  /// Builds the forward graph. Ops that no result needs are left out, and so are fields that are
  /// not read. Error{kUsage} if results are missing, repeat a name or are not tensors of the graph,
  /// if a loss is not a floating-point scalar, and if losses differ in their total weight.
  /// Error{kUsage} if the labels of a prediction are not those of its scores, if training reads a
  /// running variable and updates it, or if a graph that the network calls updates one.
  ///
  /// `watch` has patterns of values that are results, too (nn::Builder::watch()). Error{kUsage} for
  /// a pattern without a value, for two values with one name, and for a value that is overwritten
  /// later or is not the result of an op. A pattern with `*` leaves out such results of submodules.
  NetworkGraph build(Ir ir, nn::RunMode mode, const std::vector<std::string>& watch = {}) const;
  /// Builds the graph of evaluation with the losses, for micro-batches of `samples` samples, which
  /// are the first axis of each field but those with Field::once. Losses with a total weight stay
  /// sums. Errors as for build().
  NetworkGraph build_scored(Ir ir, int64_t samples) const;

 private:
  NetworkGraph build(Ir ir, Purpose purpose, int64_t samples,
                     const std::vector<std::string>& watch = {}) const;

  std::vector<Field> fields_;
  std::string name_;
  std::shared_ptr<const nn::Declarations> declarations_;
  std::function<Results(nn::Builder&, const Inputs&)> build_;
};

struct ClassifierOptions {
  std::optional<TensorSpec> eval_input = {};  ///< Spec of an evaluation batch; absent: `input`.
};

namespace internal {

std::vector<Field> classifier_fields(const TensorSpec& input, const ClassifierOptions& options);

template <typename M>
class Classifier : public M {
 public:
  explicit Classifier(M module) : M(std::move(module)) {}
  Results build(nn::Builder& b, const Inputs& in) const {
    static_assert(
        requires { M::build(b, in["input"]); },
        "the module must define build(b, x); nn::Dropout takes its seed from b");
    const Tensor logits = M::build(b, in["input"]);
    Results results;
    if (in.mode() == nn::RunMode::kEvaluate) results.predictions = {{"logits", logits, "labels"}};
    if (in.wants_losses()) results.losses = {cross_entropy(logits, in["labels"])};
    return results;
  }
};

}  // namespace internal

/// A network that maps "input" to logits and has the cross entropy to "labels" (int32, one for each
/// sample) as its loss. `input` is the spec of a micro-batch; its first axis has the samples. The
/// module defines
///
///     Tensor build(nn::Builder& b, Tensor x) const;
template <typename M>
Network classifier(M module, const TensorSpec& input, const ClassifierOptions& options = {}) {
  return Network(internal::Classifier<M>(std::move(module)),
                 internal::classifier_fields(input, options));
}

}  // namespace sluice::train
