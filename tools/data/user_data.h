#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "sluice/data/dataset.h"
#include "sluice/data/samples.h"
#include "sluice/models/model.h"

namespace sluice::tool {

/// The samples of --dataset. They are shuffled, and a share of them is for tests.
struct UserData {
  data::Samples train;
  data::Samples test;
  int64_t classes = 0;  ///< One more than the largest label.
};

/// Opens a dataset by its kind and file, such as "csv:FILE": csv, npz, safetensors, or idx with a
/// folder. The fields are those of the file; of a CSV file all columns are one array. Error{kUsage}
/// for another text; otherwise errors are those of the readers (data/dataset_files.h).
data::Dataset open_dataset(const std::string& text);

/// Loads samples with the field `input` as f32 and the field `target` as a class from 0. Empty
/// names are "input" and "target", or "image" and "label" of an idx folder. Of a CSV file, `input`
/// lists columns between commas; if the names are empty, the target is the last column, and the
/// inputs are all others. The share `validation` of the samples is for tests. Error{kUsage} if a
/// field is missing, if a label is negative or no integer, or if one of both parts would be empty.
std::shared_ptr<const UserData> load_user_data(const std::string& text, const std::string& input,
                                               const std::string& target, double validation);

/// Sets the sizes of a model for the samples. Error{kUsage} if it has another shape or fewer
/// classes.
void fit_sizes(const models::Model& model, const UserData& data, models::Sizes& sizes);

}  // namespace sluice::tool
