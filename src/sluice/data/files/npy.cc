#include "sluice/data/files/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/bytes.h"
#include "sluice/base/error.h"
#include "sluice/data/files/shown.h"

namespace sluice::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the arrays are little-endian");

constexpr size_t kMaxNpyRank = 32;

constexpr std::array<std::pair<std::string_view, DType>, 8> kDTypes{{{"<f4", DType::kF32},
                                                                     {"<f2", DType::kF16},
                                                                     {"<i4", DType::kI32},
                                                                     {"<u4", DType::kU32},
                                                                     {"|u1", DType::kU8},
                                                                     {"|b1", DType::kBool},
                                                                     {"<f8", DType::kF64},
                                                                     {"<i8", DType::kI64}}};

constexpr std::string_view kIdDescrs[] = {"|u1", "<u2", "<i4", "<u4", "<i8"};
constexpr int64_t kIdBytes[] = {1, 2, 4, 4, 8};

/// The shape of an array and the name of its dtype.
struct ParsedHeader {
  Shape shape;
  std::string_view descr;
};

/// The dtypes that a file may have.
struct AcceptedDTypes {
  std::span<const std::string_view> descrs;
  std::string_view text;  ///< For errors.
};

/// Parses the header: a Python dictionary of the three keys, in any order.
class HeaderParser {
 public:
  /// `start` is the byte offset of `text` in the file.
  HeaderParser(const std::string& file, std::string_view text, int64_t start,
               const AcceptedDTypes& accepted)
      : file_(file), text_(text), start_(start), accepted_(accepted) {}

  ParsedHeader parse() {
    expect('{');
    while (!accept('}')) {
      key();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) bad("the header must end with its dictionary");
    if (!descr_ || !shape_ || !has_order_) {
      bad("the header must have 'descr', 'fortran_order' and 'shape'");
    }
    return {*shape_, *descr_};
  }

 private:
  [[noreturn]] void bad(std::string_view message) const {
    fail(ErrorKind::kBadFile, "{}: byte {}: {}", file_, start_ + static_cast<int64_t>(at_),
         message);
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) bad(fmt::format("the header must have '{}' here", c));
  }

  std::string_view quoted(std::string_view what) {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') bad(fmt::format("{} must be a text in quotes", what));
    const size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) bad(fmt::format("{} must end with a quote", what));
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }

  void key() {
    const std::string_view name = quoted("a key");
    expect(':');
    if (name == "descr" && !descr_) {
      dtype();
    } else if (name == "fortran_order" && !has_order_) {
      order();
    } else if (name == "shape" && !shape_) {
      shape();
    } else {
      bad("a key must be 'descr', 'fortran_order' or 'shape', each once");
    }
  }

  void dtype() {
    skip_spaces();
    const bool is_record = text_.substr(at_).starts_with('[');
    const std::string_view name = is_record ? "a record" : quoted("'descr'");
    const auto found = std::find(accepted_.descrs.begin(), accepted_.descrs.end(), name);
    if (found == accepted_.descrs.end()) {
      bad(fmt::format(
          "the dtype must be {}, little-endian, got {}; convert the array with numpy.astype",
          accepted_.text, shown(name)));
    }
    descr_ = *found;
  }

  void order() {
    skip_spaces();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("True")) {
      bad("the array must be in C order, got Fortran order; save numpy.ascontiguousarray(array)");
    }
    if (!rest.starts_with("False")) bad("'fortran_order' must be True or False");
    at_ += 5;
    has_order_ = true;
  }

  void shape() {
    expect('(');
    std::vector<int64_t> dims;
    int64_t elements = 1;
    while (!accept(')')) {
      dims.push_back(number());
      if (dims.size() > kMaxNpyRank) bad(fmt::format("the rank must be at most {}", kMaxNpyRank));
      if (__builtin_mul_overflow(elements, dims.back(), &elements) || elements > kMaxElements) {
        bad("the array must have at most 2^60 elements");
      }
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    shape_ = Shape(std::move(dims));
  }

  int64_t number() {
    skip_spaces();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        bad("a dimension must fit 63 bits");
      }
    }
    if (at_ == begin) bad("a dimension must be a number of at least 0");
    return value;
  }

  static constexpr int64_t kMaxElements = int64_t{1} << 60;  // Their bytes fit 63 bits.

  const std::string& file_;
  std::string_view text_;
  int64_t start_;
  size_t at_ = 0;
  AcceptedDTypes accepted_;
  std::optional<std::string_view> descr_;
  std::optional<Shape> shape_;
  bool has_order_ = false;
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr int64_t kMaxHeader = int64_t{1} << 20;

/// Reads the magic text and the version, and returns the bytes of the header's length.
int64_t length_bytes(ByteReader& reader) {
  const ByteReader begin = reader;
  if (as_text(reader.take(6, "the magic text")) != "\x93NUMPY") {
    begin.bad("the file must begin with \\x93NUMPY");
  }
  const ByteReader at_version = reader;
  const int major = reader.u8("the version");
  const int minor = reader.u8("the version");
  if (major < 1 || major > 3 || minor != 0) {
    at_version.bad("the version must be 1.0, 2.0 or 3.0, got {}.{}", major, minor);
  }
  return major == 1 ? 2 : 4;
}

int64_t header_length(ByteReader& reader) {
  if (length_bytes(reader) == 4) return reader.u32_le("the length of the header");
  const int64_t low = reader.u8("the length of the header");
  return low | int64_t{reader.u8("the length of the header")} << 8;
}

}  // namespace

std::vector<std::byte> npy_head(const FileWindow& window) {
  std::vector<std::byte> head = window.head(4096);
  refuse_other_kind(head, window.path(), Contents::kBinary, "a NumPy array");
  int64_t needed = 0;
  try {
    ByteReader reader(window.path(), head);
    const int64_t length = header_length(reader);
    needed = reader.offset() + std::min(length, kMaxHeader);
  } catch (const Error&) {
    return head;  // The reader of the header reports it.
  }
  return needed > std::ssize(head) ? window.head(needed) : head;
}

namespace {

struct FoundHeader {
  ParsedHeader header;
  ByteReader after;
};

/// Reads the header of an array of accepted dtypes.
FoundHeader find_header(std::span<const std::byte> head, const std::string& file,
                        const AcceptedDTypes& accepted) {
  ByteReader reader(file, head);
  const int64_t length = header_length(reader);
  const int64_t start = reader.offset();
  if (length > kMaxHeader)
    reader.bad("the header must have at most {} bytes, got {}", kMaxHeader, length);
  const std::string_view text = as_text(reader.take(length, "the header"));
  return {HeaderParser(file, text, start, accepted).parse(), reader};
}

}  // namespace

NpyHeader read_npy_header(std::span<const std::byte> head, int64_t file_size,
                          const std::string& file) {
  std::array<std::string_view, kDTypes.size()> descrs;
  std::transform(kDTypes.begin(), kDTypes.end(), descrs.begin(),
                 [](const auto& row) { return row.first; });
  const auto [header, reader] = find_header(
      head, file, {descrs, "float32, float16, int32, uint32, uint8, bool, float64 or int64"});
  const auto row = std::find_if(kDTypes.begin(), kDTypes.end(),
                                [&](const auto& r) { return r.first == header.descr; });
  const TensorSpec spec{header.shape, row->second, {}};
  const int64_t left = file_size - reader.offset();
  if (left != spec.bytes()) {
    reader.bad("an array {} needs {} bytes, {} are left in the file", to_string(spec), spec.bytes(),
               left);
  }
  return {spec, reader.offset()};
}

NpyIds read_npy_ids_header(std::span<const std::byte> head, int64_t file_size,
                           const std::string& file) {
  const auto [header, reader] =
      find_header(head, file, {kIdDescrs, "uint8, uint16, int32, uint32 or int64"});
  const auto which = std::find(std::begin(kIdDescrs), std::end(kIdDescrs), header.descr);
  NpyIds ids{.bytes = kIdBytes[which - std::begin(kIdDescrs)],
             .is_signed = header.descr[1] == 'i',
             .begin = reader.offset()};
  if (header.shape.rank() != 1)
    reader.bad("an array of ids must have the shape (n,), got {}", to_string(header.shape));
  ids.count = header.shape[0];
  const int64_t left = file_size - reader.offset();
  if (left / ids.bytes != ids.count || left % ids.bytes != 0) {
    reader.bad("{} ids of {} bytes are needed, {} bytes are left in the file", ids.count, ids.bytes,
               left);
  }
  return ids;
}

HostTensor read_npy(std::span<const std::byte> bytes, const std::string& file) {
  const NpyHeader header = read_npy_header(bytes, static_cast<int64_t>(bytes.size()), file);
  const auto payload = bytes.subspan(static_cast<size_t>(header.begin));
  if (header.spec.dtype == boolean) {
    const auto wrong =
        std::find_if(payload.begin(), payload.end(), [](std::byte b) { return b > std::byte{1}; });
    if (wrong != payload.end()) {
      fail(ErrorKind::kBadFile, "{}: byte {}: a bool must be 0 or 1, got {}", file,
           wrong - bytes.begin(), static_cast<int>(*wrong));
    }
  }
  HostTensor array(header.spec);
  std::copy(payload.begin(), payload.end(), array.bytes().begin());
  return array;
}

std::string npy_header(std::string_view descr, const Shape& shape) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr,
                                 to_string(shape));
  constexpr size_t kBefore = 10;  // The magic text, the version and the length of the header.
  text.resize((kBefore + text.size() + 64) / 64 * 64 - kBefore - 1, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

std::string npy_header(const TensorSpec& spec) {
  const auto row = std::find_if(kDTypes.begin(), kDTypes.end(),
                                [&](const auto& r) { return r.second == spec.dtype; });
  require(row != kDTypes.end(), "npy: the dtype must be one that NumPy has, got {}; cast it to f32",
          name_of(spec.dtype));
  require(spec.shape.dims().size() <= kMaxNpyRank, "npy: the rank must be at most {}, got {}",
          kMaxNpyRank, spec.shape.rank());
  return npy_header(row->first, spec.shape);
}

}  // namespace sluice::data
