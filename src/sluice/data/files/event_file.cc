#include "sluice/data/files/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <span>

#include "sluice/base/bytes.h"
#include "sluice/base/sys.h"
#include "sluice/base/system/folder.h"

namespace sluice::data {
namespace {

// The encodings of a field.
enum class Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Appends a number in groups of seven bits, the lowest first.
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, uint64_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<uint64_t>(wire));
}

void put_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_double(std::string& out, double value) { put_le(out, std::bit_cast<uint64_t>(value), 8); }

// Appends a field unless it has the default value 0. -0 is another value.
void put_double_field(std::string& out, uint64_t field, double value) {
  if (std::bit_cast<uint64_t>(value) == 0) return;
  put_key(out, field, Wire::kFixed64);
  put_double(out, value);
}

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1) * 0x82f63b78;
    table[i] = rest;
  }
  return table;
}

// Returns the CRC as a TFRecord stores it, so that a CRC of bytes with a CRC is not a constant.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string new_name(const std::string& folder) {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') host[0] = '-';
  const std::string name =
      fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.", folder,
                  static_cast<int64_t>(seconds_since_1970()), host, ::getpid());
  int number = 0;
  while (sys::exists(name + std::to_string(number))) ++number;
  return name + std::to_string(number);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + 16);
  put_le(out, bytes.size(), 8);
  put_le(out, masked_crc(out), 4);
  out += bytes;
  put_le(out, masked_crc(bytes), 4);
  return out;
}

void Summary::add_value(std::string_view tag, std::string_view value) {
  std::string message;
  put_bytes(message, 1, tag);
  message += value;
  put_bytes(bytes_, 1, message);
}

void Summary::add(std::string_view tag, double value) {
  std::string field;
  put_key(field, 2, Wire::kFixed32);
  put_le(field, std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
  add_value(tag, field);
}

void Summary::add(std::string_view tag, const Histogram& histogram) {
  std::string message, limits, counts;
  put_double_field(message, 1, histogram.min());
  put_double_field(message, 2, histogram.max());
  put_double_field(message, 3, static_cast<double>(histogram.count()));
  put_double_field(message, 4, histogram.sum());
  put_double_field(message, 5, histogram.sum_squares());
  for (const Histogram::Bucket& bucket : histogram.buckets()) {
    put_double(limits, bucket.limit);
    put_double(counts, bucket.count);
  }
  put_bytes(message, 6, limits);
  put_bytes(message, 7, counts);
  std::string field;
  put_bytes(field, 5, message);
  add_value(tag, field);
}

std::string encode_event(double wall_time, int64_t step, const Summary& summary) {
  std::string out;
  put_double_field(out, 1, wall_time);
  if (step != 0) {
    put_key(out, 2, Wire::kVarint);
    put_varint(out, static_cast<uint64_t>(step));
  }
  put_bytes(out, 5, summary.bytes());
  return out;
}

std::string encode_version(double wall_time) {
  std::string out;
  put_double_field(out, 1, wall_time);
  put_bytes(out, 3, "brain.Event:2");
  return out;
}

namespace {

// Returns the step of the event that begins with these bytes, as encode_event() writes it.
int64_t step_of(std::string_view event) {
  constexpr char kTimeKey = 1 << 3 | 1, kStepKey = 2 << 3;
  constexpr size_t kTimeBytes = 9;
  if (event.starts_with(kTimeKey)) event.remove_prefix(std::min(kTimeBytes, event.size()));
  if (!event.starts_with(kStepKey)) return 0;
  uint64_t step = 0;
  for (size_t i = 1, shift = 0; i < event.size() && shift < 64; ++i, shift += 7) {
    const auto byte = static_cast<uint8_t>(event.substr(i)[0]);
    step |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) break;
  }
  return static_cast<int64_t>(step);
}

// Returns the bytes of a file before the first record that cut_events() removes.
int64_t kept_events(const std::string& path, int64_t step) {
  constexpr int64_t kHead = 12, kTail = 4;  // Length with its CRC, and the CRC of the event.
  constexpr int64_t kBegin = 20;            // Bytes of an event that have its time and step.
  const sys::File file = sys::open_for_read(path);
  const int64_t size = sys::size(file, path);
  std::array<std::byte, kHead> head;
  std::array<std::byte, kBegin> begin;
  int64_t at = 0;
  while (at + kHead + kTail <= size) {
    sys::read_exactly(file, path, at, head);
    uint64_t length = 0;
    for (size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<uint64_t>(head[i]);
    if (length > static_cast<uint64_t>(size - at - kHead - kTail)) break;
    const auto part = std::span(begin).first(std::min<size_t>(length, kBegin));
    sys::read_exactly(file, path, at + kHead, part);
    if (step_of({reinterpret_cast<const char*>(part.data()), part.size()}) > step) break;
    at += kHead + static_cast<int64_t>(length) + kTail;
  }
  return at;
}

}  // namespace

void cut_events(const std::string& folder, int64_t step) {
  for (const std::string& name : sys::names_in(folder)) {
    if (!name.starts_with("events.out.tfevents.")) continue;
    const std::string path = folder + "/" + name;
    const int64_t kept = kept_events(path, step);
    if (kept < sys::size(sys::open_for_read(path), path)) const GrowingFile cut(path, kept);
  }
}

EventFile::EventFile(const std::string& folder) : file_(new_name(folder)) {
  file_.append(tf_record(encode_version(seconds_since_1970())));
  file_.flush();
}

void EventFile::add(int64_t step, const Summary& summary) {
  file_.append(tf_record(encode_event(seconds_since_1970(), step, summary)));
}

}  // namespace sluice::data
