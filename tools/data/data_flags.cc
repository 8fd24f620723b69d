#include "tools/data/data_flags.h"

#include "sluice/base/sys.h"
#include "tools/data/user_data.h"
#include "tools/numbers.h"

namespace sluice::tool {

void add_user_data(Flags flags, const char* group, ToolOptions& o) {
  flags.group(group, Common::kNo)
      .text("--dataset", "FILE", o.model.dataset,
            "Use the samples of csv:FILE, npz:FILE, safetensors:FILE or idx:DIR (default: the "
            "model's)");
  flags.text("--input", "FIELDS", o.model.input,
             "Take the inputs from this field, or these columns of a CSV file; requires --dataset "
             "(default: input, image, or all other columns)");
  flags.text("--target", "FIELD", o.model.target,
             "Take the labels from this field or column; requires --dataset (default: target, "
             "label, or the last column)");
  flags.value("--validation", "SHARE",
              "Test on this share of the samples; requires --dataset (default: 0.1)",
              [&o](const std::string& text) {
                o.model.validation = parse_real("--validation", text);
                require(o.model.validation > 0 && o.model.validation < 1,
                        "--validation: must be above 0 and below 1, got '{}'", text);
              });
}

void add_samples(Flags flags, const char* group, ToolOptions& o) {
  flags.group(group).text("--data", "DIR", o.model.data,
                          "Read the samples from DIR (default: $SLUICE_DATA, data/mnist or "
                          "data/cifar10, else generated "
                          "ones)");
  flags.text("--weights", "FILE", o.model.weights,
             "Start from the variables in this safetensors file (default: random ones)");
  flags.group(group, Common::kNo)
      .text("--torch-weights", "FILE", o.model.torch_weights,
            "Start from the state_dict of the same PyTorch module, as safetensors (default: none)");
  flags.flag("--synthetic", "Use generated samples even if real ones are found",
             [&o] { o.model.synthetic = true; });
}

// The reductions of gradients.
void add_reductions(Flags flags, const char* group, ToolOptions& o) {
  using train::Accumulation;
  flags.group(kTraining, Common::kNo)
      .choice("--accumulation-reduction", o.step.accumulation_reduction,
              {{"sum", Accumulation::kSum},
               {"mean", Accumulation::kMean},
               {"running_mean", Accumulation::kRunningMean}},
              "Reduce the gradients of micro-batches by this; requires --accumulate 2 or more "
              "(default: running_mean)");
  flags.choice("--replica-reduction", o.step.replica_reduction,
               {{"sum", train::ReplicaReduction::kSum}, {"mean", train::ReplicaReduction::kMean}},
               "Reduce the gradients of replicas by this; requires --replicas 2 or more "
               "(default: mean)");
  flags.choice("--accumulator-dtype", o.step.accumulator_dtype,
               {{"f32", f32}, {"f16", f16}, {"bf16", bf16}},
               "Accumulate gradients in this dtype; requires --accumulate 2 or more "
               "(default: the dtype of each variable)");
}

void use_dataset(ToolOptions& o) {
  ModelOptions& m = o.model;
  if (m.dataset.empty()) return;
  m.user_data = load_user_data(m.dataset, m.input, m.target, m.validation);
  fit_sizes(models::find_model(m.name), *m.user_data, m.sizes);
  if (!o.output.speaks()) return;
  sys::print_stderr("{}: {} samples to train on, {} to test on, {} classes\n", m.dataset,
                    m.user_data->train.size(), m.user_data->test.size(), m.user_data->classes);
}

}  // namespace sluice::tool
