#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/base/feed.h"
#include "sluice/ir/stream.h"

namespace sluice {

/// A handle to an infeed of an Ir: a sequence of elements from the host. Each field of an element
/// has a stream. Entry k of all its streams belongs to element k.
struct Infeed {
  uint64_t ir = 0;
  int32_t id = -1;
  std::string name = {};
  std::vector<FeedField> fields = {};
  std::vector<H2dStream> streams = {};  ///< By field.
};

/// A handle to an outfeed of an Ir: a sequence of elements for the host.
struct Outfeed {
  uint64_t ir = 0;
  int32_t id = -1;
  std::string name = {};
  std::vector<FeedField> fields = {};
  std::vector<D2hStream> streams = {};  ///< By field.
};

struct InfeedOptions {
  /// Elements, 1 to 255, that the host makes in advance for each replica.
  int prefetch_depth = 3;
};

struct OutfeedOptions {
  /// Elements, 1 to 255, of each replica that the host may still have to take.
  int depth = 3;
};

}  // namespace sluice
