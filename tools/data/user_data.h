#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/data/dataset.h"
#include "sluice/data/samples.h"
#include "sluice/data/table/table.h"
#include "sluice/data/text/tokens.h"
#include "sluice/models/model.h"
#include "tools/options.h"

namespace sluice::tool {

/// Tokens of a text of the user.
struct UserTokens {
  data::Tokens train;
  data::Tokens test;
  std::shared_ptr<const data::Tokenizer> tokenizer;  ///< Null for a file of ids without one.
};

/// Samples of the user, in memory or read from their file when they are asked for.
struct UserSamples {
  /// An indexed dataset of the fields "input", f32, and "labels", i32 (), or "target", f32. Inputs
  /// alone have no second field. Absent without samples.
  std::optional<data::Dataset> dataset = {};
  int64_t size = 0;
};

/// The samples of --dataset.
struct UserData {
  UserSamples train = {};
  UserSamples test = {};
  std::optional<UserTokens> tokens = {};  ///< The samples are windows of these instead.
  int64_t classes = 0;  ///< One more than the largest label; of a regression, elements of a target.
  std::optional<data::TableSchema> schema = {};  ///< Schema of the table, or of the weights' table.
  std::map<std::string, std::string> metadata = {};  ///< Metadata to save with the weights.
  std::vector<std::string> notes = {};               ///< Lines about the choices, for the log.
};

/// The user's choice of samples. Empty names are "input" or "image", and "target" or "label". For a
/// CSV file, the names list columns between commas. An empty `target` is the last
/// column, and an empty `input` is all other columns. With `schema`, they are the columns of the
/// table for the schema's targets and inputs, in their order, and empty ones have the same names.
struct DataChoice {
  std::string source;  ///< Kind and file, such as "csv:FILE".
  std::string input = {};
  std::string target = {};
  std::optional<double> validation = {};  ///< Share of the samples for tests; absent: the test
                                          ///< files of an idx folder, or 0.1.
  models::Loss loss = models::Loss::kCrossEntropy;
  bool test_all = false;  ///< Whether all samples are for tests.
  bool trains = false;    ///< Whether the command trains or plans a training.
  TableFlags table = {};
  std::string weights = {};  ///< File with the weights; empty: random ones.
  models::SampleKind kind = models::SampleKind::kLabelled;
  std::string tokenizer = {};                    ///< As ModelOptions::tokenizer.
  int64_t vocabulary = 0;                        ///< Tokens of the model; 0: by the tokenizer.
  std::optional<data::TableSchema> schema = {};  ///< Schema of the weights' table; set by loading.
};

/// Returns the schema of the table on which the weights of a file were trained, if it has one.
/// Error{kBadFile} if the file or the schema is damaged.
std::optional<data::TableSchema> schema_of_weights(const std::string& file);

/// Opens a dataset by its kind and file, such as "csv:FILE": csv, npz, safetensors, text, or idx
/// with a folder. The fields are those of the file; of a CSV file all columns are one array.
/// Error{kUsage} for another text; otherwise errors are those of the readers
/// (data/dataset.h).
data::Dataset open_dataset(const std::string& source);

/// Loads samples with the input as f32, and as target a class from 0, or f32 values for the mean
/// squared error. The samples are shuffled before a share of them is taken for tests. Errors name
/// the line of a table, from 1, or the row of an array, from 0. The file is read once to check its
/// values. Memory holds samples of at most 16 MiB; others are read from the file, except from npz
/// archives and files in gzip. Error{kUsage} if a field is
/// missing, if a label is negative or not an integer, or if a number is not finite. Error{kUsage}
/// if one of both parts would be empty, if a training has one class alone, or for a text.
std::shared_ptr<const UserData> load_user_data(const DataChoice& choice);

/// Loads the inputs of all samples as UserData::test, f32 (n, …), in the order of the file, without
/// their targets. The samples must have `elements` elements. Columns of a CSV file are matched by
/// the names of `choice.schema`. Without it, `choice.target` are the columns that are no inputs, or
/// the last column if the file has one more than a sample has elements. An idx source is a file of
/// images, or a folder, whose training images are read.
std::shared_ptr<const UserData> load_inputs(const DataChoice& choice, int64_t elements);

/// Returns the samples of one part, with the fields of the model's network. `seed` sets what is
/// drawn of tokens.
models::SampleSet sample_set(const models::Model& model, const UserData& data, data::Split split,
                             const models::Sizes& sizes, uint64_t seed);

/// Sets the sizes of a model for the samples, and the number of classes unless weights have set it
/// (`has_classes`). Error{kUsage} if the model has another shape or fewer classes.
void fit_sizes(const models::Model& model, const UserData& data, bool has_classes,
               models::Sizes& sizes);

/// Returns the number of elements of a sample of the model.
int64_t elements_of_sample(const models::Model& model, const models::Sizes& sizes);

}  // namespace sluice::tool
