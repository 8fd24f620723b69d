#include "sluice/data/files/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "sluice/base/bytes.h"
#include "sluice/base/error.h"

namespace sluice::data {

uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before) {
  return static_cast<uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

struct Inflater::State {
  State(const std::string& f, Format format)
      : file(f), is_gzip(format == Format::kGzip), name(is_gzip ? "gzip" : "DEFLATE") {}

  const std::string& file;
  bool is_gzip;
  const char* name;  ///< The stream's name in errors.
  int64_t end = 0;   ///< Byte offset in the file after the last byte.
  z_stream stream{};
  bool has_ended = false;
};

Inflater::Inflater(std::span<const std::byte> bytes, const std::string& file, Format format,
                   int64_t offset)
    : state_(std::make_unique<State>(file, format)) {
  const auto size = static_cast<int64_t>(bytes.size());
  state_->end = offset + size;
  if (size > kMaxInput) {
    fail(ErrorKind::kBadFile, "{}: byte {}: a {} stream must have at most {} bytes, got {}", file,
         offset, state_->name, kMaxInput, size);
  }
  z_stream& stream = state_->stream;
  // zlib's interface is not const-correct; it never writes through next_in.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(size);
  // 15: largest window; + 16: gzip only; negative: a raw stream.
  SLUICE_CHECK(inflateInit2(&stream, format == Format::kGzip ? 15 + 16 : -15) == Z_OK);
}

Inflater::~Inflater() { inflateEnd(&state_->stream); }

void Inflater::append(std::vector<std::byte>& out, int64_t count) {
  z_stream& stream = state_->stream;
  while (count > 0 && !state_->has_ended) {
    std::array<Bytef, 65536> chunk;
    stream.next_out = chunk.data();
    stream.avail_out = static_cast<uInt>(std::min<int64_t>(count, chunk.size()));
    const uInt asked = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    const auto* got = reinterpret_cast<const std::byte*>(chunk.data());
    out.insert(out.end(), got, got + (asked - stream.avail_out));
    count -= asked - stream.avail_out;
    if (status == Z_STREAM_END) {
      state_->has_ended = !next_member();
    } else if (status == Z_BUF_ERROR ||
               (status == Z_OK && stream.avail_in == 0 && stream.avail_out != 0)) {
      bad(fmt::format("the {} stream is cut off", state_->name));
    } else if (status != Z_OK) {
      bad(stream.msg != nullptr ? stream.msg
                                : fmt::format("the {} stream is damaged", state_->name));
    }
  }
}

/// Skips the zero bytes after a member. Returns whether another member follows, and begins it.
bool Inflater::next_member() {
  if (!state_->is_gzip) return false;
  z_stream& stream = state_->stream;
  while (stream.avail_in > 0 && *stream.next_in == 0) {
    ++stream.next_in;
    --stream.avail_in;
  }
  const auto* rest = reinterpret_cast<const std::byte*>(stream.next_in);
  if (!is_gzip({rest, stream.avail_in})) return false;
  SLUICE_CHECK(inflateReset(&stream) == Z_OK);
  return true;
}

void Inflater::finish() {
  std::vector<std::byte> more;
  append(more, 1);
  if (!more.empty())
    bad(fmt::format("the {} stream holds more than its header says", state_->name));
  if (state_->stream.avail_in != 0) {
    bad(fmt::format("{} bytes after the end of the {} stream", state_->stream.avail_in,
                    state_->name));
  }
}

void Inflater::bad(const std::string& message) const {
  fail(ErrorKind::kBadFile, "{}: byte {}: {}", state_->file, state_->end - state_->stream.avail_in,
       message);
}

}  // namespace sluice::data
