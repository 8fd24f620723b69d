// Makes each public options struct, and each handle that users spell out, from only some of its
// fields. This must compile without warnings.
#include <sluice/data/feed_queues.h>
#include <sluice/sluice.h>
#include <sluice/train/devices.h>
#include <sluice/transforms/batch_serialise.h>

using namespace sluice;

TensorSpec spec() { return TensorSpec{{8, 3}, f32}; }
TensorSpec scalar_spec() { return {.dtype = i32}; }
H2dStream stream() { return {.name = "x"}; }
RemoteBuffer buffer() { return {.id = 1}; }
StreamInput input(const HostTensor& array) { return {.stream = stream(), .array = array}; }
NamedInput named() { return {.name = "x", .spec = {{8, 3}, f32}}; }
EmitOptions emit() { return {.name = "y"}; }
VariableInfo variable() { return {.path = "w"}; }
ops::RepeatOptions repeat() { return {}; }

SessionOptions session() {
  return {.device = cpu_device({.threads = 2}), .remote = "host", .io_queues = 3};
}

transforms::AutodiffOptions autodiff(const Tensor& x) {
  return {.grads_required = Tensors{x}, .unreachable = transforms::Unreachable::kZeros};
}
transforms::AccumulationOptions accumulation(const Tensor& x) { return {.grads_required = {x}}; }
transforms::BatchSerialiseOptions batches() { return {.steps = 4, .io_mode = IoMode::kIo}; }
transforms::BatchHandle handle() { return {.buffer = buffer()}; }

Tensor operators(const Tensor& x, const Tensor& labels, const Tensor& seed) {
  ops::sum(x, {.axes = {0}});
  ops::sum(x, {.keepdims = true});
  ops::argmax(x, {.axis = 1});
  ops::clip(x, {.min = 0});
  ops::matmul(x, x, {.rhs_transposed = true});
  ops::cross_entropy(x, labels, {.reduction = ops::LossReduction::kSum});
  ops::print_tensor(x, {.title = "x"});
  ops::adam_updater(x, x, {.epsilon = 1e-8});
  ops::replicated_all_reduce(x, ops::CollectiveOp::kMean);
  return ops::dropout(x, seed, 0.5);
}

nn::SgdOptions sgd() { return {.momentum = 0.9}; }
nn::AdamOptions adam() { return {.beta1 = 0.8}; }
train::Options step() { return {.accumulate = 8}; }
train::Prediction prediction(const Tensor& x) {
  return {.name = "x", .value = x, .labels = "labels"};
}
Session two_devices(const Ir& ir, const train::Training& training) {
  return train::open_session(ir, training, train::with_devices(session(), 2));
}
std::shared_ptr<data::InfeedQueue> samples(const data::Dataset& dataset) {
  return std::make_shared<data::InfeedQueue>(dataset,
                                             data::InfeedQueueOptions{.prefetch_depth = 2});
}
std::shared_ptr<data::OutfeedQueue> results() { return std::make_shared<data::OutfeedQueue>(); }
train::Field field() { return {.name = "x", .spec = spec()}; }
