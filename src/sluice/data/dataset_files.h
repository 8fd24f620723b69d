#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/data/dataset.h"
#include "sluice/data/samples.h"

namespace sluice::data {

// The sources below read their files when they are called; later changes of the files have no
// effect. They do not trust the files. They throw Error{kIo} if a file cannot be read, and
// Error{kBadFile} naming the file and the byte or line if it breaks its format. They never allocate
// more memory than the bytes of the file justify. Devices have no f64 and no i64: arrays of these
// dtypes become f32 and i32, and an integer that i32 cannot store is Error{kBadFile}.

/// Whether from_idx() scales grey values.
enum class IdxPixels : uint8_t {
  kNormalised,  ///< f32, by normalised_pixel().
  kRaw,         ///< u8, as in the file.
};

/// Reads IDX files, plain or gzip, of n images of any size and their n labels. The fields are
/// "image" and "label" i32. Error{kBadFile} if their numbers differ, or if they are not bytes.
Dataset from_idx(const std::string& images, const std::string& labels,
                 IdxPixels pixels = IdxPixels::kNormalised);
/// Reads the files of MNIST in `folder` or its subfolder mnist, as above. Error{kIo} if one is
/// missing.
Dataset from_idx(const std::string& folder, Split split, IdxPixels pixels = IdxPixels::kNormalised);

/// Reads an array that numpy.save wrote (versions 1 to 3) and cuts it along its first axis, as
/// from_tensors() does. The dtypes are those of Sluice, little-endian. Error{kBadFile} if the array
/// is in Fortran order or has another dtype.
Dataset from_npy(const std::string& path);

/// Reads arrays that numpy.savez or numpy.savez_compressed wrote, and cuts them along their first
/// axis. The field of array x is "x". `fields` chooses arrays and their order; if it is empty, all
/// arrays are read in the order of the file. Error{kUsage} listing the fields if the file lacks
/// one. Error{kBadFile} also for archives over 4 GiB and encrypted ones.
Dataset from_npz(const std::string& path, const std::vector<std::string>& fields = {});

/// Writes arrays to the file at `path` as numpy.savez does, with sys::replace_file: a reader finds
/// the whole old file or the whole new one. Equal arrays give equal bytes. Error{kUsage} if a name
/// is empty or appears twice, if NumPy lacks a dtype (bf16), or if the file would have 4 GiB or
/// more; Error{kIo} if the file cannot be written.
void write_npz(const std::string& path, std::span<const NamedArray> arrays);

/// Reads tensors of a safetensors file and cuts them along their first axis. `fields` as in
/// from_npz().
Dataset from_safetensors(const std::string& path, const std::vector<std::string>& fields = {});

/// A column of a CSV file: its name in the header, or its number from 0.
struct CsvColumn {
  std::string name = {};
  int64_t number = -1;  ///< Used if it is at least 0.

  CsvColumn() = default;
  CsvColumn(std::string column) : name(std::move(column)) {}  // NOLINT: implicit
  CsvColumn(const char* column) : name(column) {}             // NOLINT: implicit
  CsvColumn(int column) : number(column) {}                   // NOLINT: implicit
};

/// A field of the elements of a CSV file. Either `column` or `columns` is given.
struct CsvField {
  std::string name = {};                ///< Empty for each field of a tuple.
  CsvColumn column = {};                ///< One column: the shape is ().
  std::vector<CsvColumn> columns = {};  ///< c columns: the shape is (c).
  DType dtype = f32;                    ///< f32, i32, u32, u8 or bool.
};

/// Whether the first line of a CSV file has the names of the columns.
enum class CsvHeader : uint8_t {
  kDetect,  ///< It has if no cell is a number; a mixed line is Error{kBadFile}.
  kYes,
  kNo,
};

struct CsvOptions {
  std::vector<CsvField> fields = {};  ///< Empty: one array of all columns, f32.
  CsvHeader header = CsvHeader::kDetect;
  char separator = ',';  ///< A tab or one of ,;:|/&#.
};

/// Reads numbers from a CSV file in UTF-8, one element for each line. Lines end with LF or CRLF.
/// Spaces and tabs around a cell, a pair of quotes around it and empty lines at the end of the file
/// are ignored. Only the columns of the fields are read as numbers. Error{kBadFile} naming line and
/// column if a cell is not a finite number that its dtype can store, and naming the line if it has
/// another number of columns than the first one; lines and columns count from 1. Error{kUsage}
/// listing the columns if one of `options.fields` does not exist.
///   from_csv("iris.csv", {.fields = {{.name = "x", .columns = {"width", "length"}},
///                                    {.name = "y", .column = "species", .dtype = i32}}})
Dataset from_csv(const std::string& path, const CsvOptions& options = {});

/// Returns the names of the columns of a CSV file by its header, or "0", "1", … without one.
std::vector<std::string> csv_columns(const std::string& path, const CsvOptions& options = {});

/// A text as numbers: character k is vocabulary[ids[k]].
struct Text {
  std::vector<std::string> vocabulary = {};  ///< The characters in UTF-8, by their code points.
  HostTensor ids = {};                       ///< (characters) i32.

  /// Returns the ids of the characters of `text`, (characters) i32. Error{kUsage} if a character is
  /// not in the vocabulary, or if the text is not UTF-8.
  HostTensor encode(const std::string& text) const;
  /// Returns the characters of i32 ids of any shape. Error{kUsage} if an id is out of range.
  std::string decode(const HostTensor& ids) const;
};

/// Reads a text in UTF-8 and makes the vocabulary of its characters. Error{kBadFile} naming the
/// byte if the file is not UTF-8.
Text read_text(const std::string& path);

struct TextOptions {
  int64_t length = 64;  ///< Characters of a window, >= 1.
  int64_t stride = 0;   ///< Characters between the beginnings of two windows; 0 takes `length`.
};

/// Cuts a text into windows: the fields "input" and "target" are i32 (length), and the target is
/// the input moved on by one character. Error{kUsage} if an option is out of range or the text is
/// shorter than length + 1.
Dataset from_text(const Text& text, const TextOptions& options = {});
/// Reads a text as read_text() and cuts it into windows. Error{kBadFile} if it is too short.
Dataset from_text(const std::string& path, const TextOptions& options = {});

}  // namespace sluice::data
