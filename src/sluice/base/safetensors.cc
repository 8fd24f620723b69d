#include "sluice/base/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "sluice/base/bytes.h"
#include "sluice/base/checked.h"
#include "sluice/base/sys.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxRank = 64;
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kWanted = "a safetensors file";

constexpr std::array<std::pair<std::string_view, DType>, 9> kDTypes{{{"F32", DType::kF32},
                                                                     {"F16", DType::kF16},
                                                                     {"BF16", DType::kBF16},
                                                                     {"I32", DType::kI32},
                                                                     {"U32", DType::kU32},
                                                                     {"U8", DType::kU8},
                                                                     {"BOOL", DType::kBool},
                                                                     {"F64", DType::kF64},
                                                                     {"I64", DType::kI64}}};

// Bits of an element of the format's other dtypes; 0 for any other text.
int64_t foreign_bits(std::string_view dtype) {
  if (dtype == "I8" || dtype.starts_with("F8_")) return 8;
  if (dtype == "I16" || dtype == "U16") return 16;
  if (dtype == "U64" || dtype == "C64") return 64;
  if (dtype.starts_with("F6_")) return 6;
  return dtype == "F4" ? 4 : 0;
}

/// Quotes text from a file for a message: at most 60 bytes, without control characters.
std::string shown(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 60))
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (text.size() > 60 ? "…'" : "'");
}

/// Iterates over the characters of the header and stores in `reached` how far the parser has read.
struct HeaderIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** reached = nullptr;

  reference operator*() const { return *at; }
  HeaderIterator& operator++() {
    *reached = ++at;
    return *this;
  }
  HeaderIterator operator++(int) {
    const HeaderIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const HeaderIterator& other) const { return at == other.at; }
  bool operator!=(const HeaderIterator& other) const { return at != other.at; }
};

struct RawTensor {
  std::string name;
  int64_t byte = 0;  ///< Byte offset in the file where the tensor's JSON ends, for messages.
  DType dtype = DType::kU8;
  std::string foreign;  ///< The dtype, if Sluice lacks it.
  int64_t bits = 8;     ///< Bits of an element.
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
};

/// The callbacks of the JSON parser: a state machine that accepts only the grammar of the header.
/// So a file cannot nest more deeply or use other types.
class HeaderHandler {
 public:
  HeaderHandler(const std::string& file, std::string_view text)
      : file_(file), start_(text.data()), reached_(text.data()), end_(text.data() + text.size()) {}

  HeaderIterator begin() { return {start_, &reached_}; }
  HeaderIterator end() { return {end_, &reached_}; }

  std::vector<RawTensor> tensors;
  SafetensorsMetadata metadata;

  [[noreturn]] void bad_at(int64_t byte, const std::string& message) const {
    fail(ErrorKind::kBadFile, "{}: byte {}: {}", file_, byte, message);
  }
  [[noreturn]] void bad(const std::string& message) const { bad_at(byte(), message); }

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a boolean"); }
  bool number_integer(int64_t) { unexpected("a negative number"); }
  bool number_float(double, const std::string&) {
    unexpected("a number that is not a 64-bit unsigned integer");
  }
  template <typename Binary>
  bool binary(Binary&) {
    SLUICE_CHECK(false);  // JSON has no binary values.
    return false;
  }

  bool number_unsigned(uint64_t value) {
    if (state_ != State::kShape && state_ != State::kOffsets) unexpected("a number");
    if (value > static_cast<uint64_t>(kMaxInt)) bad(fmt::format("{} exceeds 63 bits", value));
    const bool is_shape = state_ == State::kShape;
    auto& list = is_shape ? tensors.back().shape : tensors.back().offsets;
    if (list.size() == (is_shape ? kMaxRank : 2)) {
      bad(is_shape ? fmt::format("a shape has more than {} dimensions", kMaxRank)
                   : "data_offsets has more than two numbers");
    }
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) {
    if (state_ == State::kMetadataValue) {
      metadata[metadata_key_] = value;
      state_ = State::kMetadata;
      return true;
    }
    if (state_ != State::kDType) unexpected("a string");
    const auto row = std::find_if(kDTypes.begin(), kDTypes.end(),
                                  [&](const auto& r) { return r.first == value; });
    state_ = State::kEntry;
    if (row != kDTypes.end()) {
      tensors.back().dtype = row->second;
      tensors.back().bits = 8 * size_of(row->second);
      return true;
    }
    tensors.back().foreign = value;
    tensors.back().bits = foreign_bits(value);
    if (tensors.back().bits == 0) {
      bad(fmt::format("dtype {} is not one of F32 F16 BF16 I32 U32 U8 BOOL F64 I64", shown(value)));
    }
    return true;
  }

  bool start_object(size_t) {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kEntryValue:
        state_ = State::kEntry;
        return true;
      case State::kMetadataObject:
        state_ = State::kMetadata;
        return true;
      default:
        unexpected("an object");
    }
  }

  bool key(std::string& name) {
    if (state_ == State::kTop) {
      if (!names_.insert(name).second) bad(fmt::format("{} appears twice", shown(name)));
      if (name == kMetadata) {
        state_ = State::kMetadataObject;
      } else {
        tensors.emplace_back().name = name;
        state_ = State::kEntryValue;
      }
    } else if (state_ == State::kMetadata) {
      if (metadata.contains(name))
        bad(fmt::format("{} appears twice in the metadata", shown(name)));
      metadata_key_ = name;
      state_ = State::kMetadataValue;
    } else {
      entry_key(name);
    }
    return true;
  }

  bool end_object() {
    if (state_ == State::kEntry) {
      RawTensor& tensor = tensors.back();
      tensor.byte = byte();
      if (!tensor.has_dtype || !tensor.has_shape || !tensor.has_offsets) {
        bad(fmt::format("tensor {} has no {}", shown(tensor.name),
                        !tensor.has_dtype   ? "dtype"
                        : !tensor.has_shape ? "shape"
                                            : "data_offsets"));
      }
      if (tensor.offsets.size() != 2) bad("data_offsets needs two numbers");
    }
    state_ = state_ == State::kTop ? State::kDone : State::kTop;
    return true;
  }

  bool start_array(size_t) {
    if (state_ == State::kShapeValue) {
      state_ = State::kShape;
    } else if (state_ == State::kOffsetsValue) {
      state_ = State::kOffsets;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() {
    state_ = State::kEntry;
    return true;
  }

  template <typename Exception>
  bool parse_error(size_t, const std::string&, const Exception&) {
    bad("the header is not valid JSON in UTF-8");
  }

 private:
  enum class State {
    kStart,
    kTop,
    kMetadataObject,
    kMetadata,
    kMetadataValue,
    kEntryValue,
    kEntry,
    kDType,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kDone
  };

  int64_t byte() const { return 8 + (reached_ - start_); }

  [[noreturn]] void unexpected(std::string_view what) const {
    std::string_view wanted = "an object";
    switch (state_) {
      case State::kMetadataValue:
      case State::kDType:
        wanted = "a string";
        break;
      case State::kShapeValue:
      case State::kOffsetsValue:
        wanted = "an array";
        break;
      case State::kShape:
      case State::kOffsets:
        wanted = "an unsigned integer";
        break;
      default:
        break;
    }
    bad(fmt::format("the value must be {}, got {}", wanted, what));
  }

  void entry_key(const std::string& name) {
    RawTensor& tensor = tensors.back();
    bool* seen = nullptr;
    if (name == "dtype") {
      seen = &tensor.has_dtype;
      state_ = State::kDType;
    } else if (name == "shape") {
      seen = &tensor.has_shape;
      state_ = State::kShapeValue;
    } else if (name == "data_offsets") {
      seen = &tensor.has_offsets;
      state_ = State::kOffsetsValue;
    } else {
      bad(fmt::format("tensor {} has an unknown field {}", shown(tensor.name), shown(name)));
    }
    if (std::exchange(*seen, true))
      bad(fmt::format("tensor {} has the field {} twice", shown(tensor.name), shown(name)));
  }

  const std::string& file_;
  const char* start_;
  const char* reached_;
  const char* end_;
  State state_ = State::kStart;
  std::set<std::string> names_;
  std::string metadata_key_;
};

/// Reads the header's length N. Error{kBadFile} if it exceeds kMaxHeader or the size of the file.
int64_t header_size(ByteReader& reader, int64_t file_size) {
  const uint64_t n = reader.u64_le("the header's length");
  if (n > static_cast<uint64_t>(kMaxHeader))
    reader.bad("the header must have at most {} bytes, got {}", kMaxHeader, n);
  if (static_cast<int64_t>(n) > file_size - 8) {
    reader.bad("the header needs {} bytes, {} are left in the file", n, file_size - 8);
  }
  return static_cast<int64_t>(n);
}

/// Checks that the tensor's offsets lie inside the `data` bytes of the file and match its shape.
void check_tensor(const HeaderHandler& header, const RawTensor& tensor, int64_t data) {
  const int64_t begin = tensor.offsets[0];
  const int64_t end = tensor.offsets[1];
  if (begin > end || end > data) {
    header.bad_at(tensor.byte,
                  fmt::format("tensor {}: data_offsets must be in [0, {}], got [{}, {})",
                              shown(tensor.name), data, begin, end));
  }
  // The product of all dimensions that are not 0 must fit too, so that the strides of an empty
  // tensor fit.
  int64_t extent = tensor.bits;
  bool is_empty = false;
  for (const int64_t dim : tensor.shape) {
    if (dim == 0) {
      is_empty = true;
    } else if (extent > kMaxInt / dim) {
      header.bad_at(tensor.byte,
                    fmt::format("the shape of tensor {} exceeds 63 bits", shown(tensor.name)));
    } else {
      extent *= dim;
    }
  }
  const int64_t bytes = is_empty ? 0 : extent / 8 + (extent % 8 == 0 ? 0 : 1);
  if (bytes != end - begin) {
    header.bad_at(tensor.byte,
                  fmt::format("tensor {}: data_offsets must span {} bytes, got {} in [{}, {})",
                              shown(tensor.name), bytes, end - begin, begin, end));
  }
}

/// Checks that the tensors cover the `data` bytes without overlap or hole.
void check_tiling(const HeaderHandler& header, int64_t data) {
  const std::vector<RawTensor>& tensors = header.tensors;
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].offsets < tensors[b].offsets; });
  int64_t covered = 0;
  for (const size_t i : order) {
    const RawTensor& tensor = tensors[i];
    if (tensor.offsets[0] != covered) {
      header.bad_at(tensor.byte, fmt::format("tensor {} must begin at data byte {}, got {} ({})",
                                             shown(tensor.name), covered, tensor.offsets[0],
                                             tensor.offsets[0] < covered ? "overlap" : "hole"));
    }
    covered = tensor.offsets[1];
  }
  if (covered != data) {
    header.bad(fmt::format("the tensors must cover all {} data bytes, got {}", data, covered));
  }
}

void check_bools(DType dtype, std::span<const std::byte> bytes, const std::string& file,
                 int64_t offset) {
  if (dtype != boolean) return;
  const auto wrong =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (wrong != bytes.end()) {
    fail(ErrorKind::kBadFile, "{}: byte {}: a bool must be 0 or 1, got {}", file,
         offset + (wrong - bytes.begin()), static_cast<int>(*wrong));
  }
}

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::kUsage, "safetensors: names and metadata must be UTF-8");
  }
}

}  // namespace

SafetensorsIndex read_safetensors_index(std::span<const std::byte> head, int64_t file_size,
                                        const std::string& file) {
  refuse_other_kind(head, file, Contents::kBinary, kWanted);
  ByteReader reader(file, head);
  const int64_t n = header_size(reader, file_size);
  const auto bytes = reader.take(n, "the header");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  HeaderHandler header(file, text);
  if (text.empty() || text.front() != '{') header.bad("the header does not begin with '{'");
  // The JSON parser treats a NUL as the end of its input and would ignore the rest.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    header.bad_at(8 + static_cast<int64_t>(nul), "the header contains a NUL");
  }
  SLUICE_CHECK(nlohmann::json::sax_parse(header.begin(), header.end(), &header));

  const int64_t data = file_size - 8 - n;
  for (const RawTensor& tensor : header.tensors) check_tensor(header, tensor, data);
  check_tiling(header, data);

  SafetensorsIndex index;
  index.tensors.reserve(header.tensors.size());
  for (RawTensor& tensor : header.tensors) {
    if (!tensor.foreign.empty()) {
      index.foreign.push_back({std::move(tensor.name), std::move(tensor.foreign),
                               Shape(std::move(tensor.shape)),
                               tensor.offsets[1] - tensor.offsets[0]});
      continue;
    }
    index.tensors.push_back({std::move(tensor.name),
                             TensorSpec{Shape(std::move(tensor.shape)), tensor.dtype, {}},
                             8 + n + tensor.offsets[0]});
  }
  index.metadata = std::move(header.metadata);
  return index;
}

void SafetensorsIndex::refuse_foreign(const std::string& name, const std::string& file) const {
  for (const ForeignTensor& t : foreign) {
    if (t.name != name) continue;
    fail(ErrorKind::kBadFile,
         "{}: tensor {}: the dtype must be one of F32 F16 BF16 I32 U32 U8 BOOL F64 I64, got {}; "
         "convert it",
         file, shown(name), t.dtype);
  }
}

std::vector<NamedArray> read_safetensors(std::span<const std::byte> bytes, const std::string& file,
                                         SafetensorsMetadata* metadata) {
  SafetensorsIndex index = read_safetensors_index(bytes, static_cast<int64_t>(bytes.size()), file);
  std::vector<NamedArray> arrays;
  arrays.reserve(index.tensors.size());
  for (SafetensorsTensor& tensor : index.tensors) {
    HostTensor array(std::move(tensor.spec));
    std::copy_n(bytes.begin() + tensor.offset, array.bytes().size(), array.bytes().begin());
    check_bools(array.dtype(), array.bytes(), file, tensor.offset);
    arrays.push_back({std::move(tensor.name), std::move(array)});
  }
  if (metadata != nullptr) *metadata = std::move(index.metadata);
  return arrays;
}

SafetensorsReader::SafetensorsReader(const std::string& path)
    : path_(path), file_(sys::open_for_read(path)) {
  const int64_t size = sys::size(file_, path);
  std::vector<std::byte> head(static_cast<size_t>(std::min<int64_t>(size, 64)));
  sys::read_exactly(file_, path, 0, head);
  refuse_other_kind(head, path, Contents::kBinary, kWanted);
  ByteReader reader(path, head);
  head.resize(static_cast<size_t>(8 + header_size(reader, size)));
  sys::read_exactly(file_, path, 0, head);
  index_ = read_safetensors_index(head, size, path);
}

void SafetensorsReader::read(const SafetensorsTensor& tensor, int64_t offset,
                             std::span<std::byte> out) const {
  sys::read_exactly(file_, path_, tensor.offset + offset, out);
  check_bools(tensor.spec.dtype, out, path_, tensor.offset + offset);
}

std::vector<NamedArray> read_safetensors_file(const std::string& path,
                                              SafetensorsMetadata* metadata) {
  const SafetensorsReader reader(path);
  std::vector<NamedArray> arrays;
  arrays.reserve(reader.index().tensors.size());
  for (const SafetensorsTensor& tensor : reader.index().tensors) {
    HostTensor array(tensor.spec);
    reader.read(tensor, 0, array.bytes());
    arrays.push_back({tensor.name, std::move(array)});
  }
  if (metadata != nullptr) *metadata = reader.index().metadata;
  return arrays;
}

namespace {

constexpr int64_t kPart = 1 << 20;  // Bytes of a tensor that are read at once.

// The bytes before the tensors (length and header), and the order of the tensors in the file.
struct Head {
  std::vector<std::byte> bytes;
  std::vector<size_t> order;
};

Head head_of(std::span<const NamedSpec> tensors, const SafetensorsMetadata& metadata) {
  Head head;
  head.order.resize(tensors.size());
  std::iota(head.order.begin(), head.order.end(), size_t{0});
  std::sort(head.order.begin(), head.order.end(), [&](size_t a, size_t b) {
    const int64_t size_a = size_of(tensors[a].spec.dtype);
    const int64_t size_b = size_of(tensors[b].spec.dtype);
    return size_a != size_b ? size_a > size_b : tensors[a].name < tensors[b].name;
  });

  std::set<std::string_view> names{kMetadata};
  std::string header = "{";
  if (!metadata.empty()) {
    header += fmt::format("\"{}\":{{", kMetadata);
    for (const auto& [key, value] : metadata) {
      header += fmt::format("{}{}:{}", header.back() == '{' ? "" : ",", quoted(key), quoted(value));
    }
    header += '}';
  }
  int64_t data = 0;
  for (const size_t i : head.order) {
    const auto& [name, spec] = tensors[i];
    require(names.insert(name).second, "safetensors: the name '{}' {}", name,
            name == kMetadata ? "is reserved" : "appears twice");
    const auto* dtype = std::find_if(kDTypes.begin(), kDTypes.end(),
                                     [&](const auto& row) { return row.second == spec.dtype; });
    SLUICE_CHECK(dtype != kDTypes.end());
    const int64_t end = checked_add(data, spec.bytes());
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() == 1 ? "" : ",", quoted(name), dtype->first,
                          fmt::join(spec.shape, ","), data, end);
    data = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  require(std::cmp_less_equal(header.size(), kMaxHeader),
          "safetensors: the header must have at most {} bytes, got {}; use shorter names",
          kMaxHeader, header.size());
  for (size_t i = 0; i < 8; ++i)
    head.bytes.push_back(static_cast<std::byte>(header.size() >> (8 * i)));
  const auto text = std::as_bytes(std::span(header));
  head.bytes.insert(head.bytes.end(), text.begin(), text.end());
  return head;
}

std::vector<NamedSpec> specs_of(std::span<const NamedArray> arrays) {
  std::vector<NamedSpec> specs;
  for (const NamedArray& a : arrays) specs.push_back({a.name, a.array.spec()});
  return specs;
}

TensorSource source_of(std::span<const NamedArray> arrays) {
  return [arrays](size_t i, int64_t offset, std::span<std::byte> out) {
    std::copy_n(arrays[i].array.bytes().begin() + offset, out.size(), out.begin());
  };
}

}  // namespace

void write_safetensors(std::span<const NamedSpec> tensors, const TensorSource& source,
                       const ByteSink& sink, const SafetensorsMetadata& metadata) {
  const Head head = head_of(tensors, metadata);
  sink(head.bytes);
  std::vector<std::byte> part(kPart);
  for (const size_t i : head.order) {
    const auto& [name, spec] = tensors[i];
    for (int64_t offset = 0; offset < spec.bytes(); offset += kPart) {
      const auto bytes =
          std::span(part).first(static_cast<size_t>(std::min(kPart, spec.bytes() - offset)));
      source(i, offset, bytes);
      require(spec.dtype != boolean || std::all_of(bytes.begin(), bytes.end(),
                                                   [](std::byte b) { return b <= std::byte{1}; }),
              "safetensors: the bools of '{}' must be 0 or 1", name);
      sink(bytes);
    }
  }
}

std::vector<std::byte> write_safetensors(std::span<const NamedArray> arrays,
                                         const SafetensorsMetadata& metadata) {
  std::vector<std::byte> file;
  write_safetensors(
      specs_of(arrays), source_of(arrays),
      [&](std::span<const std::byte> part) { file.insert(file.end(), part.begin(), part.end()); },
      metadata);
  return file;
}

void write_safetensors_file(const std::string& path, std::span<const NamedSpec> tensors,
                            const TensorSource& source, const SafetensorsMetadata& metadata) {
  sys::replace_file(path, [&](const sys::File& file, const std::string& name) {
    int64_t at = 0;
    write_safetensors(
        tensors, source,
        [&](std::span<const std::byte> part) {
          sys::write_exactly(file, name, at, part);
          at += static_cast<int64_t>(part.size());
        },
        metadata);
  });
}

void write_safetensors_file(const std::string& path, std::span<const NamedArray> arrays,
                            const SafetensorsMetadata& metadata) {
  write_safetensors_file(path, specs_of(arrays), source_of(arrays), metadata);
}

}  // namespace sluice
