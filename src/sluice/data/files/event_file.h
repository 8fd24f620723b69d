#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/data/files/growing_file.h"
#include "sluice/data/files/histogram.h"

/// Event files of TensorBoard, without its library. A file is a sequence of TFRecords: the length
/// as 8 bytes, their masked CRC-32C, an Event in the encoding of protocol buffers, and its masked
/// CRC-32C. All numbers are little-endian. Sources: tensorflow/core/lib/io/record_writer.h,
/// core/util/event.proto and core/framework/summary.proto.
namespace sluice::data {

/// Returns the CRC-32C (Castagnoli) of bytes, RFC 3720 appendix B.4.
uint32_t crc32c(std::string_view bytes);
/// Returns the TFRecord of some bytes.
std::string tf_record(std::string_view bytes);

/// The values of an event, in the encoding of the message Summary.
class Summary {
 public:
  /// Adds a number. The format stores it as float32.
  void add(std::string_view tag, double value);
  /// Adds a histogram.
  void add(std::string_view tag, const Histogram& histogram);
  const std::string& bytes() const { return bytes_; }

 private:
  void add_value(std::string_view tag, std::string_view value);
  std::string bytes_;
};

/// Return the message Event of a summary, and that which begins a file. `wall_time` is in seconds
/// since 1970.
std::string encode_event(double wall_time, int64_t step, const Summary& summary);
std::string encode_version(double wall_time);

/// Cuts the event files of a folder before the first event of a step above `step`, and before a
/// record that is not whole.
void cut_events(const std::string& folder, int64_t step);

/// An event file that grows.
class EventFile {
 public:
  /// Creates "events.out.tfevents.SECONDS.HOST.PID.N" in a folder, with the first number N that
  /// makes a new name. Error{kIo} if the system refuses it.
  explicit EventFile(const std::string& folder);

  const std::string& path() const { return file_.path(); }
  /// Adds an event of this moment to those that the next flush() writes.
  void add(int64_t step, const Summary& summary);
  /// As functions of GrowingFile.
  void flush() { file_.flush(); }
  void sync() { file_.sync(); }

 private:
  GrowingFile file_;
};

}  // namespace sluice::data
