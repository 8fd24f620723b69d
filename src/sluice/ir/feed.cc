#include "sluice/ir/stream.h"

#include <algorithm>
#include <set>

#include "sluice/ir/ir.h"

namespace sluice {
namespace {

constexpr int kMaxFeedDepth = 255;

void check_fields(const std::string& what, const std::vector<FeedField>& fields) {
  require(!fields.empty(), "{}: must have at least 1 field, got 0", what);
  std::set<std::string> names;
  for (const FeedField& f : fields) {
    require(!f.name.empty(), "{}: each field must have a name, got an empty one", what);
    require(names.insert(f.name).second, "{}: fields must have different names, got '{}' twice",
            what, f.name);
    const std::string field = fmt::format("{}: field '{}'", what, f.name);
    require_device_dtype(f.spec, field);
    require(f.spec.elements() > 0, "{}: dimensions must be at least 1, got shape {}", field,
            to_string(f.spec.shape));
  }
}

std::string names_of(const std::vector<FeedField>& fields) {
  std::string text;
  for (const FeedField& f : fields) text += (text.empty() ? "" : ", ") + f.name;
  return text;
}

}  // namespace

int32_t Ir::add_feed(const std::string& name, const std::vector<FeedField>& fields, bool input,
                     int depth) {
  const std::string what = fmt::format("{} '{}'", input ? "infeed" : "outfeed", name);
  require(!name.empty(), "{}: must have a name", what);
  for (const FeedInfo& f : feeds())
    require(f.name != name, "{}: must have a name of its own, got that of another feed", what);
  check_fields(what, fields);
  require(depth >= 1 && depth <= kMaxFeedDepth, "{}: {} must be 1 to {}, got {}", what,
          input ? "prefetch_depth" : "depth", kMaxFeedDepth, depth);
  state_->feeds.push_back({name, input, depth, {}});
  return static_cast<int32_t>(state_->feeds.size() - 1);
}

Infeed Ir::infeed(const std::string& name, const std::vector<FeedField>& fields,
                  const InfeedOptions& options) {
  Infeed feed{id(), add_feed(name, fields, true, options.prefetch_depth), name, fields, {}};
  for (const FeedField& f : fields) {
    feed.streams.push_back(h2d_stream(f.spec, name + "." + f.name));
    state_->streams.back().feed = feed.id;
    state_->feeds.back().streams.push_back(feed.streams.back().id);
  }
  return feed;
}

Outfeed Ir::outfeed(const std::string& name, const std::vector<FeedField>& fields,
                    const OutfeedOptions& options) {
  Outfeed feed{id(), add_feed(name, fields, false, options.depth), name, fields, {}};
  for (const FeedField& f : fields) {
    feed.streams.push_back(d2h_stream(f.spec, name + "." + f.name));
    state_->streams.back().feed = feed.id;
    state_->feeds.back().streams.push_back(feed.streams.back().id);
  }
  return feed;
}

Tensors Graph::dequeue(const Infeed& feed) {
  require(feed.ir == ir_->id, "dequeue: feed '{}' belongs to another Ir", feed.name);
  Tensors fields;
  for (const H2dStream& s : feed.streams) fields.push_back(host_load(s));
  return fields;
}

std::map<std::string, Tensor> Graph::dequeue_named(const Infeed& feed) {
  const Tensors loaded = dequeue(feed);
  std::map<std::string, Tensor> fields;
  for (size_t i = 0; i < loaded.size(); ++i) fields.emplace(feed.fields[i].name, loaded[i]);
  return fields;
}

void Graph::enqueue(const Outfeed& feed, const Tensors& fields) {
  require(feed.ir == ir_->id, "enqueue: feed '{}' belongs to another Ir", feed.name);
  require(fields.size() == feed.fields.size(), "enqueue: feed '{}' must get {} fields ({}), got {}",
          feed.name, feed.fields.size(), names_of(feed.fields), fields.size());
  for (size_t i = 0; i < fields.size(); ++i) host_store(feed.streams[i], fields[i]);
}

void Graph::enqueue(const Outfeed& feed, const std::map<std::string, Tensor>& fields) {
  Tensors ordered;
  for (const FeedField& f : feed.fields) {
    const auto found = fields.find(f.name);
    require(found != fields.end(), "enqueue: feed '{}' must get field '{}', got none", feed.name,
            f.name);
    ordered.push_back(found->second);
  }
  for (const auto& [name, t] : fields) {
    const bool known = std::any_of(feed.fields.begin(), feed.fields.end(),
                                   [&](const FeedField& f) { return f.name == name; });
    require(known, "enqueue: feed '{}' must get the fields {}, got '{}'", feed.name,
            names_of(feed.fields), name);
  }
  enqueue(feed, ordered);
}

}  // namespace sluice
