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
