#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/base/rng.h"
#include "sluice/data/samples.h"

namespace sluice::data {

namespace internal {
class Node;
}  // namespace internal

/// One element of a dataset: an array, a tuple of arrays, or arrays with the names of their fields.
struct Element {
  std::vector<HostTensor> arrays = {};
  std::vector<std::string> names = {};  ///< One name for each array, or empty for a tuple.

  Element() = default;
  Element(std::vector<HostTensor> tuple) : arrays(std::move(tuple)) {}  // NOLINT: implicit
  /// Error{kUsage} if two fields have one name.
  Element(std::initializer_list<NamedArray> fields);
  template <typename... More>
  requires(std::same_as<std::remove_cvref_t<More>, HostTensor>&&...)
      Element(HostTensor first, More&&... more) {  // NOLINT: implicit
    arrays.reserve(1 + sizeof...(more));
    arrays.push_back(std::move(first));
    (arrays.push_back(std::forward<More>(more)), ...);
  }

  /// Returns an array by its index. Error{kUsage} if it is not in [0, number of arrays).
  HostTensor& operator[](size_t index);
  const HostTensor& operator[](size_t index) const;
  /// Returns an array by the name of its field. Error{kUsage} listing the fields if it has none.
  HostTensor& operator[](std::string_view name);
  const HostTensor& operator[](std::string_view name) const;

  /// Bytes of all arrays.
  int64_t bytes() const;
};

/// The specs of the arrays of an element, and their names as in Element.
struct ElementSpecs {
  std::vector<TensorSpec> arrays = {};
  std::vector<std::string> names = {};
  /// If false, the last element of a pass may have a smaller first axis: batch(Remainder::kKeep).
  bool is_static = true;

  bool operator==(const ElementSpecs&) const = default;
};

/// Returns the specs of one element.
ElementSpecs specs_of(const Element& element);
/// Formats specs as "image (28, 28) float32, label () int32".
std::string to_string(const ElementSpecs& specs);

/// The number of elements or passes of a dataset that never ends.
inline constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

/// Whether batch() drops or keeps the last elements of a pass if they do not fill a batch.
enum class Remainder : uint8_t { kDrop, kKeep };

/// Reads one pass of a dataset. Its destructor stops and joins the threads of the pass; it waits
/// for calls of the user's functions that have begun.
class Iterator {
 public:
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  /// Returns the next element, or nothing at the end of the pass. Throws the error of a source or
  /// of a user's function once; after an error the iterator is at its end.
  std::optional<Element> next();
  /// Number of elements that next() returned so far.
  int64_t position() const { return position_; }

 private:
  friend class Dataset;
  struct State;
  explicit Iterator(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;  ///< Null at the end.
  int64_t position_ = 0;
};

/// A field of elements: its name, or its index in a tuple.
struct FieldId {
  std::string name = {};
  int64_t index = -1;  ///< Used if it is at least 0.

  FieldId() = default;
  FieldId(std::string field) : name(std::move(field)) {}  // NOLINT: implicit
  FieldId(const char* field) : name(field) {}             // NOLINT: implicit
  FieldId(int field) : index(field) {}                    // NOLINT: implicit

  bool operator==(const FieldId&) const = default;
};

/// A field whose arrays are padded at the end of an axis. Other axes keep their lengths.
struct PaddedField {
  FieldId field = {};
  double value = 0;  ///< The new entries. The field's dtype must store it.
  int axis = 0;      ///< The axis whose length varies, in [0, rank).
};

/// A bucket of bucket_by_length(): batches of the shape (batch, length, …).
struct Bucket {
  int64_t length = 1;  ///< The maximum length of its elements, in [1, 2^31). They are padded to it.
  int64_t batch = 1;   ///< Elements of a batch, >= 1.
};

/// Whether bucket_by_length() refuses or drops an element that is longer than all buckets.
enum class Longer : uint8_t { kRefuse, kDrop };

/// Options of bucket_by_length().
struct BucketOptions {
  std::vector<Bucket> buckets = {};        ///< At least one, in strictly ascending lengths.
  std::vector<PaddedField> fields = {};    ///< Fields whose length varies, at least one.
  Remainder remainder = Remainder::kDrop;  ///< Whether a pass ends with smaller batches.
  Longer longer = Longer::kRefuse;         ///< Elements that are longer than all buckets.
};

/// The element that an EpochMap computes, and a key for random numbers.
struct ElementContext {
  int64_t epoch = 0;  ///< Number of the pass: the epoch of a loader, or the pass of repeat().
  int64_t index = 0;  ///< Number of the element in a pass of the map's input.
  Seed key = {};      ///< A pure function of (MapOptions::seed, epoch, index).
};

/// Options of a map that reads the epoch.
struct MapOptions {
  uint64_t seed = 0;  ///< Seed of ElementContext::key. Maps of one pipeline need different seeds.
  std::optional<ElementSpecs> specs = {};  ///< Specs that each result must have, if they are given.
};

/// Describes a lazy pipeline from a source over combinators to elements. A copy is cheap and shares
/// the source's memory. Nothing runs before iterate() begins a pass. All elements, in order and
/// bytes, are a pure function of the sources, the seeds and the number of the pass; workers and
/// prefetching do not change them. Several threads may use one dataset, each with its own iterator.
///
/// A combinator throws Error{kUsage} if an argument is out of range. An iterator throws the errors
/// of the user's functions: an Error gets the note "map computed element 7"; another exception
/// becomes Error{kUsage} with the same number. Elements count from 0 in each pass.
class Dataset {
 public:
  using Map = std::function<Element(Element)>;
  using EpochMap = std::function<Element(Element, const ElementContext&)>;

  /// For sources and combinators.
  explicit Dataset(std::shared_ptr<const internal::Node> node) : node_(std::move(node)) {}
  Dataset(const Dataset&) = default;  // A move is a copy: a dataset always has a node.
  Dataset& operator=(const Dataset&) = default;

  /// Begins pass number `pass`. repeat() numbers the passes of its input from 0.
  Iterator iterate(uint64_t pass = 0) const;
  /// Returns the specs if they are known without an element. Those of map() and of functions are
  /// known if the caller states them.
  std::optional<ElementSpecs> element_specs() const;
  /// Number of elements of a pass; kForever if it has no end, nothing if it is not known.
  std::optional<int64_t> size() const;

  /// Replaces each element e by f(e). If `specs` are given, each result must have them.
  Dataset map(Map f, std::optional<ElementSpecs> specs = std::nullopt) const;
  /// Replaces each element e by f(e, context), which differs from epoch to epoch: an augmentation.
  ///   map([](Element e, const ElementContext& c) { return flipped(e, random_unit(c.key, 0)); },
  ///       {.seed = 1})
  /// The result is a pure function of (e, epoch, index, seed), also in a loader with workers or one
  /// that starts at any item. Put it after cache(), which refuses it, and before repeat(), which
  /// numbers the epochs.
  Dataset map(EpochMap f, MapOptions options = {}) const;
  /// Computes map(f) on `workers` threads, in [0, 256]; 0 computes on the thread of the consumer.
  /// Several threads call `f` at once, on at most 2·workers elements ahead of the consumer, and
  /// possibly on elements after one that fails.
  Dataset parallel_map(Map f, int workers, std::optional<ElementSpecs> specs = std::nullopt) const;
  Dataset parallel_map(EpochMap f, int workers, MapOptions options = {}) const;
  /// Shuffles: holds `buffer` >= 1 elements, and replaces each drawn element by the next element.
  /// The order is a pure function of (seed, pass). With a buffer of size() elements, all orders are
  /// equally likely.
  Dataset shuffle(uint64_t seed, int64_t buffer) const;
  /// Joins `n` >= 1 consecutive elements along a new first axis. An iterator throws Error{kUsage}
  /// if the specs of elements differ.
  Dataset batch(int64_t n, Remainder remainder = Remainder::kDrop) const;
  /// Pads the axis of each of `fields` to `length`, in [1, 2^31). Elements of different lengths
  /// then have one shape, as batch() and a program require:
  ///   pad(128, {{"tokens", 0}, {"labels", -100}})
  /// If fields are padded on axis 0 after batch(n, Remainder::kKeep), the last batch has n rows. An
  /// iterator, or pad() if the specs are known, throws Error{kUsage} if a length is greater, or if
  /// a field, its axis or its dtype does not suit.
  Dataset pad(int64_t length, std::vector<PaddedField> fields) const;
  /// Pads the axis of each of `fields` to the next multiple of `multiple`, in [1, 2^31).
  Dataset pad_to_multiple(int64_t multiple, std::vector<PaddedField> fields) const;
  /// Joins elements of similar lengths into batches, so that little is padded. The length of an
  /// element is the maximum length of its fields. It joins the first bucket that is long enough,
  /// and is padded to its length. A batch follows the element that completes it. A pass ends with
  /// the smaller batches of Remainder::kKeep in ascending lengths, or drops their elements.
  ///   bucket_by_length({.buckets = {{32, 16}, {128, 4}}, .fields = {{"tokens"}}})
  /// Each bucket has one static shape, so a program runs the batches of one bucket. The dataset is
  /// not indexed: put parallel_map() before it. Error{kUsage} if an option is out of range; an
  /// iterator also throws it for an element that is too long, or as pad() does.
  /// Source: tf.data's bucket_by_sequence_length.
  Dataset bucket_by_length(BucketOptions options) const;
  /// Reads n = `passes` >= 0 passes in turn: pass p reads passes p·n to p·n + n - 1, or p, p + 1, …
  /// for kForever. An iterator throws Error{kUsage} if a pass that repeats forever is empty.
  Dataset repeat(int64_t passes = kForever) const;
  /// Keeps the first `n` >= 0 elements of a pass.
  Dataset take(int64_t n) const;
  /// Skips the first `n` >= 0 elements of a pass.
  Dataset skip(int64_t n) const;
  /// Splits the elements at random into one dataset for each of `fractions`, positive numbers with
  /// the sum 1, such as {0.9, 0.1}. The parts are disjoint and hold all elements, each part in the
  /// order of the dataset. They are the same in each pass: a pure function of (seed, size()). Parts
  /// 0 to i hold round(size() · (fractions[0] + … + fractions[i])) elements, halves up, of
  /// fractions that are rounded to 1e-12. Error{kUsage} unless the dataset is indexed
  /// (data/loader.h) and has an end, or if a part has no elements.
  std::vector<Dataset> split(const std::vector<double>& fractions, uint64_t seed) const;
  /// Draws `n` elements in each pass, or size() of them, with replacement: element k with the
  /// probability weights[k] / sum. A weight is a finite number >= 0. The draws are a pure function
  /// of (seed, pass, number of the draw). Error{kUsage} unless the dataset is indexed and has an
  /// end, or if there is not one weight for each element. Compare PyTorch's WeightedRandomSampler.
  Dataset weighted(const std::vector<double>& weights, uint64_t seed,
                   std::optional<int64_t> n = std::nullopt) const;
  /// Stores the elements of the first pass that is read to its end, and reads later passes from
  /// memory. It always reads pass 0, so call shuffle() after cache(). If a loader makes elements
  /// one by one, each of them is stored. Error{kUsage} if an EpochMap computes the elements.
  Dataset cache() const;
  /// Reads up to `depth` elements, in [1, 65536], ahead on a thread. An iterator of prefetch() or
  /// parallel_map() throws Error{kIo} if the system does not start a thread.
  Dataset prefetch(int64_t depth) const;

  /// An input iterator over pass 0, for `for (const Element& e : dataset)`.
  class Cursor {
   public:
    using value_type = Element;
    using difference_type = std::ptrdiff_t;

    explicit Cursor(Iterator pass) : pass_(std::move(pass)), element_(pass_.next()) {}
    Element& operator*() { return *element_; }
    Cursor& operator++() {
      element_ = pass_.next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !element_.has_value(); }

   private:
    Iterator pass_;
    std::optional<Element> element_;
  };
  Cursor begin() const { return Cursor(iterate()); }
  std::default_sentinel_t end() const { return {}; }

  const std::shared_ptr<const internal::Node>& node() const { return node_; }

 private:
  std::shared_ptr<const internal::Node> node_;
};

/// Joins the k-th elements of all datasets into one element: the arrays of the first dataset, then
/// the arrays of the second, …. Ends with the shortest dataset. Error{kUsage}, here or at the first
/// element, if only some datasets have names, or if a name appears twice.
Dataset zip(std::vector<Dataset> datasets);

/// Reads the datasets one after the other. The size is the sum of their sizes. Only the last one
/// may have no end. Error{kUsage}, for interleave() and sample_from() too, if the specs that are
/// known differ in more than the shapes of arrays.
Dataset concat(std::vector<Dataset> datasets);

/// Reads `block` >= 1 elements of each dataset in turn, until all have ended. A dataset that has
/// ended is skipped. The size is the sum of the sizes.
///   interleave({count_to(5), letters("abc")}, 2)   // 0 1 a b 2 3 c 4
Dataset interleave(std::vector<Dataset> datasets, int64_t block = 1);

/// Draws the dataset of each element with the probability weights[i] / sum, and reads the next
/// element of that dataset. A weight is a finite number >= 0. The draws are a pure function of
/// (seed, pass, number of the draw). Pass p reads pass p of each dataset. It ends when the drawn
/// dataset has ended, so repeat() the datasets and take(n) elements for a known size; it is indexed
/// then. An indexed dataset draws up to 512 times to find an element by its number, and stores a
/// count for every 512 draws and dataset. Error{kUsage} unless each dataset has one weight.
Dataset sample_from(std::vector<Dataset> datasets, const std::vector<double>& weights,
                    uint64_t seed);

/// Cuts arrays along their first axis: element k has row k of each array.
///   from_tensors(x)   from_tensors({x, y})   from_tensors({{"image", x}, {"label", y}})
/// Error{kUsage} without arrays, if an array is a scalar, or if the first axes differ.
Dataset from_tensors(Element whole);

/// Computes element k as f(k), for k in [0, n). `n` may be kForever.
///   from_function(10, [](int64_t k) { return HostTensor::scalar(static_cast<float>(k)); })
/// Several threads may call `f` at once. If `specs` are given, each element must have them.
Dataset from_function(int64_t n, std::function<Element(int64_t)> f,
                      std::optional<ElementSpecs> specs = std::nullopt);

/// Returns the next element, or nothing at the end of the stream.
using Generator = std::function<std::optional<Element>()>;
/// Reads a fresh stream make() in each pass. One thread at a time calls a stream; several threads
/// may call `make` at once. If `specs` are given, each element must have them.
Dataset from_generator(std::function<Generator()> make,
                       std::optional<ElementSpecs> specs = std::nullopt);

/// Returns the specs of the elements, which programs with static shapes require. Computes the first
/// element of pass 0 if element_specs() does not know them. Error{kUsage} if the last batch may be
/// smaller (drop its remainder), a dimension is 0, a dtype is f64 or i64 (only the host supports
/// them), or the dataset has no element. `what` begins the message, for example "feed 'x'".
ElementSpecs check_static(const Dataset& dataset, std::string_view what = "dataset");

/// The measurement of dataset_benchmark().
struct BenchmarkOptions {
  int64_t epochs = 1;       ///< Number of parts that are measured one by one, in [1, 1000000].
  int64_t elements = 1000;  ///< Elements of an epoch, >= 1. All epochs read one pass.
  bool copy = true;         ///< Copies each array to a page of memory, as a feed does.
};

/// The result of one epoch. All numbers are 0 if the pass ended before it.
struct BenchmarkEpoch {
  int64_t elements_processed = 0;
  int64_t total_bytes_processed = 0;
  double time_elapsed = 0;  ///< Seconds.
  double elements_per_second = 0;
  double bandwidth = 0;  ///< GB/s, with 1e9 bytes in a GB.
  double p50 = 0;        ///< Median of the seconds that the consumer needs per element.
  double p99 = 0;        ///< Seconds that 99 of 100 elements do not exceed.
};

struct BenchmarkResult {
  std::vector<BenchmarkEpoch> epochs = {};
  int64_t requested = 0;  ///< epochs · elements.
  int64_t produced = 0;   ///< Less than `requested` if the pass ended before.

  /// Returns {"epochs": [{"elements_processed": …, "total_bytes_processed": …, "time_elapsed": …,
  /// "elements_per_second": …, "bandwidth": …}, …], "requested": …, "produced": …}.
  std::string to_json() const;
};

/// Measures how fast the host makes elements, without a device. Compare elements_per_second with
/// the rate of the program that consumes them: the lower one limits the run. Error{kUsage} if an
/// option is out of range or a dimension of an element is 0; also the errors of the dataset.
BenchmarkResult dataset_benchmark(const Dataset& dataset, const BenchmarkOptions& options = {});

// The sources below do not trust their files. They throw Error{kIo} if a file cannot be read, and
// Error{kBadFile}, which names the file and the byte or line, if the file breaks its format. They
// never allocate more memory than the bytes of the file justify. Devices have no f64 and no i64:
// arrays of these dtypes become f32 and i32, and an integer that i32 cannot store is
// Error{kBadFile}.
//
// A file stays on the disk: an element is read by its offset when it is asked for, and all
// iterators of a source share 4 MiB of blocks. Errors of single values are thrown when their
// element is read. A file must not change meanwhile: Error{kBadFile}, which names the file and the
// byte, if it is cut or written; a reader never maps a file. Files in gzip and npz archives are
// read into memory when the source is called.
//
// from_npy(), from_safetensors() and from_csv() also read a folder: its files that end with .npy,
// .safetensors or .csv, in the order of their names, are one dataset. Error{kBadFile}, which names
// the file, if its elements have other specs or columns than elements of the first file.

/// Whether from_idx() scales grey values.
enum class IdxPixels : uint8_t {
  kNormalised,  ///< f32, by normalised_pixel().
  kRaw,         ///< u8, as in the file.
};

/// Reads IDX files, plain or gzip, of n images of any size and their n labels. The fields are
/// "image" and "label" (i32). Error{kBadFile} if the numbers of images and labels differ, or if
/// they are not bytes.
Dataset from_idx(const std::string& images, const std::string& labels,
                 IdxPixels pixels = IdxPixels::kNormalised);
/// Reads the files of MNIST in `folder` or its subfolder mnist, as above. Error{kIo} if one is
/// missing.
Dataset from_idx(const std::string& folder, Split split, IdxPixels pixels = IdxPixels::kNormalised);

/// Reads an array that numpy.save wrote (versions 1 to 3) and cuts it along its first axis, as
/// from_tensors() does. The dtypes are Sluice's, little-endian. Error{kBadFile} if the array
/// is in Fortran order or has another dtype.
Dataset from_npy(const std::string& path);

/// Reads arrays that numpy.savez or numpy.savez_compressed wrote, and cuts them along their first
/// axis. The field of array x is "x". `fields` chooses arrays and their order; if it is empty, all
/// arrays are read in the order of the file. Error{kUsage}, which lists the fields, if one of
/// `fields` is not in the file. Error{kBadFile} also for encrypted archives.
Dataset from_npz(const std::string& path, const std::vector<std::string>& fields = {});

/// Texts in UTF-8, written as a NumPy array of dtype <U.
struct NamedTexts {
  std::string name;
  std::vector<std::string> texts;
};

/// Writes arrays, then `texts`, to the file at `path` as numpy.savez does, with sys::replace_file:
/// a reader finds the whole old file or the whole new one. Equal arrays produce equal bytes.
/// Error{kUsage} if a name is empty or appears twice. Error{kUsage} if NumPy does not have a dtype
/// (bf16), or if the file would have 4 GiB or more. Error{kIo} if the file cannot be written.
void write_npz(const std::string& path, std::span<const NamedArray> arrays,
               std::span<const NamedTexts> texts = {});

/// Reads tensors of a safetensors file and cuts them along their first axis. `fields` as in
/// from_npz(). Tensors of other dtypes do not matter unless they are asked for.
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

/// Reads numbers from a CSV file in UTF-8 (RFC 4180), one element for each record, plain or gzip.
/// Lines end with LF or CRLF. A cell in quotes may contain separators, line breaks and doubled
/// quotes. Spaces and tabs around a cell and empty lines at the end of the file are ignored. Only
/// the columns of the fields are read as numbers. Error{kBadFile}, which names line and column, if
/// a cell is not a finite number that its dtype can store. Error{kBadFile}, which names the line,
/// if a record and the first one have different numbers of columns. Lines and columns count from 1;
/// the line is that in which the record begins. Error{kUsage}, which lists the columns, if one of
/// `options.fields` does not exist. All records are checked when the source is called; memory then
/// has their positions, at most 8 MiB, and their numbers only if these need at most 4 MiB. A record
/// of more than 16 MiB is Error{kBadFile}.
///   from_csv("iris.csv", {.fields = {{.name = "x", .columns = {"width", "length"}},
///                                    {.name = "y", .column = "species", .dtype = i32}}})
Dataset from_csv(const std::string& path, const CsvOptions& options = {});

/// Returns the names of the columns of a CSV file by its header, or "0", "1", … without one.
std::vector<std::string> csv_columns(const std::string& path, const CsvOptions& options = {});

}  // namespace sluice::data
