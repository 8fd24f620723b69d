#pragma once
#include "sluice/models/model.h"

namespace sluice::models {

enum class Activation { kGelu, kRelu };

/// Builds a multilayer perceptron on samples of shape `sample` and of `classes` classes. It has
/// `layers` linear layers. The last one has a feature for each class, or for each element of a
/// target of the mean squared error. The others have `width` features and an activation and dropout
/// after them. With ReLU the initial weights keep the variance of activations, so that any depth
/// trains. With GELU they are N(0, 0.02), as in documents 000, 003 and 004.
train::Network perceptron(const Sizes& sizes, Activation activation);

/// Sets layers, width, classes and the number of elements of a sample to those of the weights
/// fc.0.weight, fc.1.weight, … with shapes (inputs, features). Error{kUsage} if they are no chain.
void read_perceptron_sizes(const std::vector<NamedSpec>& weights, Sizes& sizes);

}  // namespace sluice::models
